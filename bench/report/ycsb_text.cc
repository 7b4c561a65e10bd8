#include "bench/report/ycsb_text.h"

#include <cmath>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace verbena::bench {
namespace {

// YCSB's names of the statuses.
const char* StatusName(size_t code) {
  switch (static_cast<absl::StatusCode>(code)) {
    case absl::StatusCode::kOk:
      return "OK";
    case absl::StatusCode::kNotFound:
      return "NOT_FOUND";
    case absl::StatusCode::kUnimplemented:
      return "NOT_IMPLEMENTED";
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return "BAD_REQUEST";
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return "FORBIDDEN";
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
      return "SERVICE_UNAVAILABLE";
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kAlreadyExists:
      return "UNEXPECTED_STATE";
    default:
      return "ERROR";
  }
}

// "READ", "READ-MODIFY-WRITE".
std::string MetricName(OpKind kind) {
  return absl::StrReplaceAll(absl::AsciiStrToUpper(OpKindName(kind)), {{"_", "-"}});
}

uint64_t WholeMicros(uint64_t nanos) { return nanos / 1000; }

void AddBlock(const Config& config, const std::string& metric, const Histogram& latency,
              std::string& text) {
  const auto line = [&](const std::string& what, const std::string& value) {
    absl::StrAppend(&text, "[", metric, "], ", what, ", ", value, "\n");
  };
  line("Operations", absl::StrCat(latency.count()));
  line("AverageLatency(us)", absl::StrFormat("%.2f", latency.mean() / 1e3));
  line("MinLatency(us)", absl::StrCat(WholeMicros(latency.min())));
  line("MaxLatency(us)", absl::StrCat(WholeMicros(latency.max())));
  for (const double percent : config.load.ycsb_percentiles) {
    line(YcsbOrdinal(percent) + "PercentileLatency(us)",
         absl::StrCat(WholeMicros(latency.Percentile(percent))));
  }
}

void AddKind(const Config& config, OpKind kind, const OpResult& op, std::string& text) {
  const std::string metric = MetricName(kind);
  AddBlock(config, metric, op.latency, text);
  if (op.latency.count() > 0) {
    absl::StrAppend(&text, "[", metric, "], Return=OK, ", op.latency.count(), "\n");
  }
  // Several codes have one name.
  std::array<bool, kStatusCodes> told{};
  for (size_t code = 1; code < kStatusCodes; ++code) {
    if (op.statuses[code] == 0 || told[code]) continue;
    uint64_t sum = 0;
    for (size_t other = code; other < kStatusCodes; ++other) {
      if (std::string_view(StatusName(other)) != StatusName(code)) continue;
      sum += op.statuses[other];
      told[other] = true;
    }
    absl::StrAppend(&text, "[", metric, "], Return=", StatusName(code), ", ", sum, "\n");
  }
  if (op.failed.count() > 0) AddBlock(config, metric + "-FAILED", op.failed, text);
  if (op.response.count() > 0) AddBlock(config, "Intended-" + metric, op.response, text);
}

}  // namespace

std::string YcsbOrdinal(double percent) {
  const double whole = std::floor(percent);
  if (whole != percent) return absl::StrFormat("%g", percent);
  const int number = static_cast<int>(whole);
  const char* const ending = number % 100 >= 11 && number % 100 <= 13 ? "th"
                             : number % 10 == 1                       ? "st"
                             : number % 10 == 2                       ? "nd"
                             : number % 10 == 3                       ? "rd"
                                                                      : "th";
  return absl::StrCat(number, ending);
}

std::string YcsbText(const Config& config, const RunResult& result) {
  std::string text = absl::StrFormat(
      "[OVERALL], RunTime(ms), %d\n[OVERALL], Throughput(ops/sec), %s\n",
      std::llround(result.seconds * 1e3), absl::StrFormat("%.2f", result.throughput()));
  for (size_t i = 0; i < kOpKinds; ++i) {
    if (result.ops[i].count > 0) AddKind(config, static_cast<OpKind>(i), result.ops[i], text);
  }
  if (result.verify.checked > 0) {
    absl::StrAppend(&text, "[VERIFY], Operations, ", result.verify.checked, "\n",
                    "[VERIFY], Return=OK, ", result.verify.checked - result.verify.wrong, "\n");
    if (result.verify.wrong > 0) {
      absl::StrAppend(&text, "[VERIFY], Return=UNEXPECTED_STATE, ", result.verify.wrong, "\n");
    }
  }
  return text;
}

}  // namespace verbena::bench
