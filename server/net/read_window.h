// How much of a large value is READ at once from one client: a window, as TCP has one.
//
// A READ is answered with a packet for each MTU, and where one of them is lost many adapters ask
// for all that follows once more, when the ack timeout is over (go back N). What the peer was still
// sending is then in the way of what is asked for, and is asked for again before it has come: with
// much in flight nothing may get through for as long as the retries last, and the connection fails.
// A window that is small where packets are lost, or where a link is shared by many, costs nothing
// there, and one that is large elsewhere keeps the link busy.
//
// The adapter does not say that it has repeated something, but the READ then takes about an ack
// timeout. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>

#include "server/net/queue_plan.h"

namespace verbena::net {

class ReadWindow {
 public:
  // Bytes. A READ of the least is 4 packets of 4 KiB, 16 of 1 KiB: at a loss of 2 % most get
  // through.
  static constexpr uint64_t kLeast = 16 * 1024;
  static constexpr uint64_t kFirst = 4 * kLeast;
  static constexpr uint64_t kMost = kReadsInFlight * kReadPiece;

  // `ack_timeout` is the code of the connection (verbs::ConnectOptions). A READ that takes more
  // than half of that time was repeated, or waits behind too much else; but whatever is set, 10 ms
  // are not too long (a full window takes 8 ms at 1 Gbit/s), and 100 ms are.
  explicit ReadWindow(uint8_t ack_timeout = 14)
      : slow_(std::clamp<int64_t>(int64_t{2048} << std::min<int>(ack_timeout, 31), 10'000'000,
                                  100'000'000)) {}

  // Bytes that may be in flight.
  uint64_t size() const { return size_; }
  // Bytes of the next READ at most: a quarter of the window, so that the next ones are under way
  // while one is worked on.
  uint64_t piece() const {
    return std::clamp(size_ / kReadsInFlight / kLeast * kLeast, kLeast, kReadPiece);
  }
  // Whether another READ may be posted beside those in flight. One may always be.
  bool HasRoom(uint64_t in_flight) const { return in_flight == 0 || in_flight + piece() <= size_; }

  // A READ of `bytes` has taken `nanos` from its posting to its completion. Doubles with each
  // window that comes through in time; halves with each that does not, however many of its READs
  // were late.
  void OnRead(uint64_t bytes, int64_t nanos) {
    if (nanos <= slow_) {
      size_ = std::min(size_ + bytes, kMost);
      late_ -= std::min(late_, bytes);
      return;
    }
    if (late_ == 0) {
      late_ = size_;
      size_ = std::max(size_ / 2, kLeast);
    }
    late_ -= std::min(late_, bytes);
  }

 private:
  int64_t slow_;  // ns
  uint64_t size_ = kFirst;
  uint64_t late_ = 0;  // bytes of a window that was late, which have not all come
};

}  // namespace verbena::net
