#include "bench/workload/workload.h"

#include <cctype>

#include "absl/strings/str_cat.h"

namespace verbena::bench {
namespace {

Workload Core(const char* name, const char* description, std::array<double, kOpKinds> proportion,
              Distribution distribution = Distribution::kZipfian) {
  Workload workload;
  workload.name = name;
  workload.description = description;
  workload.proportion = proportion;
  workload.distribution = distribution;
  return workload;
}

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

std::string Workload::Title() const {
  if (name.size() != 1) return "YCSB core workload";
  return absl::StrCat("YCSB-", std::string(1, static_cast<char>(std::toupper(name[0]))));
}

const std::array<Workload, 6>& AllWorkloads() {
  static const auto* const kWorkloads = new std::array<Workload, 6>{
      Core("a", "update heavy: 50 % reads, 50 % updates", {0.50, 0.50}),
      Core("b", "read mostly: 95 % reads, 5 % updates", {0.95, 0.05}),
      Core("c", "read only", {1.00}),
      Core("d", "read latest: 95 % reads, 5 % inserts", {0.95, 0, 0.05}, Distribution::kLatest),
      Core("e", "short ranges: 95 % scans, 5 % inserts", {0, 0, 0.05, 0.95}),
      Core("f", "read-modify-write: 50 % reads, 50 % read-modify-writes", {0.50, 0, 0, 0, 0.50}),
  };
  return *kWorkloads;
}

std::optional<Workload> FindWorkload(std::string_view name) {
  if (name.size() != 1) return std::nullopt;
  for (const Workload& workload : AllWorkloads()) {
    if (workload.name[0] == (name[0] | 0x20)) return workload;
  }
  return std::nullopt;
}

OperationSource::OperationSource(const Workload& workload, const RequestDistribution& distribution,
                                 const RecordRange& range, uint64_t seed, InsertSequence* inserts)
    : random_(seed),
      chooser_(distribution, range, inserts),
      inserts_(inserts),
      min_scan_length_(workload.min_scan_length),
      max_scan_length_(workload.max_scan_length),
      written_fields_(workload.fields.updates_read() ? workload.fields.count : 0) {
  double below = 0;
  size_t last = 0;
  for (size_t i = 0; i < kOpKinds; ++i) {
    below += workload.proportion[i];
    parts_[i] = {below, static_cast<OpKind>(i)};
    if (workload.proportion[i] > 0) last = i;
  }
  // The last kind there is has all the rest, whatever the sum is rounded to.
  for (size_t i = last; i < kOpKinds; ++i) parts_[i] = {2, static_cast<OpKind>(last)};
  if (workload.short_scans) {
    scan_lengths_.emplace(max_scan_length_ - min_scan_length_ + 1, kYcsbTheta);
  }
}

OpKind OperationSource::NextKind() {
  const double draw = random_.NextDouble();
  size_t i = 0;
  while (draw >= parts_[i].below) ++i;
  return parts_[i].kind;
}

uint32_t OperationSource::NextScanLength() {
  if (scan_lengths_.has_value()) {
    return min_scan_length_ + static_cast<uint32_t>(scan_lengths_->Next(random_));
  }
  return min_scan_length_ +
         static_cast<uint32_t>(random_.Below(max_scan_length_ - min_scan_length_ + 1));
}

uint32_t OperationSource::NextField() {
  return written_fields_ == 0 ? Operation::kAllFields
                              : static_cast<uint32_t>(random_.Below(written_fields_));
}

Operation OperationSource::Next() {
  Operation operation;
  operation.kind = NextKind();
  operation.record = operation.kind == OpKind::kInsert ? inserts_->Next() : NextRecord();
  if (operation.kind == OpKind::kScan) operation.length = NextScanLength();
  if (operation.kind == OpKind::kUpdate || operation.kind == OpKind::kReadModifyWrite) {
    operation.field = NextField();
  }
  return operation;
}

}  // namespace verbena::bench
