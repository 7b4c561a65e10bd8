// What a store holds and how its memory is used.
#pragma once

#include <array>
#include <cstdint>

#include "common/layout/size_class.h"

namespace verbena::storage {

// What compaction has done since the start.
struct CompactionCounters {
  uint64_t items_moved = 0;
  uint64_t bytes_moved = 0;  // headers, keys and values
  uint64_t windows_emptied = 0;
  uint64_t bytes_emptied = 0;  // of the windows
  uint64_t pages_emptied = 0;  // pages that became free by that
  uint64_t given_up = 0;       // windows of which something stayed
  // Of allocations that came while another thread was at it: those for large items that found it at
  // a large window and did without, the large windows that were given up for others, and the most
  // bytes that others moved while one waited.
  uint64_t turned_away = 0;
  uint64_t gave_way = 0;
  uint64_t most_waited_bytes = 0;
};

// A snapshot. Counters of different workers are read one after the other, so that a snapshot taken
// during changes may be off by the changes in flight.
struct StoreStats {
  uint64_t items = 0;
  uint64_t live_bytes = 0;  // keys and values
  uint64_t used_bytes = 0;  // index_bytes + block_bytes: what the items cost, index included

  uint64_t index_bytes = 0;  // region header, directory and segments
  uint64_t block_bytes = 0;  // blocks in use with their rounding, runs as whole 16-byte units

  uint64_t slice_bytes = 0;  // the whole slice
  uint64_t heap_pages = 0;   // 1 MiB each: free, segments', slabs' and runs' pages
  uint64_t free_pages = 0;
  uint64_t segment_pages = 0;
  uint64_t slab_pages = 0;
  uint64_t run_pages = 0;
  // Bytes given to each size class: whole pages and what was left over elsewhere.
  std::array<uint64_t, layout::kSizeClasses> class_bytes{};
  // Blocks in use of each size class: of items, of values that are being written, and of those that
  // are kept for their readers.
  std::array<uint64_t, layout::kSizeClasses> class_blocks{};
  uint64_t left_over_bytes = 0;  // in pages that are not free, for slabs of any class
  CompactionCounters compaction;

  uint64_t segments = 0;
  uint64_t splits = 0;
  uint64_t overflow_buckets = 0;    // in use
  uint64_t failed_allocations = 0;  // changes refused for want of memory
  uint64_t expired = 0;             // items removed when their time was over
  uint64_t timers = 0;              // items that have a time to live
  uint64_t evicted = 0;
  uint64_t touches = 0;               // reads that clients have told of
  uint64_t eviction_memory = 0;       // bytes outside the slice, at most
  uint64_t ordered_keys = 0;          // in the ordered index
  uint64_t ordered_index_memory = 0;  // bytes outside the slice
  uint64_t overdue = 0;               // of the timers, due and not yet removed
  uint64_t expiry_memory = 0;         // bytes outside the slice
  int64_t expiry_lateness = 0;        // ns; see Expiry::Lateness

  uint64_t pins = 0;
  uint64_t pinned_bytes = 0;  // of items that are replaced or gone; in block_bytes, rounded
  double mean_fill = 0;       // items / slots of all primary buckets
};

}  // namespace verbena::storage
