// A store in this process, for tests of the generator: answers at the next poll.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bench/systems/backend.h"

namespace verbena::bench {

// What several MemoryBackends share.
struct MemoryStore {
  std::mutex mutex;
  std::map<std::string, std::string, std::less<>> map;
  std::map<std::string, std::chrono::seconds> ttls;
};

class MemoryBackend : public Backend {
 public:
  explicit MemoryBackend(MemoryStore* store) : store_(store) {}

  absl::Status SubmitRead(uint32_t slot, std::string_view key) override {
    if (status_.ok()) pending_.push_back({slot, Kind::kRead, key, {}});
    return status_;
  }
  absl::Status SubmitWrite(uint32_t slot, std::string_view key, std::string_view value) override {
    if (status_.ok()) pending_.push_back({slot, Kind::kWrite, key, value});
    return status_;
  }
  // Times to live are noted, and nothing goes.
  absl::Status SubmitWriteWith(uint32_t slot, std::string_view key, std::string_view value,
                               const WriteOptions& options) override {
    if (status_.ok()) {
      pending_.push_back({slot, Kind::kWrite, key, value, 0, options.condition});
      std::lock_guard lock(store_->mutex);
      store_->ttls[std::string(key)] = options.ttl;
    }
    return status_;
  }
  absl::Status SubmitDelete(uint32_t slot, std::string_view key) override {
    if (status_.ok()) pending_.push_back({slot, Kind::kDelete, key, {}});
    return status_;
  }
  absl::Status SubmitScan(uint32_t slot, std::string_view start, std::string_view prefix,
                          uint32_t count) override {
    if (status_.ok()) pending_.push_back({slot, Kind::kScan, start, prefix, count});
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
  std::function<void(std::vector<ScannedRecord>&)> alter_scan;

 private:
  enum class Kind { kRead, kWrite, kDelete, kScan };
  struct Pending {
    uint32_t slot;
    Kind kind;
    std::string_view key;
    std::string_view value;  // kScan: the prefix
    uint32_t count = 0;
    WriteOptions::Condition condition = WriteOptions::Condition::kNone;
  };

  void Answer(const Pending& operation) {
    if (sink_ == nullptr) return;
    if (operation.kind == Kind::kScan) return AnswerScan(operation);
    const bool is_read = operation.kind == Kind::kRead;
    std::string value;
    bool found = true;
    absl::Status refused = absl::NotFoundError("absent");
    {
      std::lock_guard lock(store_->mutex);
      if (is_read) {
        const auto at = store_->map.find(operation.key);
        found = at != store_->map.end();
        if (found) value = at->second;
      } else if (operation.kind == Kind::kDelete) {
        const auto at = store_->map.find(operation.key);
        found = at != store_->map.end();
        if (found) store_->map.erase(at);
      } else {
        const bool there = store_->map.contains(operation.key);
        if (operation.condition == WriteOptions::Condition::kIfAbsent && there) {
          found = false;
          refused = absl::AlreadyExistsError("present");
        } else if (operation.condition == WriteOptions::Condition::kIfPresent && !there) {
          found = false;
        } else {
          store_->map[std::string(operation.key)] = operation.value;
        }
      }
    }
    if (is_read) {
      sink_->OnRead(operation.slot, found ? absl::OkStatus() : absl::NotFoundError("absent"),
                    value);
    } else {
      sink_->OnWrite(operation.slot, found ? absl::OkStatus() : refused);
    }
  }

  void AnswerScan(const Pending& operation) {
    std::map<std::string, std::string> found;
    {
      std::lock_guard lock(store_->mutex);
      for (auto at = store_->map.lower_bound(operation.key);
           at != store_->map.end() && at->first.starts_with(operation.value) &&
           found.size() < operation.count;
           ++at) {
        found.insert(*at);
      }
    }
    std::vector<ScannedRecord> records;
    for (const auto& [key, value] : found) records.push_back({key, value});
    if (alter_scan) alter_scan(records);
    sink_->OnScan(operation.slot, absl::OkStatus(), records);
  }

  MemoryStore* store_;
  absl::Status status_;
  std::deque<Pending> pending_;
};

}  // namespace verbena::bench
