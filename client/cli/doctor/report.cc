#include "client/cli/doctor/report.h"

#include <algorithm>

namespace verbena::cli::doctor {

const char* StatusName(Status status) {
  switch (status) {
    case Status::kOk:
      return "OK";
    case Status::kWarn:
      return "WARN";
    case Status::kFail:
      return "FAIL";
  }
  return "";
}

size_t Report::Count(Status status) const {
  return static_cast<size_t>(
      std::count_if(checks_.begin(), checks_.end(),
                    [status](const Check& check) { return check.status == status; }));
}

int Report::ExitStatus() const {
  if (Count(Status::kFail) > 0) return 2;
  return Count(Status::kWarn) > 0 ? 1 : 0;
}

}  // namespace verbena::cli::doctor
