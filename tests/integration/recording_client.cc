#include "tests/integration/recording_client.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <span>
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
// One in so many gets is a GetInto, into memory that is too small for a few of the values.
constexpr uint32_t kGetIntoEvery = 3;
constexpr size_t kTargetBytes = 16 << 10;
// One in so many times several operations are done at once, up to kMostTogether.
constexpr uint32_t kTogetherEvery = 24;
constexpr size_t kMostTogether = 4;
// Of ballast, some 200 KB each.
constexpr int kMostRounds = 300;

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
      if (connection_ == nullptr) {
        Connect();
        if (role_.ballast_keys != 0) PutBallast();
      }
      fillers_ = std::min(kMostFillers, kFillersAtFirst + stretch * kMoreFillers);
      while (recording_.StretchGoesOn(number_, stretch)) {
        if (free_.empty()) {
          connection_->Wait(std::chrono::seconds(1));
        } else if (random_() % kTogetherEvery == 0) {
          DoSeveral(stretch);
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
    // Read when the device is first used.
    setenv("VERBENA_SOFT_READ_SPLIT", role_.read_words ? "1" : "0", 1);
    // Nine pauses a line in place of one.
    if (role_.read_words) setenv("VERBENA_SOFT_READ_PAUSE_NS", "25", 1);
    Options options;
    options.fabric = FabricName();
    options.connect_timeout = std::chrono::seconds(60);
    options.operation_timeout = std::chrono::seconds(60);
    options.cache_bytes = role_.cache_bytes;
    options.depth = role_.depth;
    auto connection = Connection::Connect(recording_.address(), options);
    if (!connection.ok()) Fail(connection.status().ToString());
    connection_ = std::move(*connection);
    targets_.resize(role_.depth * kTargetBytes);
    auto buffer = connection_->RegisterBuffer(targets_);
    if (!buffer.ok()) Fail(buffer.status().ToString());
    buffer_ = std::move(*buffer);
  }

  std::span<std::byte> TargetOf(uint32_t slot) {
    return std::span(targets_).subspan(slot * kTargetBytes, kTargetBytes);
  }

  // Small items such that segments split; then free memory is only in between those that are left,
  // and larger items need it in one piece; and there is more than fits.
  void PutBallast() {
    PutWithHoles(role_.ballast_keys);
    for (int round = 0; round < kMostRounds && !HasEvictedAndMoved(); ++round) {
      PutAll(NewBallast(50), role_.filler_bytes);
      PutWithHoles(100);
    }
  }

  bool HasEvictedAndMoved() {
    const auto info = connection_->Info();
    if (!info.ok()) Fail("ballast: " + info.status().ToString());
    const auto json = nlohmann::json::parse(*info);
    return json["eviction"]["evicted"].get<uint64_t>() > 0 &&
           json["compaction"]["items_moved"].get<uint64_t>() > 0;
  }

  // Small items, of which every fourth stays.
  void PutWithHoles(uint32_t count) {
    const std::vector<std::string> keys = NewBallast(count);
    PutAll(keys, 200);
    std::vector<std::string_view> most;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (i % 4 != 0) most.push_back(keys[i]);
    }
    const absl::Status status = connection_->MultiDelete(most);
    if (!status.ok()) Fail("ballast: " + status.ToString());
  }

  std::vector<std::string> NewBallast(uint32_t count) {
    std::vector<std::string> keys;
    for (uint32_t i = 0; i < count; ++i) keys.push_back(absl::StrCat("ballast-", ++ballast_));
    return keys;
  }

  void PutAll(const std::vector<std::string>& keys, size_t size) {
    const std::string value(size, 'b');
    std::vector<KeyValue> items;
    for (const std::string& key : keys) items.push_back({key, value});
    const absl::Status status = connection_->MultiPut(items);
    if (!status.ok()) Fail("ballast: " + status.ToString());
  }

  void PublishCounters() {
    const ConnectionStats& stats = connection_->stats();
    ClientCounters& counters = recording_.counters(number_);
    counters.reads.store(stats.reads);
    counters.read_retries.store(stats.read_retries);
    counters.rpc_gets.store(stats.rpc_gets);
    counters.changes.store(stats.changes);
    counters.gets_into.store(stats.gets_without_copy + stats.gets_copied);
    counters.batched.store(batched_);
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
    if ((operation.kind == Kind::kPut && random_() % 1000 < role_.ttl_in_1000) ||
        (operation.kind == Kind::kExpire && random_() % 2 == 0)) {
      operation.due = RandomDue(operation.invoked);
    }
    Submit(recording_.Record(number_, stretch, operation), slot);
  }

  // The server counts from when it makes the change.
  int64_t RandomDue(int64_t invoked) {
    return invoked + static_cast<int64_t>(1 + random_() % 30) * kMillisecond;
  }

  // Several gets or puts in one call, which waits for all of them: each took effect between its
  // begin and its end. Others that are in flight go on meanwhile.
  void DoSeveral(uint32_t stretch) {
    const bool puts = random_() % 1000 < role_.changes_in_1000;
    std::vector<Operation> chosen(1 + random_() % kMostTogether);
    std::vector<std::string> keys;
    std::vector<std::string> values;
    Operation common;  // what they share
    common.process = number_;
    if (puts) common.kind = Kind::kPut;
    if (puts && random_() % 4 == 0) common.condition = Condition::kIfAbsent;
    common.invoked = MonotonicNanos();
    if (puts && random_() % 1000 < role_.ttl_in_1000) common.due = RandomDue(common.invoked);
    for (Operation& operation : chosen) {
      operation = common;
      do {
        operation.key = RandomKey();
      } while (puts && !IsForPuts(operation.key));
      keys.push_back(KeyOf(operation.key));
      values.push_back(puts ? Text(RandomSize(operation.key)) : "");
      operation.value = ValueId::Of(values.back());
    }
    std::vector<Operation*> recorded;
    for (const Operation& operation : chosen) {
      if (!recording_.StretchGoesOn(number_, stretch)) break;
      recorded.push_back(recording_.Record(number_, stretch, operation));
    }
    keys.resize(recorded.size());
    batched_ += recorded.size();
    if (puts) {
      PutSeveral(recorded, keys, values);
    } else {
      GetSeveral(recorded, keys);
    }
  }

  void PutSeveral(const std::vector<Operation*>& operations, const std::vector<std::string>& keys,
                  const std::vector<std::string>& values) {
    if (operations.empty()) return;
    std::vector<KeyValue> items;
    for (size_t i = 0; i < keys.size(); ++i) items.push_back({keys[i], values[i]});
    std::vector<absl::StatusOr<ChangeResult>> results;
    const Operation& first = *operations.front();
    // The first error is among the results too.
    connection_->MultiPut(items, {.condition = ConditionOf(first), .ttl = TtlOf(first)}, &results)
        .IgnoreError();
    if (results.size() != operations.size()) Fail("MultiPut: results are missing");
    for (size_t i = 0; i < results.size(); ++i) {
      Settle(operations[i], results[i].status(), results[i].ok() ? *results[i] : ChangeResult{});
    }
  }

  void GetSeveral(const std::vector<Operation*>& operations, const std::vector<std::string>& keys) {
    const std::vector<std::string_view> views(keys.begin(), keys.end());
    std::vector<GetItem> results;
    connection_->MultiGet(views, &results).IgnoreError();
    if (results.size() != operations.size()) Fail("MultiGet: results are missing");
    for (size_t i = 0; i < results.size(); ++i) {
      const GetItem& item = results[i];
      Settle(operations[i], item.status, GetResult{.value = item.value, .version = item.version});
    }
  }

  static std::string KeyOf(uint32_t number) { return absl::StrCat("consistency-key-", number); }

  // Whether a key is for puts of texts, and not for numbers or for values that grow.
  static bool IsForPuts(uint32_t key) { return key >= kHotKeys || key % 4 > 1; }

  size_t RandomSize(uint32_t key) {
    return key < kHotKeys ? RandomHotSize(random_) : 10 + random_() % role_.filler_bytes;
  }

  // What the keys are used for follows from their numbers.
  void ChooseChange(Operation& operation, std::string& value) {
    const bool hot = operation.key < kHotKeys;
    const auto dice = random_() % 16;
    value.clear();
    operation.kind = Kind::kPut;
    if (role_.ttl_in_1000 != 0 && random_() % 8 == 0) {
      operation.kind = Kind::kExpire;
      return;
    }
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
      value = Text(RandomSize(operation.key));
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
    const std::string key = KeyOf(operation->key);
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
        status = random_() % kGetIntoEvery == 0
                     ? connection_->SubmitGetInto(key, TargetOf(slot), on_get)
                     : connection_->SubmitGet(key, on_get);
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
      case Kind::kExpire:
        status = operation->due == linearizability::kNever
                     ? connection_->SubmitPersist(key, on_change)
                     : connection_->SubmitExpire(key, *TtlOf(*operation), on_change);
        break;
    }
    if (!status.ok()) Fail(ToString(*operation) + ": " + status.ToString());
  }

  void OnGet(Operation* operation, uint32_t slot, const absl::Status& status,
             const GetResult& result) {
    Settle(operation, status, result);
    free_.push_back(slot);
  }

  void OnChange(Operation* operation, uint32_t slot, const absl::Status& status,
                const ChangeResult& result) {
    Settle(operation, status, result);
    free_.push_back(slot);
  }

  // Of a get, and of a delete that tells the value.
  void Settle(Operation* operation, const absl::Status& status, const GetResult& result) {
    operation->returned = MonotonicNanos();
    if (status.ok()) {
      operation->value = ValueId::Of(result.value);
      operation->version = result.version;
      operation->existed = operation->kind == Kind::kDelete;
    }
    Finish(operation, status);
  }

  void Settle(Operation* operation, const absl::Status& status, const ChangeResult& result) {
    operation->returned = MonotonicNanos();
    operation->version = result.version;
    operation->existed = result.existed;
    if (operation->kind == Kind::kAdd) operation->value = ValueId::OfNumber(result.number);
    Finish(operation, status);
  }

  void Finish(Operation* operation, const absl::Status& status) {
    if (operation->version != 0) versions_[operation->key] = operation->version;
    Recording::Finish(operation, OutcomeOf(*operation, status));
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
        // Else: a value that does not fit the target.
        return operation.kind == Kind::kAdd ? Outcome::kOverflow : Outcome::kRefused;
      default:
        Fail(ToString(operation) + ": " + status.ToString());
    }
  }

  Recording& recording_;
  const uint32_t number_;
  const ClientRole role_;
  std::minstd_rand random_;
  // Of each place for an operation, where GetInto reads to.
  std::vector<std::byte> targets_;
  std::unique_ptr<Connection> connection_;
  Buffer buffer_;  // of all targets
  uint32_t fillers_ = 0;
  uint64_t changes_ = 0;
  uint64_t batched_ = 0;
  uint32_t ballast_ = 0;  // keys
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
