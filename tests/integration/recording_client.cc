#include "tests/integration/recording_client.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>
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

constexpr int64_t kMillisecond = 1'000'000;
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
size_t RandomHotSize(std::minstd_rand& random) {
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
    versions_.assign(kHotKeys + kMostFillers, 1);
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

  // A text that no other change of any client stores, of `size` bytes or a little more.
  std::string Text(size_t size) {
    const std::string stamp = absl::StrCat("<", number_, ".", ++changes_, ">");
    std::string value;
    value.reserve(size + stamp.size());
    do {
      value += stamp;
    } while (value.size() < size);
    return value;
  }

  void SubmitOne(uint32_t stretch) {
    const uint32_t slot = free_.back();
    Operation operation;
    operation.process = number_;
    operation.key = RandomKey();
    if (random_() % 1000 < role_.changes_in_1000) ChooseChange(operation, values_[slot]);
    free_.pop_back();
    operation.invoked = MonotonicNanos();
    if (operation.kind == Kind::kPut && random_() % 1000 < role_.ttl_in_1000) {
      // The server counts from when it makes the change.
      operation.due = operation.invoked + static_cast<int64_t>(1 + random_() % 30) * kMillisecond;
    }
    Submit(recording_.Record(number_, stretch, operation), slot);
  }

  // What the keys are used for follows from their numbers.
  void ChooseChange(Operation& operation, std::string& value) {
    const bool hot = operation.key < kHotKeys;
    const auto dice = random_() % 16;
    value.clear();
    operation.kind = Kind::kPut;
    if (dice < 2) {
      operation.kind = Kind::kDelete;
      operation.tells_value = dice == 0;
    } else if (hot && operation.key % 4 == 0) {  // numbers, and now and then something else
      operation.kind = dice < 14 ? Kind::kAdd : Kind::kPut;
      operation.summand = static_cast<int64_t>(random_() % 9) - 4;
      if (random_() % 32 == 0) operation.summand = std::numeric_limits<int64_t>::max();
      if (dice == 14) value = absl::StrCat(random_() % 1000);
      if (dice == 15) value = Text(1);
    } else if (hot && operation.key % 4 == 1 && dice < 14) {  // values that grow
      operation.kind = Kind::kAppend;
      value = Text(1 + random_() % (dice == 13 ? 3000 : 100));
    } else {
      value = Text(hot ? RandomHotSize(random_) : 10 + random_() % role_.filler_bytes);
    }
    if (!operation.tells_value) ChooseCondition(operation);
    operation.value = ValueId::Of(value);
  }

  void ChooseCondition(Operation& operation) {
    const bool only_version = operation.kind == Kind::kDelete;
    switch (random_() % (operation.key % 4 == 2 ? 4 : 16)) {
      case 0:
        operation.condition = Condition::kIfVersion;
        operation.expected = versions_[operation.key];
        break;
      case 1:
        if (!only_version) operation.condition = Condition::kIfPresent;
        break;
      case 2:
        if (operation.kind == Kind::kPut) operation.condition = Condition::kIfAbsent;
        break;
      default:
        break;
    }
  }

  static verbena::Condition ConditionOf(const Operation& operation) {
    switch (operation.condition) {
      case Condition::kNone:
        return {};
      case Condition::kIfAbsent:
        return verbena::Condition::IfAbsent();
      case Condition::kIfPresent:
        return verbena::Condition::IfPresent();
      case Condition::kIfVersion:
        return verbena::Condition::IfVersion(operation.expected);
    }
    return {};
  }

  static std::optional<std::chrono::milliseconds> TtlOf(const Operation& operation) {
    if (operation.due == linearizability::kNever) return std::nullopt;
    return std::chrono::milliseconds((operation.due - operation.invoked) / kMillisecond);
  }

  void Submit(Operation* operation, uint32_t slot) {
    const std::string key = absl::StrCat("consistency-key-", operation->key);
    const std::string& value = values_[slot];
    const verbena::Condition condition = ConditionOf(*operation);
    const auto on_change = [this, operation, slot](const absl::Status& outcome,
                                                   const ChangeResult& result) {
      OnChange(operation, slot, outcome, result);
    };
    const auto on_get = [this, operation, slot](const absl::Status& outcome,
                                                const GetResult& result) {
      OnGet(operation, slot, outcome, result);
    };
    absl::Status status;
    switch (operation->kind) {
      case Kind::kGet:
        status = connection_->SubmitGet(key, on_get);
        break;
      case Kind::kPut:
        status = connection_->SubmitPut(key, value, on_change,
                                        {.condition = condition, .ttl = TtlOf(*operation)});
        break;
      case Kind::kDelete:
        status = operation->tells_value ? connection_->SubmitGetAndDelete(key, on_get)
                                        : connection_->SubmitDelete(key, on_change, condition);
        break;
      case Kind::kAdd:
        status = connection_->SubmitAdd(key, operation->summand, on_change, condition);
        break;
      case Kind::kAppend:
        status = connection_->SubmitAppend(key, value, on_change, condition);
        break;
    }
    if (!status.ok()) Fail(ToString(*operation) + ": " + status.ToString());
  }

  // Of a get, and of a delete that tells the value.
  void OnGet(Operation* operation, uint32_t slot, const absl::Status& status,
             const GetResult& result) {
    operation->returned = MonotonicNanos();
    if (status.ok()) {
      operation->value = ValueId::Of(result.value);
      operation->version = result.version;
      operation->existed = operation->kind == Kind::kDelete;
    }
    Finish(operation, slot, status);
  }

  void OnChange(Operation* operation, uint32_t slot, const absl::Status& status,
                const ChangeResult& result) {
    operation->returned = MonotonicNanos();
    operation->version = result.version;
    operation->existed = result.existed;
    if (operation->kind == Kind::kAdd) operation->value = ValueId::OfNumber(result.number);
    Finish(operation, slot, status);
  }

  void Finish(Operation* operation, uint32_t slot, const absl::Status& status) {
    if (operation->version != 0) versions_[operation->key] = operation->version;
    Recording::Finish(operation, OutcomeOf(*operation, status));
    free_.push_back(slot);
  }

  Outcome OutcomeOf(const Operation& operation, const absl::Status& status) {
    switch (status.code()) {
      case absl::StatusCode::kOk:
        return Outcome::kOk;
      case absl::StatusCode::kNotFound:
        return Outcome::kNotFound;
      case absl::StatusCode::kAlreadyExists:
        return Outcome::kExists;
      case absl::StatusCode::kAborted:
        // Else: a large value that changed each time it was read.
        return operation.condition == Condition::kIfVersion ? Outcome::kOtherVersion
                                                            : Outcome::kRefused;
      case absl::StatusCode::kFailedPrecondition:
        return Outcome::kNotANumber;
      case absl::StatusCode::kOutOfRange:
        return Outcome::kOverflow;
      default:
        Fail(ToString(operation) + ": " + status.ToString());
    }
  }

  Recording& recording_;
  const uint32_t number_;
  const ClientRole role_;
  std::minstd_rand random_;
  std::unique_ptr<Connection> connection_;
  uint32_t fillers_ = 0;
  uint64_t changes_ = 0;
  // The version of each key that was seen last.
  std::vector<uint64_t> versions_;
  // Places for operations in flight, with the values that are borrowed until the callback.
  std::vector<std::string> values_;
  std::vector<uint32_t> free_;
};

}  // namespace

void RunRecordingClient(Recording& recording, uint32_t number, const ClientRole& role) {
  RecordingClient(recording, number, role).Run();
}

}  // namespace verbena::testing
