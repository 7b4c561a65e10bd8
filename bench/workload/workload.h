// What a run does: the mix of operations and the choice of records.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "bench/workload/random.h"
#include "bench/workload/zipfian.h"

namespace verbena::bench {

enum class OpKind : uint8_t { kRead, kUpdate, kInsert, kScan, kReadModifyWrite, kDelete };
inline constexpr size_t kOpKinds = 6;
// As in reports: "read", "update", "insert", "scan", "read_modify_write", "delete".
const char* OpKindName(OpKind kind);
constexpr size_t Index(OpKind kind) { return static_cast<size_t>(kind); }

enum class Distribution { kZipfian, kUniform };
const char* DistributionName(Distribution distribution);

// A YCSB core workload: how likely each kind of operation is.
struct Workload {
  char name = 'a';
  std::array<double, kOpKinds> proportion{};
  const char* description = "";

  bool scans() const { return proportion[Index(OpKind::kScan)] > 0; }
};

// The longest scan, in records; the shortest has one, and all lengths between are as likely. That
// is what YCSB's workload file E says (maxscanlength=100, scanlengthdistribution=uniform).
inline constexpr uint32_t kMaxScanLength = 100;

// "a", "b", "c" or "e", in either case; nullopt for others.
std::optional<Workload> FindWorkload(std::string_view name);
// All of them, for help texts.
std::array<Workload, 4> AllWorkloads();

struct Operation {
  OpKind kind = OpKind::kRead;
  uint64_t record = 0;  // kScan: the one to start at
  uint32_t length = 0;  // kScan: how many records are wanted, 1 to kMaxScanLength
};

// The share of one of several sources in the records that a run inserts: with `step` sources,
// source `index` inserts records + index, records + index + step and so on, so that no two insert
// the same.
struct InsertShare {
  uint64_t index = 0;
  uint64_t step = 1;
};

// Draws the operations of a run over records 0 to records - 1 (those that the load has left; what
// the run inserts is not read by name, though scans come across it). Not thread-safe: one per
// thread.
class OperationSource {
 public:
  OperationSource(const Workload& workload, Distribution distribution, uint64_t records,
                  uint64_t seed, const InsertShare& inserts = {});

  Operation Next();

 private:
  uint64_t NextRecord();

  Random random_;
  Distribution distribution_;
  uint64_t records_;
  ScrambledZipfian zipfian_;
  // A uniform number in [0, 1) below the first of these that it is below is that kind of operation;
  // one that is below none is a scan.
  double read_below_;
  double update_below_;
  double insert_below_;
  uint64_t next_insert_;
  uint64_t insert_step_;
};

}  // namespace verbena::bench
