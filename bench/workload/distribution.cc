#include "bench/workload/distribution.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/text.h"

namespace verbena::bench {
namespace {

struct NamedDistribution {
  std::string_view name;
  Distribution kind;
};

constexpr std::string_view kExactPrefix = "zipf:";
constexpr std::array<NamedDistribution, 6> kNames = {{
    {"zipfian", Distribution::kZipfian},
    {"uniform", Distribution::kUniform},
    {"latest", Distribution::kLatest},
    {"hotspot", Distribution::kHotspot},
    {"sequential", Distribution::kSequential},
    {"exponential", Distribution::kExponential},
}};

}  // namespace

absl::StatusOr<RequestDistribution> ParseDistribution(std::string_view name) {
  for (const NamedDistribution& known : kNames) {
    if (known.name == name) return RequestDistribution(known.kind);
  }
  RequestDistribution exact(Distribution::kExactZipf);
  if (name.substr(0, kExactPrefix.size()) == kExactPrefix &&
      absl::SimpleAtod(ToAbsl(name.substr(kExactPrefix.size())), &exact.theta) && exact.theta > 0 &&
      exact.theta <= ExactZipf::kMaxTheta) {
    return exact;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", ToAbsl(name), "' is no distribution: there are ", ToAbsl(kDistributionNames)));
}

std::string DistributionName(const RequestDistribution& distribution) {
  for (const NamedDistribution& known : kNames) {
    if (known.kind == distribution.kind) return std::string(known.name);
  }
  return absl::StrCat(ToAbsl(kExactPrefix), distribution.theta);
}

// YCSB makes its scrambled generator for one number more than there are records (its bounds are
// inclusive) and draws again where one comes up that is not there; so do we.
RecordChooser::RecordChooser(const RequestDistribution& distribution, const RecordRange& range,
                             InsertSequence* inserts)
    : distribution_(distribution),
      range_(range),
      inserts_(inserts),
      scrambled_(range.count + 2 * range.expected_inserts + 1) {
  switch (distribution_.kind) {
    case Distribution::kLatest:
      latest_.emplace(std::max<uint64_t>(inserts_->present() - 1, 1), kYcsbTheta);
      break;
    case Distribution::kExactZipf:
      exact_.emplace(range_.count, distribution_.theta);
      break;
    case Distribution::kHotspot:
      hot_ = std::min(
          static_cast<uint64_t>(static_cast<double>(range_.count) * distribution_.hotspot_data),
          range_.count);
      break;
    case Distribution::kExponential:
      gamma_ = -std::log(1 - distribution_.exponential_percentile / 100) /
               (static_cast<double>(inserts_->present()) * distribution_.exponential_part);
      break;
    default:
      break;
  }
}

uint64_t RecordChooser::Next(Random& random) {
  switch (distribution_.kind) {
    case Distribution::kUniform:
      return range_.first + random.Below(range_.count);
    case Distribution::kLatest:
      return NextLatest(random);
    case Distribution::kHotspot:
      return NextHotspot(random);
    case Distribution::kSequential:
      return range_.first + inserts_->NextInTurn() % range_.count;
    case Distribution::kExponential:
      return NextExponential(random);
    case Distribution::kExactZipf:
      return range_.first + exact_->Next(random);
    case Distribution::kZipfian:
      break;
  }
  for (;;) {
    const uint64_t position = range_.first + scrambled_.Next(random);
    if (position < inserts_->present()) return position;
  }
}

// The last record that is there less a Zipfian rank below its number: record 0 never comes up, as
// with YCSB (but where there is no other).
uint64_t RecordChooser::NextLatest(Random& random) {
  const uint64_t last = inserts_->present() - 1;
  if (last == 0) return 0;
  latest_->Grow(last);
  return last - latest_->Next(random);
}

uint64_t RecordChooser::NextHotspot(Random& random) {
  const bool hot = random.NextDouble() < distribution_.hotspot_operations;
  const uint64_t cold = range_.count - hot_;
  if ((hot && hot_ > 0) || cold == 0) return range_.first + random.Below(hot_);
  return range_.first + hot_ + random.Below(cold);
}

uint64_t RecordChooser::NextExponential(Random& random) {
  const uint64_t last = inserts_->present() - 1;
  for (;;) {
    const double back = -std::log(1 - random.NextDouble()) / gamma_;
    if (back <= static_cast<double>(last)) return last - static_cast<uint64_t>(back);
  }
}

}  // namespace verbena::bench
