#include "bench/report/csv_series.h"

#include "absl/strings/str_format.h"

namespace verbena::bench {

std::string CsvHeader() {
  return "second,seconds,kind,count,errors,ops_s,mean_us,p50_us,p99_us,p99.9_us,max_us\n";
}

std::string CsvLines(std::span<const SeriesRow> rows, double offset) {
  std::string text;
  for (const SeriesRow& row : rows) {
    for (size_t i = 0; i < kOpKinds; ++i) {
      const SeriesCell& cell = row.kinds[i];
      if (cell.count == 0 && cell.errors == 0) continue;
      const auto micros = [&cell](uint64_t nanos) {
        return absl::StrFormat("%.3f", static_cast<double>(nanos) / 1e3);
      };
      absl::StrAppendFormat(&text, "%.3f,%.3f,%s,%d,%d,%.1f,%.3f,%s,%s,%s,%.3f\n", row.end + offset,
                            row.seconds, OpKindName(static_cast<OpKind>(i)), cell.count,
                            cell.errors,
                            row.seconds <= 0 ? 0 : static_cast<double>(cell.count) / row.seconds,
                            cell.mean / 1e3, micros(cell.p50), micros(cell.p99), micros(cell.p999),
                            static_cast<double>(cell.max) / 1e3);
    }
  }
  return text;
}

}  // namespace verbena::bench
