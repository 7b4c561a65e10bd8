// Traces of caches, in the form of Twitter's (github.com/twitter/cache-trace): a line for each
// request, with commas between
//
//   timestamp in seconds, anonymised key, key size, value size, client, operation, TTL in seconds
//
// Fields may be quoted as in RFC 4180 ("a,b", and "" for a quote).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace verbena::bench {

// get and gets; set; add, replace and cas, which store under a condition; append and prepend; incr
// and decr; delete.
enum class TraceOp : uint8_t { kRead, kStore, kAdd, kReplace, kExtend, kCount, kDelete };

// A request of a trace. A value.
struct TraceRequest {
  double seconds = 0;       // the timestamp
  std::string key;          // as it goes to the store: padded with zeros in front to the key size
  uint64_t value_size = 0;  // bytes; kExtend: those that are added
  TraceOp op = TraceOp::kRead;
  uint32_t ttl_seconds = 0;  // 0: for ever
  int64_t due_nanos = 0;     // since the run's begin; 0 where it is as fast as possible
};

// Bytes of the longest line that a request can have: none of a trace comes near it.
inline constexpr size_t kMaxTraceLine = 4096;

// Replaces `*request`, but for due_nanos, by what the line (without its end) says. InvalidArgument
// says what is wrong with it; `*request` is unspecified then.
absl::Status ParseTraceLine(std::string_view line, TraceRequest* request);

}  // namespace verbena::bench
