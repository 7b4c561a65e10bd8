#include "client/src/causes.h"

#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "common/base/text.h"
#include "common/softverbs/softverbs.h"
#include "common/verbs/errors.h"
#include "verbena/connection.h"

namespace verbena {
namespace {

constexpr char kFinal[] = "verbena/final";
constexpr char kOutcome[] = "verbena/outcome";

}  // namespace

bool OutcomeUnknown(const absl::Status& status) { return status.GetPayload(kOutcome).has_value(); }

namespace client {

absl::Status Final(absl::Status status) {
  status.SetPayload(kFinal, absl::Cord("yes"));
  return status;
}

bool IsFinal(const absl::Status& status) { return status.GetPayload(kFinal).has_value(); }

absl::Status WithOutcomeUnknown(const absl::Status& status) {
  absl::Status unknown(status.code(), absl::StrCat(status.message(),
                                                   "; the outcome is unknown: the change may "
                                                   "have been made or not"));
  unknown.SetPayload(kOutcome, absl::Cord("unknown"));
  return unknown;
}

absl::Status ForkedError(std::string_view what, std::string_view fabric) {
  return absl::FailedPreconditionError(absl::StrCat(
      "this process was forked from the one that made the ", ToAbsl(what),
      fabric == "soft" || softverbs::UnusableAfterFork()
          ? ", and cannot use the software device itself: connect in a process that has called "
            "exec, or that was forked before the device was used"
          : ": connect in it anew"));
}

absl::Status CheckSoftAfterFork() {
  if (!softverbs::UnusableAfterFork()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "this process was forked from one that was using the software device, and cannot use it "
      "itself: connect in a process that has called exec, or that was forked before the device was "
      "used");
}

absl::Status OfConnecting(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      return absl::UnavailableError(status.message());
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kAlreadyExists:
      return absl::FailedPreconditionError(status.message());
    default:
      return status;
  }
}

absl::Status ForUsers(absl::Status status) {
  status.ErasePayload(kFinal);
  return verbs::WithoutErrno(std::move(status));
}

}  // namespace client
}  // namespace verbena
