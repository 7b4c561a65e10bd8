#include "common/verbs/connect_flags.h"

#include <gflags/gflags.h>

#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/macros.h"

// Strings, so that a malformed number, too, is refused with the allowed range.
DEFINE_string(tos, "", "type of service of packets, 0 to 255; empty: as the system is configured");
DEFINE_string(ack_timeout, "14", "time for an acknowledgement, 1 to 31: 4.096 us * 2^code");
DEFINE_string(retry_count, "6", "repeats of an unanswered packet, 0 to 7");
DEFINE_string(rnr_timer, "12", "wait of a sender that found no receive posted: a code, 0 to 31");

namespace verbena::verbs {
namespace {

absl::StatusOr<uint8_t> Read(const std::string& text, const ConnectRange& range) {
  uint64_t value = 0;
  if (absl::SimpleAtoi(text, &value)) {
    if (const absl::StatusOr<uint8_t> checked = range.Check(value); checked.ok()) return checked;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--", range.name, "=", text, " is not allowed: it must be ", range.ToString()));
}

}  // namespace

absl::StatusOr<ConnectOptions> ConnectOptionsFromFlags() {
  ConnectOptions options;
  if (!FLAGS_tos.empty()) {
    VERBENA_ASSIGN_OR_RETURN(options.tos, Read(FLAGS_tos, kTosRange));
  }
  VERBENA_ASSIGN_OR_RETURN(options.ack_timeout, Read(FLAGS_ack_timeout, kAckTimeoutRange));
  VERBENA_ASSIGN_OR_RETURN(options.retry_count, Read(FLAGS_retry_count, kRetryCountRange));
  VERBENA_ASSIGN_OR_RETURN(options.min_rnr_timer, Read(FLAGS_rnr_timer, kRnrTimerRange));
  return options;
}

std::string_view ConnectFlagsHelp() {
  return R"(  --tos=N              type of service of this side's packets (0 to 255; DSCP times 4), by which
                       switches choose a traffic class; by default as the system is configured. On
                       InfiniBand it is not the service level: the subnet manager chooses that
  --ack_timeout=14     how long the adapter waits for an acknowledgement before it repeats a packet:
                       4.096 us * 2^N (1 to 31; 14 is 67 ms)
  --retry_count=6      how often it repeats (0 to 7; 7 is for ever on some devices)
  --rnr_timer=12       how long the peer waits before it repeats a message that found no receive
                       (a code, 0 to 31; 12 is 0.64 ms, 0 is 655 ms)
)";
}

}  // namespace verbena::verbs
