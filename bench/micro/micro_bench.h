// What the microbenchmarks have in common.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/config.h"
#include "common/layout/item.h"

namespace verbena::bench {

inline constexpr uint64_t kRecords = 100'000;
inline constexpr size_t kValueSize = 100;

inline Config SomeConfig() {
  Config config;
  config.workload = *FindWorkload("b");
  config.records = kRecords;
  config.value_size = kValueSize;
  config.depth = 16;
  return config;
}

}  // namespace verbena::bench
