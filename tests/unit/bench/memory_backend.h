// A store in this process, for tests of the generator: answers at the next poll.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "bench/backend.h"

namespace verbena::bench {

// What several MemoryBackends share.
struct MemoryStore {
  std::mutex mutex;
  std::map<std::string, std::string, std::less<>> map;
};

class MemoryBackend : public Backend {
 public:
  explicit MemoryBackend(MemoryStore* store) : store_(store) {}

  absl::Status SubmitRead(uint32_t slot, std::string_view key) override {
    if (status_.ok()) pending_.push_back({slot, true, key, {}});
    return status_;
  }
  absl::Status SubmitWrite(uint32_t slot, std::string_view key, std::string_view value) override {
    if (status_.ok()) pending_.push_back({slot, false, key, value});
    return status_;
  }
  int Poll() override {
    if (before_poll) before_poll();
    if (!status_.ok()) return 0;
    // What callbacks submit is answered by the next poll.
    std::deque<Pending> batch;
    batch.swap(pending_);
    for (const Pending& operation : batch) Answer(operation);
    return static_cast<int>(batch.size());
  }
  int Wait(std::chrono::nanoseconds) override { return Poll(); }
  absl::Status status() const override { return status_; }

  void Break(absl::Status status) { status_ = std::move(status); }
  // Answers what is still pending, as a connection does when it is closed.
  void AnswerLate() {
    for (const Pending& operation : pending_) Answer(operation);
    pending_.clear();
  }
  std::function<void()> before_poll;

 private:
  struct Pending {
    uint32_t slot;
    bool is_read;
    std::string_view key;
    std::string_view value;
  };

  void Answer(const Pending& operation) {
    if (sink_ == nullptr) return;
    std::string value;
    bool found = true;
    {
      std::lock_guard lock(store_->mutex);
      if (operation.is_read) {
        const auto at = store_->map.find(operation.key);
        found = at != store_->map.end();
        if (found) value = at->second;
      } else {
        store_->map[std::string(operation.key)] = operation.value;
      }
    }
    if (operation.is_read) {
      sink_->OnRead(operation.slot, found ? absl::OkStatus() : absl::NotFoundError("absent"),
                    value);
    } else {
      sink_->OnWrite(operation.slot, absl::OkStatus());
    }
  }

  MemoryStore* store_;
  absl::Status status_;
  std::deque<Pending> pending_;
};

}  // namespace verbena::bench
