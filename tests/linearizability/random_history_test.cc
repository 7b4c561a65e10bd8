// Random histories: of a key that is really changed one operation after the other, with invocations
// and answers put around these instants at random. As they are they must pass; what is altered such
// that no order explains it must not; and for short ones the verdict must be that of a search
// through all orders, whatever was altered.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/linearizability/checker.h"
#include "tests/linearizability/history_testing.h"

namespace verbena::linearizability {
namespace {

using Random = std::mt19937_64;

struct Shape {
  int operations = 0;
  uint32_t processes = 0;
  int unknown = 0;          // at most so many without an answer
  bool due = false;         // some values expire
  bool evictions = false;   // items vanish
  bool few_values = false;  // else every put's value is another one
};

// A key that is changed in earnest, with contents in place of ids.
class Key {
 public:
  Key(const Shape& shape, Random& random) : shape_(shape), random_(random) {}

  // Something happens at the instant `now`.
  Operation Act(int64_t now) {
    if (value_.has_value() && due_ <= now && random_() % 2 == 0) value_.reset();
    if (shape_.evictions && random_() % 16 == 0) value_.reset();
    Op op = Choose(now);
    if (op.kind != Kind::kGet && !Holds(op)) return op;
    switch (op.kind) {
      case Kind::kGet:
      case Kind::kDelete:
        return GetOrDelete(op);
      case Kind::kPut:
        due_ = op.due;
        return Store(op, op.kind == Kind::kPut ? chosen_ : "");
      case Kind::kAdd:
        return Sum(op);
      case Kind::kAppend:
        return Store(op, value_.value_or("") + chosen_);
      case Kind::kExpire:
        return SetDue(op);
    }
    return op;
  }

 private:
  Op Choose(int64_t now) {
    static constexpr Kind kKinds[] = {Kind::kGet, Kind::kGet, Kind::kGet,    Kind::kPut,
                                      Kind::kPut, Kind::kAdd, Kind::kAppend, Kind::kDelete};
    Op op;
    op.kind = kKinds[random_() % std::size(kKinds)];
    op.outcome = Outcome::kOk;
    if (shape_.due && random_() % 8 == 0) {
      op.kind = Kind::kExpire;
      if (random_() % 3 != 0) op.due = now + static_cast<int64_t>(random_() % 50);
      return op;
    }
    if (op.kind == Kind::kPut) {
      const uint64_t number = shape_.few_values ? random_() % 3 : ++values_;
      chosen_ = random_() % 2 == 0 ? absl::StrCat(number) : absl::StrCat("text ", number);
      if (shape_.due && random_() % 2 == 0) op.due = now + static_cast<int64_t>(random_() % 50);
    } else {
      chosen_ = absl::StrCat("+", shape_.few_values ? random_() % 2 : ++values_);
    }
    if (op.kind == Kind::kPut || op.kind == Kind::kAppend) op.value = ValueId::Of(chosen_);
    if (op.kind == Kind::kAdd) op.summand = static_cast<int64_t>(random_() % 3) - 1;
    if (op.kind == Kind::kDelete) op.tells_value = random_() % 2 == 0;
    if (op.kind == Kind::kPut && random_() % 4 == 0) op.condition = Condition::kIfAbsent;
    if (op.kind != Kind::kGet && random_() % 4 == 0) op.condition = Condition::kIfVersion;
    if (op.kind != Kind::kGet && op.kind != Kind::kDelete && random_() % 8 == 0) {
      op.condition = Condition::kIfPresent;
    }
    if (op.condition == Condition::kIfVersion) op.expected = version_ - random_() % 2;
    return op;
  }

  // Whether the condition holds; sets the answer if not.
  bool Holds(Op& op) {
    const bool exists = value_.has_value();
    if (op.condition == Condition::kIfAbsent && exists) {
      op = op.Fails(Outcome::kExists, version_);
      return false;
    }
    if (op.condition >= Condition::kIfPresent && !exists) {
      op = op.Fails(Outcome::kNotFound);
      return false;
    }
    if (op.condition == Condition::kIfVersion && op.expected != version_) {
      op = op.Fails(Outcome::kOtherVersion, random_() % 2 == 0 ? version_ : 0);
      return false;
    }
    return true;
  }

  Op GetOrDelete(Op op) {
    if (!value_.has_value()) return op.Fails(Outcome::kNotFound);
    op.version = version_;
    if (op.kind == Kind::kGet || op.tells_value) op.value = ValueId::Of(*value_);
    if (op.kind == Kind::kDelete) {
      op.existed = true;
      value_.reset();
    }
    return op;
  }

  Op Sum(Op op) {
    int64_t number = 0;
    if (value_.has_value() && (!absl::SimpleAtoi(*value_, &number) || value_->front() == '+')) {
      return op.Fails(Outcome::kNotANumber, version_);
    }
    op.value = ValueId::OfNumber(number + op.summand);
    return Store(op, absl::StrCat(number + op.summand));
  }

  Op SetDue(Op op) {
    if (!value_.has_value()) return op.Fails(Outcome::kNotFound);
    op.version = version_;
    op.existed = due_ != kNever;
    due_ = op.due;
    return op;
  }

  Op Store(Op op, const std::string& value) {
    op.existed = value_.has_value();
    if (!op.existed && op.kind != Kind::kPut) due_ = kNever;
    value_ = value;
    version_ += 1 + random_() % 2;
    op.version = version_;
    return op;
  }

  const Shape& shape_;
  Random& random_;
  std::optional<std::string> value_;
  std::string chosen_;
  int64_t due_ = kNever;
  uint64_t version_ = 1;
  uint64_t values_ = 0;
};

// One operation every kStep, by a process chosen at random.
constexpr int64_t kStep = 10;

std::vector<Operation> RandomHistory(const Shape& shape, Random& random) {
  Key key(shape, random);
  std::vector<Operation> history;
  // Of each process: the instant of its last operation, and that operation's index.
  std::vector<int64_t> instant(shape.processes, 0);
  std::vector<int> last(shape.processes, -1);
  int unknown = 0;
  for (int i = 1; i <= shape.operations; ++i) {
    const uint64_t process = random() % shape.processes;
    const int64_t now = i * kStep;
    // Between two instants of a process lie the answer to the first and the invocation of the
    // second.
    const auto between = [&] {
      return instant[process] + 1 +
             static_cast<int64_t>(random() % static_cast<uint64_t>(now - instant[process]));
    };
    const int64_t a = between();
    const int64_t b = between();
    if (last[process] >= 0) history[static_cast<size_t>(last[process])].returned = std::min(a, b);
    // Without an answer: it happens in half of the cases, and its process does nothing else.
    const bool answered = unknown == shape.unknown || random() % 8 != 0;
    Operation operation;
    if (answered || random() % 2 == 0) {
      operation = key.Act(now);
    } else {
      operation = Put("never stored", 0);
    }
    operation.process = static_cast<uint32_t>(process);
    operation.invoked = std::max(a, b);
    operation.returned = now + kStep;
    instant[process] = now;
    last[process] = static_cast<int>(history.size());
    if (!answered && operation.kind != Kind::kGet) {
      ++unknown;
      operation.outcome = Outcome::kUnknown;
      operation.version = 0;
      operation.returned = kNever;
      last[process] = -1;
    }
    history.push_back(operation);
  }
  return history;
}

absl::Status Verdict(const std::vector<Operation>& history, const Shape& shape) {
  return KeyChecker({.evictions = shape.evictions}).Add(history);
}

std::string ToString(const std::vector<Operation>& history) {
  std::string text;
  for (const Operation& operation : history) absl::StrAppend(&text, ToString(operation), "\n");
  return text;
}

// All orders, without any cleverness. `now` is the earliest time at which what comes next can take
// effect.
bool Explainable(std::span<const Operation> history, uint64_t done, const State& state, int64_t now,
                 bool evictions) {
  bool all_answered = true;
  for (size_t i = 0; i < history.size(); ++i) {
    if ((done >> i & 1) != 0) continue;
    const Operation& operation = history[i];
    if (operation.outcome != Outcome::kUnknown) all_answered = false;
    if (operation.returned < now) return false;
  }
  if (all_answered) return true;
  for (size_t i = 0; i < history.size(); ++i) {
    if ((done >> i & 1) != 0) continue;
    const std::optional<State> after = Apply(state, history[i]);
    if (after.has_value() && Explainable(history, done | uint64_t{1} << i, *after,
                                         std::max(now, history[i].invoked), evictions)) {
      return true;
    }
  }
  if (!state.present || (!evictions && state.due == kNever)) return false;
  return Explainable(history, done, Removed(state), evictions ? now : std::max(now, state.due),
                     evictions);
}

// Some answer becomes another one, which may be right all the same.
void AlterAnything(std::vector<Operation>& history, Random& random) {
  Operation& operation = history[random() % history.size()];
  const Operation& other = history[random() % history.size()];
  switch (random() % 6) {
    case 0:
      operation.version += random() % 2 == 0 ? 1 : ~uint64_t{0};
      break;
    case 1:
      operation.version = other.version;
      break;
    case 2:
      operation.value = other.value;
      break;
    case 3:
      operation.value = other.value;
      operation.version = other.version;
      break;
    case 4:
      operation.existed = !operation.existed;
      break;
    default:
      if (operation.outcome == Outcome::kUnknown) break;
      operation.outcome = operation.outcome == Outcome::kOk ? Outcome::kNotFound : Outcome::kOk;
      break;
  }
}

TEST(RandomHistories, OfARealExecutionPass) {
  Random random(1);
  const Shape shapes[] = {
      {.operations = 300, .processes = 3},
      {.operations = 300, .processes = 12},
      {.operations = 300, .processes = 8, .unknown = 6},
      {.operations = 300, .processes = 6, .due = true},
      {.operations = 300, .processes = 6, .evictions = true},
      {.operations = 300, .processes = 6, .unknown = 4, .due = true, .few_values = true},
  };
  for (int round = 0; round < 50; ++round) {
    for (const Shape& shape : shapes) {
      const std::vector<Operation> history = RandomHistory(shape, random);
      const absl::Status status = Verdict(history, shape);
      ASSERT_TRUE(status.ok()) << status << "\n" << ToString(history);
    }
  }
}

TEST(RandomHistories, LongOnesTakeLinearTime) {
  Random random(2);
  const Shape shape{.operations = 200'000, .processes = 6};
  const std::vector<Operation> history = RandomHistory(shape, random);
  const absl::Status status = Verdict(history, shape);
  EXPECT_TRUE(status.ok()) << status;
}

TEST(RandomHistories, VerdictsAreThoseOfASearchThroughAllOrders) {
  Random random(3);
  int good = 0;
  int bad = 0;
  for (int round = 0; round < 20'000; ++round) {
    const Shape shape{.operations = 7,
                      .processes = 3,
                      .unknown = round % 2,
                      .due = round % 3 == 0,
                      .evictions = round % 5 == 0,
                      .few_values = round % 4 == 0};
    std::vector<Operation> history = RandomHistory(shape, random);
    AlterAnything(history, random);
    const absl::Status status = Verdict(history, shape);
    const bool explainable = Explainable(history, 0, State(), 0, shape.evictions);
    ASSERT_EQ(status.ok(), explainable) << status << "\n" << ToString(history);
    ++(explainable ? good : bad);
  }
  // Both verdicts were put to the test.
  EXPECT_GT(good, 2000);
  EXPECT_GT(bad, 2000);
}

bool IsPlainPut(const Operation& operation) {
  return operation.kind == Kind::kPut && operation.outcome == Outcome::kOk;
}

// A get answers with what an earlier put stored and a later one, answered before the get began, has
// replaced. False if the history has no such place.
bool MakeStale(std::vector<Operation>& history, Random& random) {
  const size_t begin = random() % history.size();
  for (size_t g = begin; g < history.size(); ++g) {
    if (history[g].kind != Kind::kGet) continue;
    std::optional<Operation> newer;
    for (size_t w = g; w-- > 0;) {
      if (!IsPlainPut(history[w]) || history[w].returned >= history[g].invoked) continue;
      if (!newer.has_value()) {
        newer = history[w];
      } else if (history[w].returned < newer->invoked) {
        history[g].outcome = Outcome::kOk;
        history[g].value = history[w].value;
        history[g].version = history[w].version;
        return true;
      }
    }
  }
  return false;
}

// Two puts, one after the other, have each other's versions.
bool SwapVersions(std::vector<Operation>& history, Random& random) {
  const size_t begin = random() % history.size();
  for (size_t first = begin; first < history.size(); ++first) {
    if (!IsPlainPut(history[first])) continue;
    for (size_t second = first + 1; second < history.size(); ++second) {
      if (!IsPlainPut(history[second]) || history[second].invoked <= history[first].returned) {
        continue;
      }
      std::swap(history[first].version, history[second].version);
      return true;
    }
  }
  return false;
}

bool MakeTorn(std::vector<Operation>& history, Random& random) {
  const size_t begin = random() % history.size();
  for (size_t g = begin; g < history.size(); ++g) {
    if (history[g].kind != Kind::kGet || history[g].outcome != Outcome::kOk) continue;
    history[g].value = ValueId::Of("half of one and half of another");
    return true;
  }
  return false;
}

TEST(RandomHistories, OneAlteredAnswerIsFound) {
  Random random(4);
  const Shape shapes[] = {
      {.operations = 300, .processes = 4},
      {.operations = 300, .processes = 6, .unknown = 4},
      {.operations = 300, .processes = 6, .due = true},
      {.operations = 300, .processes = 6, .evictions = true},
  };
  int altered = 0;
  for (int round = 0; round < 100; ++round) {
    for (const Shape& shape : shapes) {
      for (const auto alter : {MakeStale, SwapVersions, MakeTorn}) {
        std::vector<Operation> history = RandomHistory(shape, random);
        if (!alter(history, random)) continue;
        ++altered;
        ASSERT_EQ(Verdict(history, shape).code(), absl::StatusCode::kDataLoss) << ToString(history);
      }
    }
  }
  EXPECT_GT(altered, 1000);
}

}  // namespace
}  // namespace verbena::linearizability
