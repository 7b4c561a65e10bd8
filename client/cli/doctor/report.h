// What the doctor found: a list of checks, each with a status, a finding and what to do about it.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace verbena::cli::doctor {

enum class Status { kOk, kWarn, kFail };
const char* StatusName(Status status);  // "OK", "WARN", "FAIL"

// A number behind a finding, for programs: its name has the unit ("limit_bytes", "median_us").
using Figure = std::pair<std::string, double>;

struct Check {
  Status status = Status::kOk;
  std::string id = {};       // stable, for programs: "memory_lock", "mtu", ...
  std::string subject = {};  // what was checked where there are several: "mlx5_0/1"; else empty
  std::string finding = {};
  std::string remedy = {};  // empty if nothing is to be done
  std::vector<Figure> figures = {};
};

// Not thread-safe.
class Report {
 public:
  void Add(Check check) { checks_.push_back(std::move(check)); }

  const std::vector<Check>& checks() const { return checks_; }
  size_t Count(Status status) const;
  // 0, 1 if there are warnings, 2 if there are failures.
  int ExitStatus() const;

 private:
  std::vector<Check> checks_;
};

}  // namespace verbena::cli::doctor
