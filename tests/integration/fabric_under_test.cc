#include "tests/integration/fabric_under_test.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/macros.h"
#include "common/base/net_address.h"
#include "common/softverbs/softverbs.h"
#include "common/verbs/cm.h"
#include "common/verbs/device.h"
#include "common/verbs/rdma_core.h"

namespace verbena::testing {
namespace {

std::string Variable(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : value;
}

// A mistake in the environment must not make tests test something else.
[[noreturn]] void Refuse(const char* name, const std::string& value) {
  std::fprintf(stderr, "%s=%s: see tests/integration/fabric_under_test.h\n", name, value.c_str());
  std::exit(2);
}

double Number(const char* name, const char* otherwise) {
  const std::string text = Variable(name, otherwise);
  double number = 0;
  if (!absl::SimpleAtod(text, &number) || !(number > 0)) Refuse(name, text);
  return number;
}

std::string WithPort(const std::string& host, int port) {
  const bool ipv6 = host.find(':') != std::string::npos;
  return absl::StrCat(ipv6 ? "[" : "", host, ipv6 ? "]:" : ":", port);
}

// What `question` answers about the device that has the address of this host.
template <typename Question>
auto AskDevice(Question question) {
  const auto ask = [&]() -> decltype(question(verbs::DeviceView())) {
    VERBENA_ASSIGN_OR_RETURN(const NetAddress address, NetAddress::Parse(LocalAddress()));
    VERBENA_ASSIGN_OR_RETURN(verbs::CmChannel channel, verbs::CmChannel::Create(Fabric()));
    VERBENA_ASSIGN_OR_RETURN(verbs::CmId id, verbs::CmId::Create(channel));
    VERBENA_RETURN_IF_ERROR(id.Bind(address));
    return question(id.device());
  };
  auto answer = ask();
  if (!answer.ok()) Refuse("VERBENA_TEST_ADDRESS", answer.status().ToString());
  return *std::move(answer);
}

}  // namespace

const std::string& FabricName() {
  static const std::string* const name = [] {
    auto* text = new std::string(Variable("VERBENA_TEST_FABRIC", "soft"));
    if (*text != "soft" && *text != "verbs") Refuse("VERBENA_TEST_FABRIC", *text);
    return text;
  }();
  return *name;
}

verbs::VerbsApi& Fabric() {
  return FabricName() == "soft" ? softverbs::SoftVerbs() : verbs::RdmaCoreVerbs();
}

std::string FabricFlag() { return "--fabric=" + FabricName(); }

std::string ServerAddress(int port) {
  return WithPort(Variable("VERBENA_TEST_ADDRESS", "127.0.0.1"), port);
}

std::string LocalAddress(int port) {
  return WithPort(
      Variable("VERBENA_TEST_LOCAL_ADDRESS", Variable("VERBENA_TEST_ADDRESS", "127.0.0.1")), port);
}

std::string ListenFlag() { return "--listen=" + ServerAddress(); }

verbs::Capabilities DeviceCapabilities() {
  return AskDevice([](const verbs::DeviceView& device) { return verbs::Capabilities::Of(device); });
}

std::string LinkLayer() {
  return AskDevice([](const verbs::DeviceView& device) -> absl::StatusOr<std::string> {
    VERBENA_ASSIGN_OR_RETURN(const ibv_port_attr port, device.QueryPort(1));
    return verbs::LinkLayerName(port.link_layer);
  });
}

bool ServersAreRemote() { return !Variable("VERBENA_TEST_AGENT", "").empty(); }

int Scaled(int count, int least) {
  static const double scale = Number("VERBENA_TEST_SCALE", "1");
  return std::max(static_cast<int>(count * scale), least);
}

std::chrono::milliseconds Soon() {
#if defined(__SANITIZE_ADDRESS__) || defined(VERBENA_TSAN)
  constexpr const char* kSeconds = "20";
#else
  constexpr const char* kSeconds = "5";
#endif
  static const double seconds = Number("VERBENA_TEST_SOON_SECONDS", kSeconds);
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

}  // namespace verbena::testing
