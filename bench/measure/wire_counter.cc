#include "bench/measure/wire_counter.h"

#include <fstream>

#include "absl/strings/str_cat.h"

namespace verbena::bench {
namespace {

// A name that is no file name would lead elsewhere.
bool IsName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos;
}

std::optional<uint64_t> Number(const std::string& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  if (!(file >> number)) return std::nullopt;
  return number;
}

}  // namespace

std::optional<uint64_t> InterfaceBytes(const std::string& interface, const std::string& root) {
  if (!IsName(interface)) return std::nullopt;
  return Number(absl::StrCat(root, "/class/net/", interface, "/statistics/tx_bytes"));
}

std::optional<uint64_t> RdmaDeviceBytes(const std::string& device, const std::string& root) {
  if (!IsName(device)) return std::nullopt;
  std::optional<uint64_t> sum;
  for (int port = 1;; ++port) {
    const std::string folder =
        absl::StrCat(root, "/class/infiniband/", device, "/ports/", port, "/counters/");
    const auto sent = Number(folder + "port_xmit_data");
    const auto received = Number(folder + "port_rcv_data");
    if (!sent.has_value() || !received.has_value()) return sum;
    constexpr uint64_t kUnit = 4;  // they count words of four bytes
    sum = sum.value_or(0) + kUnit * (*sent + *received);
  }
}

}  // namespace verbena::bench
