#include "bench/compare/system_facts.h"

#include "absl/strings/match.h"
#include "bench/baseline/raw_side.h"
#include "common/base/text.h"
#include "common/wire/messages.h"

namespace verbena::bench {
namespace {

// Of Verbena's operations: what READs bring, and the messages.
double VerbenaBytes(const Config& config, const RunResult& result) {
  const size_t key = config.key_names().typical_size();
  const auto both = [](size_t request, size_t response) {
    return static_cast<double>(sizeof(wire::RequestHeader) + request +
                               sizeof(wire::ResponseHeader) + response);
  };
  const double put = both(wire::OperationSize(key, config.value_size), wire::ResultSize(0));
  const double get = both(wire::OperationSize(key, 0), wire::ResultSize(config.value_size));
  const auto writes = static_cast<double>(result.operations()) -
                      static_cast<double>(result.op(OpKind::kRead).count);
  return static_cast<double>(result.counters.reads) * static_cast<double>(BlockSizeFor(config)) +
         static_cast<double>(result.counters.rpc_gets) * get + writes * put;
}

}  // namespace

CopyFacts CopiesOf(std::string_view system, bool soft) {
  if (system == "verbena" || system == "raw-read") {
    if (soft) {
      return {0, 1,
              "the client's thread copies from the shared region, in the place of an adapter; the "
              "value is used where it lands"};
    }
    return {0, 0,
            "the adapters move the value from the server's region to the client's memory, where it "
            "is used"};
  }
  if (system == "verbena-send") {
    return {1, soft ? 1 : 0,
            soft ? "the server copies the item into a message, the device copies the message"
                 : "the server copies the item into a message; the adapters move that"};
  }
  if (system == "raw-send") {
    return {0, soft ? 1 : 0,
            soft ? "the device copies the message" : "the adapters move the message"};
  }
  if (system == kTcpPingPong) {
    return {1, 1, "each kernel copies the message between socket and process"};
  }
  if (absl::StartsWith(ToAbsl(system), "memcached")) {
    return {
        1, 1,
        "the server's kernel copies the item into the socket, the client's kernel copies it out "
        "of it"};
  }
  return {
      2, 1,
      "Redis copies the value into its reply, the kernel that into the socket, and the client's "
      "kernel out of it"};
}

std::optional<WireBytes> PayloadOf(const Config& config, std::string_view system,
                                   const RunResult& result) {
  if (result.operations() == 0) return std::nullopt;
  const auto operations = static_cast<double>(result.operations());
  if (system == "verbena" || system == "verbena-send") {
    return WireBytes{VerbenaBytes(config, result) / operations,
                     "computed from READs and messages, without the fabric's headers"};
  }
  const auto bytes = static_cast<double>(result.counters.bytes_in + result.counters.bytes_out);
  if (system == "raw-read" || system == "raw-send") {
    return WireBytes{bytes / operations, "counted by the client, without the fabric's headers"};
  }
  return WireBytes{bytes / operations, "counted at the client's socket, without headers"};
}

}  // namespace verbena::bench
