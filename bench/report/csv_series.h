// The seconds of a run as comma-separated values.
#pragma once

#include <span>
#include <string>

#include "bench/load/series.h"

namespace verbena::bench {

// The names of the columns, and a line for each row and kind that has something. `offset` is added
// to the times: where the run of these rows began.
std::string CsvHeader();
std::string CsvLines(std::span<const SeriesRow> rows, double offset = 0);

}  // namespace verbena::bench
