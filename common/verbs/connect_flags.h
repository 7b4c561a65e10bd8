// The flags about connections that all of Verbena's programs have: --tos, --ack_timeout,
// --retry_count and --rnr_timer. A program that links this library has them (gflags).
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "common/verbs/conn_param.h"

namespace verbena::verbs {

// For lists of known flags, and for help texts.
inline constexpr std::string_view kConnectFlags =
    "--tos, --ack_timeout, --retry_count, --rnr_timer";

// The options with what the flags say. InvalidArgument names the flag, its value and the range.
absl::StatusOr<ConnectOptions> ConnectOptionsFromFlags();

// Lines for a help text.
std::string_view ConnectFlagsHelp();

}  // namespace verbena::verbs
