// Histories of what client processes do, recorded in memory that they share with the test.
//
// Time is cut into stretches: all clients record one, and only when each of them has the answers to
// all that it has asked does the next one begin. While they record it, in other memory, the test
// checks the one before. So the length of a run is bounded by time, not by memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/linearizability/register_model.h"

namespace verbena::testing {

// Counters of one client process, as of the end of its last stretch.
struct ClientCounters {
  std::atomic<uint64_t> reads{0};  // RDMA READs of all kinds
  std::atomic<uint64_t> read_retries{0};
  std::atomic<uint64_t> rpc_gets{0};
  std::atomic<uint64_t> changes{0};
  std::atomic<uint64_t> gets_into{0};  // GetInto, with a copy or without
  std::atomic<uint64_t> batched{0};    // operations of MultiGet and MultiPut
};

// The memory. What it says of its layout is fixed before the clients are forked. Thread-safe, and
// process-safe.
class Recording {
 public:
  // What happens when a client has recorded its `capacity` of a stretch.
  enum class WhenFull { kAllEnd, kOthersGoOn };

  // For `clients` processes which record at most `capacity` operations each in a stretch.
  Recording(uint32_t clients, uint32_t capacity, WhenFull when_full);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  uint32_t clients() const { return clients_; }
  ClientCounters& counters(uint32_t client) { return shares_[client].counters; }

  // --- The test's side. ---

  // Lets the clients connect to `address` and record stretch 0.
  void Begin(const std::string& address);
  // Before the fork: the client waits for Admit and begins with the stretch that is recorded then.
  void HoldBack(uint32_t client) { shares_[client].held.store(true); }
  void Admit(uint32_t client) { shares_[client].held.store(false); }
  // No client waits for this one any more, since it has been killed.
  void GiveUpOn(uint32_t client) { shares_[client].arrived.store(~uint32_t{0}); }
  // Whether all clients are through with `stretch`.
  bool Ended(uint32_t stretch) const;
  // Lets the clients record stretch `stretch`, in place of `stretch - 2`.
  void Next(uint32_t stretch) { header_->stretch.store(stretch); }
  // Makes the clients end the stretch that they record.
  void EndStretch() { header_->ended.store(header_->stretch.load() + 1); }
  // Makes the clients end.
  void Stop();
  // How much a client has recorded in a stretch so far.
  uint32_t CountOf(uint32_t client, uint32_t stretch) const {
    const Share& share = shares_[client];
    if (share.stretches[stretch % kBuffers].load() != stretch + 1) return 0;
    return share.counts[stretch % kBuffers].load(std::memory_order_acquire);
  }
  // Everything that was recorded in a stretch.
  std::vector<linearizability::Operation> Operations(uint32_t stretch) const;

  // --- A client's side. ---

  // Waits until `*stretch` or a later one is to be recorded, and tells which. False if the client
  // shall end.
  bool Await(uint32_t client, uint32_t* stretch);
  const char* address() const { return header_->address; }
  // The client has recorded all of `stretch`.
  void Arrive(uint32_t client, uint32_t stretch) { shares_[client].arrived.store(stretch + 1); }
  bool StretchGoesOn(uint32_t client, uint32_t stretch) const {
    return header_->ended.load(std::memory_order_relaxed) <= stretch && !header_->stop.load() &&
           CountOf(client, stretch) < capacity_;
  }
  // A place for one more operation, which is kept as it is given, that is with the outcome unknown,
  // if the process is killed from here on. The stretch must be going on.
  linearizability::Operation* Record(uint32_t client, uint32_t stretch,
                                     const linearizability::Operation& operation);
  // Ends it, once all but the outcome has been filled in.
  static void Finish(linearizability::Operation* operation, linearizability::Outcome outcome);

 private:
  static constexpr uint32_t kBuffers = 2;

  struct Header {
    char address[64] = "";
    std::atomic<bool> begun{false};
    std::atomic<bool> stop{false};
    std::atomic<uint32_t> stretch{0};
    // Stretches below this one are to be ended.
    std::atomic<uint32_t> ended{0};
  };
  struct alignas(64) Share {
    std::atomic<bool> held{false};
    std::atomic<uint32_t> arrived{0};  // stretches that are through
    // What each buffer holds: how many operations of which stretch, counted from 1.
    std::atomic<uint32_t> counts[kBuffers] = {};
    std::atomic<uint32_t> stretches[kBuffers] = {};
    ClientCounters counters;
  };

  linearizability::Operation* OperationsOf(uint32_t client, uint32_t stretch) const {
    return operations_ + (size_t{client} * kBuffers + stretch % kBuffers) * capacity_;
  }

  uint32_t clients_;
  uint32_t capacity_;
  WhenFull when_full_;
  size_t bytes_ = 0;
  void* memory_ = nullptr;
  Header* header_ = nullptr;
  Share* shares_ = nullptr;
  linearizability::Operation* operations_ = nullptr;
};

}  // namespace verbena::testing
