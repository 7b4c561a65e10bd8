#include "bench/report/ycsb_text.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

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

void AddLine(const std::string& metric, const std::string& what, const std::string& value,
             std::string& text) {
  absl::StrAppend(&text, "[", metric, "], ", what, ", ", value, "\n");
}

// Lines "[READ], 17, 4": so many took 17 ms, less than 18; the last has all from form.buckets on.
void AddMilliseconds(const YcsbForm& form, const std::string& metric, const Histogram& latency,
                     std::string& text) {
  std::vector<uint64_t> counts(form.buckets + 1);
  for (const auto& [cell, count] : latency.Cells()) {
    const uint64_t millis = histogram_internal::LastValueOf(cell) / 1'000'000;
    counts[std::min(millis, form.buckets)] += count;
  }
  for (uint64_t i = 0; i < form.buckets; ++i) {
    AddLine(metric, absl::StrCat(i), absl::StrCat(counts[i]), text);
  }
  AddLine(metric, absl::StrCat(">", form.buckets), absl::StrCat(counts[form.buckets]), text);
}

// Lines "[READ], 2000, 17.25": the mean in us of those that ended 2 to 3 s after the begin.
void AddSeconds(const RunResult& result, OpKind kind, const std::string& metric,
                std::string& text) {
  for (size_t second = 0; second < result.series.size(); ++second) {
    const SeriesCell& cell = result.series[second].kinds[Index(kind)];
    if (cell.count == 0) continue;
    AddLine(metric, absl::StrCat(second * 1000), absl::StrFormat("%.2f", cell.mean / 1e3), text);
  }
}

void AddBlock(const Config& config, const std::string& metric, const Histogram& latency,
              std::string& text) {
  const auto line = [&](const std::string& what, const std::string& value) {
    AddLine(metric, what, value, text);
  };
  line("Operations", absl::StrCat(latency.count()));
  line("AverageLatency(us)", absl::StrFormat("%.2f", latency.mean() / 1e3));
  line("MinLatency(us)", absl::StrCat(WholeMicros(latency.min())));
  line("MaxLatency(us)", absl::StrCat(WholeMicros(latency.max())));
  if (!config.load.ycsb.percentiles) return;
  for (const double percent : config.load.ycsb.percents) {
    line(YcsbOrdinal(percent) + "PercentileLatency(us)",
         absl::StrCat(WholeMicros(latency.Percentile(percent))));
  }
}

// Response times; in a closed loop an operation is due when it is submitted.
const Histogram& ResponseOf(const OpResult& op) {
  return op.response.count() > 0 ? op.response : op.latency;
}

void AddKind(const Config& config, OpKind kind, const RunResult& result, std::string& text) {
  const std::string metric = MetricName(kind);
  const OpResult& op = result.op(kind);
  const YcsbForm& form = config.load.ycsb;
  const Histogram& shown = form.times == YcsbForm::Times::kResponse ? ResponseOf(op) : op.latency;
  AddBlock(config, metric, shown, text);
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
  if (form.histogram) AddMilliseconds(form, metric, shown, text);
  if (form.time_series) AddSeconds(result, kind, metric, text);
  if (op.failed.count() > 0) AddBlock(config, metric + "-FAILED", op.failed, text);
  if (form.times == YcsbForm::Times::kBoth ||
      (form.times == YcsbForm::Times::kAll && op.response.count() > 0)) {
    const std::string intended = "Intended-" + metric;
    AddBlock(config, intended, ResponseOf(op), text);
    if (form.histogram) AddMilliseconds(form, intended, ResponseOf(op), text);
  }
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
    if (result.ops[i].count > 0) AddKind(config, static_cast<OpKind>(i), result, text);
  }
  if (result.verify.checked > 0) {
    absl::StrAppend(&text, "[VERIFY], Operations, ", result.verify.checked, "\n",
                    "[VERIFY], Return=OK, ", result.verify.checked - result.verify.wrong, "\n");
    if (result.verify.wrong > 0) {
      absl::StrAppend(&text, "[VERIFY], Return=UNEXPECTED_STATE, ", result.verify.wrong, "\n");
    }
  }
  if (result.trace.has_value()) {
    const TraceOutcome& outcome = result.trace->outcome;
    absl::StrAppend(&text, "[TRACE], Requests, ", result.trace->facts.requests, "\n",
                    "[TRACE], BadLines, ", result.trace->facts.bad_lines, "\n", "[TRACE], Misses, ",
                    outcome.misses, "\n");
    if (const auto rate = outcome.hit_rate()) {
      absl::StrAppendFormat(&text, "[TRACE], HitRate, %.6f\n", *rate);
    }
  }
  return text;
}

}  // namespace verbena::bench
