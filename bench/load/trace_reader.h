// Reads a trace ahead of the threads that replay it, in a thread of its own, so that a pipe with
// nothing in it holds up nobody. The memory is bounded, however long the trace and its lines are.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/measure/ticks.h"
#include "bench/workload/trace.h"
#include "common/base/unique_fd.h"

namespace verbena::bench {

struct TraceOptions {
  std::string path;     // a file or a pipe; /dev/stdin for what zstd -dc and the like write
  double speed = 0;     // so many times faster than the timestamps; 0: as fast as possible
  bool strict = false;  // the first bad line is the end
  uint64_t limit = 0;   // so many requests of it; 0: all
};

// What has become of a trace.
struct TraceFacts {
  uint64_t lines = 0;                // read so far, empty ones not counted
  uint64_t requests = 0;             // that threads have begun
  uint64_t bad_lines = 0;            // that were passed over, or the one that ended it
  std::vector<std::string> reasons;  // of the first kReasons of them: "line 7: ..."
  bool stopped = false;              // by a bad line, as `strict` has it
  std::string unreadable;            // why it could not be read to its end; empty: it could

  static constexpr size_t kReasons = 10;
};

// Requests that a thread has taken to work on. Not thread-safe.
class TraceBatch {
 public:
  bool empty() const { return next_ == requests_.size(); }
  // The next one; not where it is empty.
  TraceRequest& front() { return requests_[next_]; }
  void Pop() { ++next_; }
  size_t size() const { return requests_.size() - next_; }
  // Time 0 of TraceRequest::due_nanos, for all threads the same: when the first batch was taken.
  int64_t begin_ticks() const { return begin_ticks_; }

 private:
  friend class TraceReader;

  std::vector<TraceRequest> requests_;
  size_t next_ = 0;
  int64_t begin_ticks_ = 0;
};

// Deals the requests of a trace out to the threads, in their order. Thread-safe.
class TraceReader {
 public:
  enum class Taken : uint8_t {
    kSome,
    kNothingYet,  // there may be more later
    kOver,
  };

  // InvalidArgument, which names --trace, if there is nothing to be read.
  static absl::StatusOr<std::unique_ptr<TraceReader>> Open(TraceOptions options);
  // Does not wait for a pipe.
  ~TraceReader();

  // Of a thread that stops before it has replayed all of them.
  void GiveBack(const TraceBatch& batch);

  // Fills an empty batch. Never waits for the file.
  Taken Take(TraceBatch* batch);
  // Waits until Take has something else to say than kNothingYet, or for `time`.
  void Await(std::chrono::nanoseconds time);

  // Whether the threads have taken all that there is so far, and the file may have more.
  bool starved() const;
  TraceFacts facts() const;
  double speed() const { return options_.speed; }

 private:
  // Requests that a thread takes at a time: few, so that threads do not get far from each other.
  static constexpr size_t kBatch = 64;
  // Batches that are kept ready.
  static constexpr size_t kReady = 64;

  TraceReader(TraceOptions options, UniqueFd file)
      : options_(std::move(options)), file_(std::move(file)) {}

  // What the thread does.
  void Read();
  bool AwaitFile();
  void TakeBytes(std::string_view bytes);
  void TakeLine(std::string_view line);
  void TakeRequest();
  void BadLine(std::string_view reason);
  void Deliver();

  const TraceOptions options_;
  const TickClock clock_;

  // Of the thread alone.
  UniqueFd file_;
  std::string line_;  // the beginning of a line whose end was not read yet
  bool line_too_long_ = false;
  uint64_t number_ = 0;  // of lines, empty ones too
  uint64_t lines_ = 0;   // without these
  uint64_t requests_ = 0;
  double first_seconds_ = -1;
  int64_t last_due_ = 0;
  bool ended_ = false;  // nothing more is wanted
  std::vector<TraceRequest> filling_;
  size_t filled_ = 0;

  std::atomic<bool> abandoned_{false};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by the mutex.
  std::deque<std::vector<TraceRequest>> ready_;
  std::vector<std::vector<TraceRequest>> spare_;  // to be filled anew, with the room they have
  bool over_ = false;                             // nothing will be added to `ready_`
  int64_t begin_ticks_ = 0;
  TraceFacts facts_;

  std::thread thread_;
};

}  // namespace verbena::bench
