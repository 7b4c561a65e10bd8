// What a failure means for what comes next: kept beside a status's code and words, as payloads.
// Thread-safe.
#pragma once

#include "absl/status/status.h"

namespace verbena::client {

// A refusal that another attempt cannot change: other versions, a server that makes no sense.
absl::Status Final(absl::Status status);
bool IsFinal(const absl::Status& status);

// The change may have been made or not (see OutcomeUnknown); says so in its words, too.
absl::Status WithOutcomeUnknown(const absl::Status& status);

// What users are told: without what is above but for an outcome that is unknown, and without
// errnos.
absl::Status ForUsers(absl::Status status);

}  // namespace verbena::client
