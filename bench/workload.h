// What a run does: the mix of operations and the choice of records.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "bench/random.h"
#include "bench/zipfian.h"

namespace verbena::bench {

enum class OpKind : uint8_t { kRead, kUpdate, kInsert };
inline constexpr size_t kOpKinds = 3;
// As in reports: "read", "update", "insert".
const char* OpKindName(OpKind kind);
constexpr size_t Index(OpKind kind) { return static_cast<size_t>(kind); }

enum class Distribution { kZipfian, kUniform };
const char* DistributionName(Distribution distribution);

// A YCSB core workload: how likely each kind of operation is.
struct Workload {
  char name = 'a';
  std::array<double, kOpKinds> proportion{};
  const char* description = "";
};

// "a", "b" or "c", in either case; nullopt for others.
std::optional<Workload> FindWorkload(std::string_view name);
// All of them, for help texts.
std::array<Workload, 3> AllWorkloads();

struct Operation {
  OpKind kind = OpKind::kRead;
  uint64_t record = 0;
};

// Draws the operations of a run over records 0 to records - 1. Not thread-safe: one per thread.
class OperationSource {
 public:
  OperationSource(const Workload& workload, Distribution distribution, uint64_t records,
                  uint64_t seed);

  Operation Next();

 private:
  uint64_t NextRecord();

  Random random_;
  Distribution distribution_;
  uint64_t records_;
  ScrambledZipfian zipfian_;
  double read_below_;  // a uniform number below this is a read, else an update
};

}  // namespace verbena::bench
