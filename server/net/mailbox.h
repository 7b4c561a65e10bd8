// Messages from one thread to another that sleeps on a file descriptor.
//
// Post may be called by any thread; fd, Clear and Take belong to the thread that receives. A
// receiver that polls instead of sleeping asks pending(), which costs a load.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "common/base/unique_fd.h"

namespace verbena::net {

template <typename Message>
class Mailbox {
 public:
  Mailbox() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  // False if the descriptor could not be made.
  bool valid() const { return event_.valid(); }
  // Readable when there are messages.
  int fd() const { return event_.get(); }
  bool pending() const { return pending_.load(std::memory_order_acquire); }

  void Post(Message message) {
    {
      const std::lock_guard lock(mutex_);
      messages_.push_back(std::move(message));
      pending_.store(true, std::memory_order_release);
    }
    const uint64_t one = 1;
    // Fails only if the count would overflow, and then the descriptor is readable anyway.
    [[maybe_unused]] const ssize_t written = write(event_.get(), &one, sizeof(one));
  }

  // All messages, oldest first.
  std::vector<Message> Take() {
    uint64_t count;
    [[maybe_unused]] const ssize_t got = read(event_.get(), &count, sizeof(count));
    const std::lock_guard lock(mutex_);
    pending_.store(false, std::memory_order_relaxed);
    return std::exchange(messages_, {});
  }

 private:
  UniqueFd event_;
  std::mutex mutex_;
  std::vector<Message> messages_;
  std::atomic<bool> pending_{false};
};

}  // namespace verbena::net
