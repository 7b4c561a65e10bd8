// What a failure means for what comes next: kept beside a status's code and words, as payloads.
// Thread-safe.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace verbena::client {

// What users are told of a server whose answer does not come.
inline constexpr char kWhyLate[] =
    "it is stopped, overloaded or unreachable, or the time is too short";

// A refusal that another attempt cannot change: other versions, a server that makes no sense.
absl::Status Final(absl::Status status);
bool IsFinal(const absl::Status& status);

// The change may have been made or not (see OutcomeUnknown); says so in its words, too.
absl::Status WithOutcomeUnknown(const absl::Status& status);

// What a child of a fork is told that uses its parent's `what`, which is over `fabric`.
absl::Status ForkedError(std::string_view what, std::string_view fabric);
// OK, or why this process can make no connection over the software device.
absl::Status CheckSoftAfterFork();

// An error of connecting, in such terms: verbs call many things invalid or not found that the
// caller did not name.
absl::Status OfConnecting(const absl::Status& status);

// What users are told: without what is above but for an outcome that is unknown, and without
// errnos.
absl::Status ForUsers(absl::Status status);

}  // namespace verbena::client
