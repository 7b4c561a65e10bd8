#include "common/base/sizes.h"

#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/text.h"

namespace verbena {
namespace {

struct Unit {
  std::string_view suffix;
  uint64_t bytes;
};

constexpr std::array<Unit, 10> kUnits = {{{"TiB", kTiB},
                                          {"GiB", kGiB},
                                          {"MiB", kMiB},
                                          {"KiB", kKiB},
                                          {"T", kTiB},
                                          {"G", kGiB},
                                          {"M", kMiB},
                                          {"K", kKiB},
                                          {"B", 1},
                                          {"", 1}}};

absl::Status BadSize(std::string_view text) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", ToAbsl(text),
                   "' is not a size: write a number and B, KiB, MiB, GiB or TiB, "
                   "for example 64MiB"));
}

}  // namespace

absl::StatusOr<uint64_t> ParseSize(std::string_view text) {
  for (const Unit& unit : kUnits) {
    if (!text.ends_with(unit.suffix)) continue;
    const std::string_view number = text.substr(0, text.size() - unit.suffix.size());
    if (number.find_first_not_of("0123456789.") != std::string_view::npos) return BadSize(text);
    // Whole numbers stay exact over 2^53.
    if (uint64_t whole = 0; absl::SimpleAtoi(ToAbsl(number), &whole)) {
      if (whole > (uint64_t{1} << 63) / unit.bytes) return BadSize(text);
      return whole * unit.bytes;
    }
    double value = 0;
    if (!absl::SimpleAtod(ToAbsl(number), &value) || !std::isfinite(value)) return BadSize(text);
    value *= static_cast<double>(unit.bytes);
    if (value < 0 || value > 9.2e18) return BadSize(text);
    return static_cast<uint64_t>(std::llround(value));
  }
  return BadSize(text);
}

std::string FormatSize(uint64_t bytes) {
  for (const Unit& unit : kUnits) {
    if (unit.bytes == 1 || unit.suffix.size() != 3 || bytes < unit.bytes) continue;
    const double value = static_cast<double>(bytes) / static_cast<double>(unit.bytes);
    const absl::string_view suffix = ToAbsl(unit.suffix);
    if (bytes % unit.bytes == 0) return absl::StrCat(bytes / unit.bytes, suffix);
    std::string number = absl::StrFormat("%.2f", value);
    number.erase(number.find_last_not_of('0') + 1);
    if (number.back() == '.') number.pop_back();
    return absl::StrCat(number, suffix);
  }
  return absl::StrCat(bytes, "B");
}

}  // namespace verbena
