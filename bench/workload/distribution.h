// How a run chooses records: YCSB's request distributions, and exact Zipfians.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "bench/workload/insert_sequence.h"
#include "bench/workload/random.h"
#include "bench/workload/zipfian.h"

namespace verbena::bench {

enum class Distribution {
  kZipfian,      // YCSB's scrambled one
  kUniform,      // every record as likely
  kLatest,       // Zipfian over what was inserted last
  kHotspot,      // a part of the records gets a part of the requests, each evenly
  kSequential,   // one after another, all threads together
  kExponential,  // the newest are the likeliest
  kExactZipf,    // "zipf:THETA": record r with probability 1 / (r + 1)^theta / zeta
};

// A distribution and its parameters, with YCSB's defaults.
struct RequestDistribution {
  // NOLINTNEXTLINE(google-explicit-constructor): most need no parameters
  RequestDistribution(Distribution which = Distribution::kZipfian) : kind(which) {}

  Distribution kind;
  double theta = kYcsbTheta;            // kExactZipf: above 0, at most ExactZipf::kMaxTheta
  double hotspot_data = 0.2;            // kHotspot: the part of the records, 0 to 1, and
  double hotspot_operations = 0.8;      // the part of the requests that it gets
  double exponential_percentile = 95;   // kExponential: per cent of the requests, 0 < . < 100,
  double exponential_part = 6.0 / 7.0;  // that go to this part of the records

  bool operator==(const RequestDistribution&) const = default;
};

// "zipfian", "uniform", "latest", "hotspot", "sequential", "exponential" or "zipf:THETA";
// InvalidArgument, saying what is allowed, for others.
absl::StatusOr<RequestDistribution> ParseDistribution(std::string_view name);
std::string DistributionName(const RequestDistribution& distribution);
// What ParseDistribution takes, for messages and help texts.
inline constexpr std::string_view kDistributionNames =
    "zipfian, uniform, latest, hotspot, sequential, exponential or zipf:THETA (THETA above 0, at "
    "most 100)";

// The records that requests go to.
struct RecordRange {
  uint64_t first = 0;
  uint64_t count = 1;
  // Inserts that the run is expected to make. The scrambled Zipfian is made for twice as many
  // records more, and what is not there yet is drawn again: YCSB's way to reach new records.
  uint64_t expected_inserts = 0;
};

// Draws positions of records (see InsertSequence) that are there. Not thread-safe: one per thread;
// `inserts` is shared, borrowed and must outlive it.
class RecordChooser {
 public:
  RecordChooser(const RequestDistribution& distribution, const RecordRange& range,
                InsertSequence* inserts);

  uint64_t Next(Random& random);

 private:
  uint64_t NextLatest(Random& random);
  uint64_t NextHotspot(Random& random);
  uint64_t NextExponential(Random& random);

  const RequestDistribution distribution_;
  const RecordRange range_;
  InsertSequence* const inserts_;
  ScrambledZipfian scrambled_;
  std::optional<Zipfian> latest_;
  std::optional<ExactZipf> exact_;
  uint64_t hot_ = 0;  // kHotspot: records of the hot part
  double gamma_ = 0;  // kExponential
};

}  // namespace verbena::bench
