#include "tests/integration/recording_client.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "tests/integration/fabric_under_test.h"
#include "verbena/connection.h"

namespace verbena::testing {
namespace {

using linearizability::Condition;
using linearizability::Kind;
using linearizability::Operation;
using linearizability::Outcome;
using linearizability::ValueId;

// The keys that everybody works on.
constexpr uint32_t kHotKeys = 24;
// Behind them come keys that fill the index such that its segments split: a few at first, then more
// with each stretch, and each one changed now and then.
constexpr uint32_t kFillersAtFirst = 1000;
constexpr uint32_t kMoreFillers = 1000;
constexpr uint32_t kMostFillers = 60'000;
// One in so many operations is of a filler.
constexpr uint32_t kFillerEvery = 5;

// Sizes such that changes are made in place, in other blocks of many classes, and by reference.
size_t RandomSize(bool hot, std::minstd_rand& random) {
  if (!hot) return 10 + random() % 200;
  const auto kind = random() % 64;
  if (kind == 0) return 20'000;
  if (kind < 8) return 64 + random() % 4000;
  if (kind < 32) return 1 + random() % 300;
  return 150;
}

class RecordingClient {
 public:
  RecordingClient(Recording& recording, uint32_t number, const ClientRole& role)
      : recording_(recording), number_(number), role_(role), random_(number + 1) {
    values_.resize(role.depth);
    for (uint32_t i = 0; i < role.depth; ++i) free_.push_back(i);
  }

  void Run() {
    for (uint32_t stretch = 0; recording_.Await(number_, &stretch); ++stretch) {
      if (connection_ == nullptr) Connect();
      fillers_ = std::min(kMostFillers, kFillersAtFirst + stretch * kMoreFillers);
      while (recording_.StretchGoesOn(number_, stretch)) {
        if (free_.empty()) {
          connection_->Wait(std::chrono::seconds(1));
        } else {
          SubmitOne(stretch);
        }
      }
      connection_->Drain();
      PublishCounters();
      recording_.Arrive(number_, stretch);
    }
  }

 private:
  [[noreturn]] void Fail(const std::string& what) {
    std::cerr << "client " << number_ << ": " << what << std::endl;
    _exit(1);
  }

  void Connect() {
    Options options;
    options.fabric = FabricName();
    options.connect_timeout = std::chrono::seconds(60);
    options.operation_timeout = std::chrono::seconds(60);
    options.cache_bytes = role_.cache_bytes;
    options.depth = role_.depth;
    auto connection = Connection::Connect(recording_.address(), options);
    if (!connection.ok()) Fail(connection.status().ToString());
    connection_ = std::move(*connection);
  }

  void PublishCounters() {
    const ConnectionStats& stats = connection_->stats();
    ClientCounters& counters = recording_.counters(number_);
    counters.reads.store(stats.reads);
    counters.read_retries.store(stats.read_retries);
    counters.rpc_gets.store(stats.rpc_gets);
    counters.changes.store(stats.changes);
  }

  uint32_t RandomKey() {
    const bool filler = random_() % kFillerEvery == 0;
    return static_cast<uint32_t>(filler ? kHotKeys + random_() % fillers_ : random_() % kHotKeys);
  }

  // A text that no other change of any client stores.
  std::string RandomValue(uint32_t key) {
    const std::string stamp = absl::StrCat("<", number_, ".", ++changes_, ">");
    const size_t size = std::max(RandomSize(key < kHotKeys, random_), stamp.size());
    std::string value;
    value.reserve(size + stamp.size());
    while (value.size() < size) value += stamp;
    return value;
  }

  void SubmitOne(uint32_t stretch) {
    Operation operation;
    operation.process = number_;
    operation.key = RandomKey();
    const uint32_t slot = free_.back();
    if (random_() % 1000 >= role_.changes_in_1000) {
      operation.kind = Kind::kGet;
    } else if (random_() % 8 == 0) {
      operation.kind = Kind::kDelete;
    } else {
      operation.kind = Kind::kPut;
      values_[slot] = RandomValue(operation.key);
      operation.value = ValueId::Of(values_[slot]);
    }
    free_.pop_back();
    operation.invoked = MonotonicNanos();
    Submit(recording_.Record(number_, stretch, operation), slot);
  }

  void Submit(Operation* operation, uint32_t slot) {
    const std::string key = absl::StrCat("consistency-key-", operation->key);
    absl::Status status;
    const auto on_change = [this, operation, slot](const absl::Status& outcome,
                                                   const ChangeResult& result) {
      OnChange(operation, slot, outcome, result);
    };
    switch (operation->kind) {
      case Kind::kGet:
        status = connection_->SubmitGet(
            key, [this, operation, slot](const absl::Status& outcome, const GetResult& result) {
              OnGet(operation, slot, outcome, result);
            });
        break;
      case Kind::kDelete:
        status = connection_->SubmitDelete(key, on_change);
        break;
      default:
        status = connection_->SubmitPut(key, values_[slot], on_change);
        break;
    }
    if (!status.ok()) Fail(ToString(*operation) + ": " + status.ToString());
  }

  void OnGet(Operation* operation, uint32_t slot, const absl::Status& status,
             const GetResult& result) {
    operation->returned = MonotonicNanos();
    if (status.ok()) {
      operation->value = ValueId::Of(result.value);
      operation->version = result.version;
    }
    Finish(operation, slot, status);
  }

  void OnChange(Operation* operation, uint32_t slot, const absl::Status& status,
                const ChangeResult& result) {
    operation->returned = MonotonicNanos();
    operation->version = result.version;
    operation->existed = result.existed;
    Finish(operation, slot, status);
  }

  void Finish(Operation* operation, uint32_t slot, const absl::Status& status) {
    Recording::Finish(operation, OutcomeOf(*operation, status));
    free_.push_back(slot);
  }

  Outcome OutcomeOf(const Operation& operation, const absl::Status& status) {
    switch (status.code()) {
      case absl::StatusCode::kOk:
        return Outcome::kOk;
      case absl::StatusCode::kNotFound:
        return Outcome::kNotFound;
      case absl::StatusCode::kAborted:  // a large value that changed each time it was read
        if (operation.kind == Kind::kGet) return Outcome::kRefused;
        break;
      default:
        break;
    }
    Fail(ToString(operation) + ": " + status.ToString());
  }

  Recording& recording_;
  const uint32_t number_;
  const ClientRole role_;
  std::minstd_rand random_;
  std::unique_ptr<Connection> connection_;
  uint32_t fillers_ = 0;
  uint64_t changes_ = 0;
  // Places for operations in flight, with the values that are borrowed until the callback.
  std::vector<std::string> values_;
  std::vector<uint32_t> free_;
};

}  // namespace

void RunRecordingClient(Recording& recording, uint32_t number, const ClientRole& role) {
  RecordingClient(recording, number, role).Run();
}

}  // namespace verbena::testing
