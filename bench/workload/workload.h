// What a run does: the mix of operations and the choice of records.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "bench/workload/distribution.h"
#include "bench/workload/insert_sequence.h"
#include "bench/workload/random.h"
#include "bench/workload/record_values.h"
#include "bench/workload/zipfian.h"

namespace verbena::bench {

enum class OpKind : uint8_t { kRead, kUpdate, kInsert, kScan, kReadModifyWrite, kDelete };
inline constexpr size_t kOpKinds = 6;
// As in reports: "read", "update", "insert", "scan", "read_modify_write", "delete".
const char* OpKindName(OpKind kind);
constexpr size_t Index(OpKind kind) { return static_cast<size_t>(kind); }

// The longest scan of YCSB's workload file E, in records; the shortest has one, and all lengths
// between are as likely (maxscanlength=100, scanlengthdistribution=uniform).
inline constexpr uint32_t kMaxScanLength = 100;

// A YCSB core workload: how likely each kind of operation is, and what it works on.
struct Workload {
  std::string name = "a";  // "a" to "f"; "core" where properties made it
  std::array<double, kOpKinds> proportion{};
  std::string description;
  RequestDistribution distribution = Distribution::kZipfian;  // unless another is asked for
  uint32_t min_scan_length = 1;
  uint32_t max_scan_length = kMaxScanLength;
  bool short_scans = false;  // lengths are Zipfian, short ones the likeliest; else all as likely
  RecordFields fields;

  bool scans() const { return proportion[Index(OpKind::kScan)] > 0; }
  bool inserts() const { return proportion[Index(OpKind::kInsert)] > 0; }
  // For headings: "YCSB-A", "YCSB core workload".
  std::string Title() const;
};

// "a" to "f", in either case; nullopt for others.
std::optional<Workload> FindWorkload(std::string_view name);
// All of them, for help texts.
const std::array<Workload, 6>& AllWorkloads();

struct Operation {
  static constexpr uint32_t kAllFields = UINT32_MAX;

  OpKind kind = OpKind::kRead;
  uint64_t record = 0;          // kScan: the one to start at
  uint32_t length = 0;          // kScan: how many records are wanted, at least 1
  uint32_t field = kAllFields;  // of updates and read-modify-writes: the one to write anew
};

// Draws the operations of a run. Not thread-safe: one per thread; `inserts` is shared by all,
// borrowed, and must outlive it.
class OperationSource {
 public:
  OperationSource(const Workload& workload, const RequestDistribution& distribution,
                  const RecordRange& range, uint64_t seed, InsertSequence* inserts);

  // What it inserts must be acknowledged to `inserts`.
  Operation Next();

 private:
  struct Part {
    double below;  // a uniform number in [0, 1) below this, but not the one before, is that kind
    OpKind kind;
  };

  uint64_t NextRecord() { return inserts_->RecordAt(chooser_.Next(random_)); }
  OpKind NextKind();
  uint32_t NextScanLength();
  uint32_t NextField();

  Random random_;
  RecordChooser chooser_;
  InsertSequence* const inserts_;
  std::array<Part, kOpKinds> parts_{};
  uint32_t min_scan_length_;
  uint32_t max_scan_length_;
  std::optional<Zipfian> scan_lengths_;
  uint32_t written_fields_;  // to choose one of; 0: all are written
};

}  // namespace verbena::bench
