#include "bench/workload.h"

namespace verbena::bench {
namespace {

constexpr std::array<Workload, 3> kWorkloads = {{
    {'a', {0.50, 0.50, 0}, "update heavy: 50 % reads, 50 % updates"},
    {'b', {0.95, 0.05, 0}, "read mostly: 95 % reads, 5 % updates"},
    {'c', {1.00, 0.00, 0}, "read only"},
}};

}  // namespace

const char* OpKindName(OpKind kind) {
  switch (kind) {
    case OpKind::kRead:
      return "read";
    case OpKind::kUpdate:
      return "update";
    case OpKind::kInsert:
      return "insert";
  }
  return "unknown";
}

const char* DistributionName(Distribution distribution) {
  return distribution == Distribution::kZipfian ? "zipfian" : "uniform";
}

std::optional<Workload> FindWorkload(std::string_view name) {
  if (name.size() != 1) return std::nullopt;
  for (const Workload& workload : kWorkloads) {
    if (workload.name == (name[0] | 0x20)) return workload;
  }
  return std::nullopt;
}

std::array<Workload, 3> AllWorkloads() { return kWorkloads; }

// YCSB makes its scrambled generator for the numbers 0 to `records` (one more than there are) and
// draws again where that last one comes up; so do we.
OperationSource::OperationSource(const Workload& workload, Distribution distribution,
                                 uint64_t records, uint64_t seed)
    : random_(seed),
      distribution_(distribution),
      records_(records),
      zipfian_(records + 1),
      read_below_(workload.proportion[Index(OpKind::kRead)]) {}

uint64_t OperationSource::NextRecord() {
  if (distribution_ == Distribution::kUniform) return random_.Below(records_);
  for (;;) {
    const uint64_t record = zipfian_.Next(random_);
    if (record < records_) return record;
  }
}

Operation OperationSource::Next() {
  const OpKind kind = random_.NextDouble() < read_below_ ? OpKind::kRead : OpKind::kUpdate;
  return {kind, NextRecord()};
}

}  // namespace verbena::bench
