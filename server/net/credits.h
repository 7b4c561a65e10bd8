// Who may send how much: the grants that keep a worker's shared receive queue from running dry.
//
// A connection may have `grant` requests unanswered. It starts with 1, which is reserved for it;
// what it has beyond that is lent from the pool of its worker. So the sum of the grants never
// exceeds the depth of the receive queue. From one response to the next a grant falls by at most 1,
// which is what makes the newest grant a bound on what the server has waiting, although the client
// may not have seen it yet (common/wire/messages.h has the argument). For the same reason a message
// that answers nothing never lowers a grant: credits come back with the answers.
//
// Not thread-safe: a worker's.
#pragma once

#include <cstdint>

namespace verbena::net {

// Credits of one worker (and tenant) that are lent to busy connections.
class CreditPool {
 public:
  explicit CreditPool(uint32_t spare) : size_(spare), free_(spare) {}

  uint32_t size() const { return size_; }
  uint32_t free() const { return free_; }
  uint32_t lent() const { return size_ - free_; }
  // Little is left: connections that do not need all of theirs give some back.
  bool tight() const { return free_ < size_ / 4; }

  // As many of `wanted` as there are.
  uint32_t Take(uint32_t wanted) {
    const uint32_t taken = wanted < free_ ? wanted : free_;
    free_ -= taken;
    return taken;
  }
  void Give(uint32_t count) { free_ += count; }

 private:
  uint32_t size_;
  uint32_t free_;
};

// Credits of one connection.
class ConnectionCredits {
 public:
  // Responses in a row without a wish for more after which a grant falls by one although nobody
  // else needs it. Long, since a client that keeps its window full wishes for nothing.
  static constexpr uint32_t kQuietResponses = 1024;

  ConnectionCredits() = default;
  // `window`: the largest grant, at least 1.
  explicit ConnectionCredits(uint32_t window) : window_(window) {}

  uint32_t grant() const { return grant_; }
  uint32_t window() const { return window_; }
  // The client has fewer receives than the server's window needs.
  void LimitWindow(uint32_t window) { window_ = window < window_ ? window : window_; }
  // Requests that have arrived and are not answered.
  uint32_t unanswered() const { return unanswered_; }

  // A request has arrived. False if it is beyond the grant (it is then not counted).
  bool OnRequest() {
    if (unanswered_ >= grant_) return false;
    ++unanswered_;
    return true;
  }

  // The grant to send with the answer to a request; `wanted` as in that request.
  uint32_t OnResponse(CreditPool& pool, uint32_t wanted);
  // The connection's receives are not used any more: gives everything lent back.
  void Close(CreditPool& pool);

 private:
  void Lower(CreditPool& pool) {
    if (grant_ > 1) {
      --grant_;
      pool.Give(1);
    }
  }

  uint32_t window_ = 1;
  uint32_t grant_ = 1;
  uint32_t unanswered_ = 0;
  uint32_t quiet_ = 0;
};

}  // namespace verbena::net
