#include "common/base/error_json.h"

#include <cstddef>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"

namespace verbena {

bool IsUtf8(std::string_view bytes) {
  for (size_t i = 0; i < bytes.size();) {
    const auto lead = static_cast<uint8_t>(bytes[i]);
    const size_t length = lead < 0x80   ? 1
                          : lead < 0xc2 ? 0
                          : lead < 0xe0 ? 2
                          : lead < 0xf0 ? 3
                          : lead < 0xf5 ? 4
                                        : 0;
    if (length == 0 || i + length > bytes.size()) return false;
    for (size_t j = 1; j < length; ++j) {
      if ((static_cast<uint8_t>(bytes[i + j]) & 0xc0) != 0x80) return false;
    }
    if (length > 2) {
      // Overlong forms, surrogates, and what is over U+10FFFF.
      const auto second = static_cast<uint8_t>(bytes[i + 1]);
      if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second >= 0xa0) ||
          (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second >= 0x90)) {
        return false;
      }
    }
    i += length;
  }
  return true;
}

std::string ErrorJson(absl::StatusCode code, const std::string& message, int exit_status,
                      uint64_t version) {
  nlohmann::ordered_json json = {
      {"error",
       {{"status", absl::StatusCodeToString(code)},
        {"message", IsUtf8(message) ? message : absl::CHexEscape(message)},
        {"exit_status", exit_status}}}};
  if (version != 0) json["error"]["version"] = version;
  return json.dump() + "\n";
}

}  // namespace verbena
