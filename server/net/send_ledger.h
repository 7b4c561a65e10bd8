// What a connection has in its send queue, and which response buffers hang on it.
//
// Requests complete in the order in which they were posted, and an unsignalled one has completed
// when a later signalled one has. So a completion retires everything up to its own place. Not
// thread-safe.
#pragma once

#include <cassert>
#include <cstdint>
#include <vector>

namespace verbena::net {

inline constexpr uint32_t kNoBuffer = UINT32_MAX;

class SendLedger {
 public:
  // `depth`: of the send queue, 1 to 32767.
  explicit SendLedger(uint32_t depth)
      : buffers_(depth, kNoBuffer), signal_interval_(depth / 4 > 0 ? depth / 4 : 1) {}

  uint32_t depth() const { return static_cast<uint32_t>(buffers_.size()); }
  uint32_t outstanding() const { return posted_ - retired_; }
  uint32_t free() const { return depth() - outstanding(); }
  // Completions that are still to come.
  uint32_t signalled() const { return signalled_; }

  // Notes a request that is about to be posted, with the buffer that it needs until it completes
  // (kNoBuffer: none). Returns its place, which its completion brings back; `*signal` is set if it
  // has to be signalled. Only if free() > 0.
  uint16_t Add(uint32_t buffer, bool* signal) {
    assert(free() > 0);
    const uint32_t place = posted_++;
    buffers_[place % depth()] = buffer;
    *signal = *signal || buffer != kNoBuffer || ++unsignalled_ >= signal_interval_;
    if (*signal) {
      unsignalled_ = 0;
      ++signalled_;
    }
    return static_cast<uint16_t>(place);
  }

  // The last `count` requests were not posted after all, and none will be any more:
  // release(buffer) for each.
  template <typename Release>
  void Rollback(uint32_t count, Release&& release) {
    for (; count > 0 && outstanding() > 0; --count) {
      ReleaseAt(--posted_, release);
    }
  }

  // A completion for `place` has come: release(buffer) for all up to it. False, and nothing is
  // done, if nothing outstanding has that place.
  template <typename Release>
  bool Retire(uint16_t place, Release&& release) {
    const auto ahead = static_cast<uint16_t>(place - static_cast<uint16_t>(retired_));
    if (ahead >= outstanding()) return false;
    for (uint32_t i = 0; i <= ahead; ++i) ReleaseAt(retired_++, release);
    if (signalled_ > 0) --signalled_;
    return true;
  }

  // The queue is gone: release(buffer) for all.
  template <typename Release>
  void RetireAll(Release&& release) {
    while (outstanding() > 0) ReleaseAt(retired_++, release);
  }

 private:
  template <typename Release>
  void ReleaseAt(uint32_t place, Release&& release) {
    uint32_t& buffer = buffers_[place % depth()];
    if (buffer != kNoBuffer) release(buffer);
    buffer = kNoBuffer;
  }

  std::vector<uint32_t> buffers_;  // by place modulo depth
  uint32_t signal_interval_;
  uint32_t unsignalled_ = 0;  // since the last signalled one
  uint32_t signalled_ = 0;
  uint32_t posted_ = 0;
  uint32_t retired_ = 0;
};

}  // namespace verbena::net
