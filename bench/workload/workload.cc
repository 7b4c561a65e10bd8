#include "bench/workload/workload.h"

namespace verbena::bench {
namespace {

constexpr std::array<Workload, 4> kWorkloads = {{
    {'a', {0.50, 0.50, 0, 0}, "update heavy: 50 % reads, 50 % updates"},
    {'b', {0.95, 0.05, 0, 0}, "read mostly: 95 % reads, 5 % updates"},
    {'c', {1.00, 0.00, 0, 0}, "read only"},
    {'e', {0, 0, 0.05, 0.95}, "short ranges: 95 % scans, 5 % inserts"},
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
    case OpKind::kScan:
      return "scan";
    case OpKind::kReadModifyWrite:
      return "read_modify_write";
    case OpKind::kDelete:
      return "delete";
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

std::array<Workload, 4> AllWorkloads() { return kWorkloads; }

// YCSB makes its scrambled generator for the numbers 0 to `records` (one more than there are) and
// draws again where that last one comes up; so do we.
OperationSource::OperationSource(const Workload& workload, Distribution distribution,
                                 uint64_t records, uint64_t seed, const InsertShare& inserts)
    : random_(seed),
      distribution_(distribution),
      records_(records),
      zipfian_(records + 1),
      read_below_(workload.proportion[Index(OpKind::kRead)]),
      update_below_(read_below_ + workload.proportion[Index(OpKind::kUpdate)]),
      insert_below_(update_below_ + workload.proportion[Index(OpKind::kInsert)]),
      next_insert_(records + inserts.index),
      insert_step_(inserts.step) {}

uint64_t OperationSource::NextRecord() {
  if (distribution_ == Distribution::kUniform) return random_.Below(records_);
  for (;;) {
    const uint64_t record = zipfian_.Next(random_);
    if (record < records_) return record;
  }
}

Operation OperationSource::Next() {
  const double draw = random_.NextDouble();
  if (draw < read_below_) return {OpKind::kRead, NextRecord()};
  if (draw < update_below_) return {OpKind::kUpdate, NextRecord()};
  if (draw < insert_below_) {
    const uint64_t record = next_insert_;
    next_insert_ += insert_step_;
    return {OpKind::kInsert, record};
  }
  const uint64_t start = NextRecord();
  return {OpKind::kScan, start, 1 + static_cast<uint32_t>(random_.Below(kMaxScanLength))};
}

}  // namespace verbena::bench
