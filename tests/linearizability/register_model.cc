#include "tests/linearizability/register_model.h"

#include "absl/strings/str_cat.h"

namespace verbena::linearizability {
namespace {

// `state` with the knowledge that the item has this version (0: nothing was told); nothing if it
// cannot have it.
std::optional<State> WithVersion(State state, uint64_t version) {
  if (!state.present) return std::nullopt;
  if (version == 0) return state;
  if (state.exact ? version != state.version : version <= state.version) return std::nullopt;
  state.exact = true;
  state.version = version;
  return state;
}

// The state after a change stores `value`, with the version that was told (0: some version above).
std::optional<State> Store(const State& before, const ValueId& value, uint64_t version,
                           int64_t due) {
  const uint64_t floor = before.version + (before.present && !before.exact ? 1 : 0);
  if (version != 0 && version <= floor) return std::nullopt;
  return State{true, version != 0, version != 0 ? version : floor, value, due};
}

// `state` with what it means that the condition of a change holds.
std::optional<State> WithCondition(const State& state, const Operation& operation) {
  switch (operation.condition) {
    case Condition::kNone:
      return state;
    case Condition::kIfAbsent:
      if (state.present) return std::nullopt;
      return state;
    case Condition::kIfPresent:
      if (!state.present) return std::nullopt;
      return state;
    case Condition::kIfVersion:
      return WithVersion(state, operation.expected);
  }
  return std::nullopt;
}

// The sum that an add makes; nothing if it cannot be made.
std::optional<int64_t> Sum(const State& state, int64_t summand) {
  if (!state.present) return summand;
  int64_t sum = 0;
  if (!state.value.is_number || __builtin_add_overflow(state.value.number, summand, &sum)) {
    return std::nullopt;
  }
  return sum;
}

// A change whose condition holds takes effect. What the answer says of the result is compared by
// the caller, but for the version.
std::optional<State> Change(const State& state, const Operation& operation, uint64_t version) {
  switch (operation.kind) {
    case Kind::kGet:
      return std::nullopt;
    case Kind::kPut:
      return Store(state, operation.value, version, operation.due);
    case Kind::kDelete:
      if (!state.present) return std::nullopt;
      return Removed(state);
    case Kind::kAdd: {
      const std::optional<int64_t> sum = Sum(state, operation.summand);
      if (!sum.has_value()) return std::nullopt;
      return Store(state, ValueId::OfNumber(*sum), version, state.due);
    }
    case Kind::kAppend:
      return Store(
          state,
          state.present ? ValueId::Concatenation(state.value, operation.value) : operation.value,
          version, state.due);
    case Kind::kExpire: {
      std::optional<State> after = WithVersion(state, version);
      if (after.has_value()) after->due = operation.due;
      return after;
    }
  }
  return std::nullopt;
}

std::optional<State> ApplyDone(const State& state, const Operation& operation) {
  if (operation.kind == Kind::kGet) {
    if (!state.present || state.value != operation.value) return std::nullopt;
    return WithVersion(state, operation.version);
  }
  if (operation.kind == Kind::kExpire) {
    if (operation.existed != (state.due != kNever)) return std::nullopt;
    return Change(state, operation, operation.version);
  }
  if (operation.existed != state.present) return std::nullopt;
  std::optional<State> before = WithCondition(state, operation);
  if (!before.has_value()) return std::nullopt;
  if (operation.kind == Kind::kDelete) {
    if (operation.tells_value && before->value != operation.value) return std::nullopt;
    before = WithVersion(*before, operation.version);
    if (!before.has_value()) return std::nullopt;
    return Removed(*before);
  }
  const std::optional<State> after = Change(*before, operation, operation.version);
  if (after.has_value() && operation.kind == Kind::kAdd && after->value != operation.value) {
    return std::nullopt;
  }
  return after;
}

std::optional<State> ApplyOtherVersion(const State& state, const Operation& operation) {
  if (!state.present || operation.version == operation.expected) return std::nullopt;
  if (operation.version == 0 && state.exact && state.version == operation.expected) {
    return std::nullopt;
  }
  return WithVersion(state, operation.version);
}

const char* Name(Kind kind) {
  switch (kind) {
    case Kind::kGet:
      return "get";
    case Kind::kPut:
      return "put";
    case Kind::kDelete:
      return "delete";
    case Kind::kAdd:
      return "add";
    case Kind::kAppend:
      return "append";
    case Kind::kExpire:
      return "expire";
  }
  return "?";
}

const char* Name(Condition condition) {
  switch (condition) {
    case Condition::kNone:
      return "";
    case Condition::kIfAbsent:
      return " if absent";
    case Condition::kIfPresent:
      return " if present";
    case Condition::kIfVersion:
      return " if version ";
  }
  return "?";
}

const char* Name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kOk:
      return "ok";
    case Outcome::kNotFound:
      return "not found";
    case Outcome::kExists:
      return "exists";
    case Outcome::kOtherVersion:
      return "other version";
    case Outcome::kNotANumber:
      return "not a number";
    case Outcome::kOverflow:
      return "overflow";
    case Outcome::kRefused:
      return "refused";
    case Outcome::kUnknown:
      return "unknown";
  }
  return "?";
}

std::string ToString(const ValueId& value) {
  if (value.is_number) return absl::StrCat(value.number);
  return absl::StrCat("#", absl::Hex(value.hash), "/", value.length);
}

}  // namespace

std::optional<State> Apply(const State& state, const Operation& operation) {
  switch (operation.outcome) {
    case Outcome::kOk:
      return ApplyDone(state, operation);
    case Outcome::kNotFound:
      if (state.present) return std::nullopt;
      return state;
    case Outcome::kExists:
      return WithVersion(state, operation.version);
    case Outcome::kOtherVersion:
      return ApplyOtherVersion(state, operation);
    case Outcome::kNotANumber:
      if (!state.present || state.value.is_number) return std::nullopt;
      return WithVersion(state, operation.version);
    case Outcome::kOverflow:
      if (!state.present || !state.value.is_number || Sum(state, operation.summand).has_value()) {
        return std::nullopt;
      }
      return WithVersion(state, operation.version);
    case Outcome::kRefused:
      return state;
    case Outcome::kUnknown: {
      const std::optional<State> before = WithCondition(state, operation);
      if (!before.has_value()) return std::nullopt;
      return Change(*before, operation, /*version=*/0);
    }
  }
  return std::nullopt;
}

State Removed(const State& state) {
  return State{.version = state.version + (state.present && !state.exact ? 1 : 0)};
}

std::string ToString(const Operation& operation) {
  std::string text =
      absl::StrCat("[", operation.invoked, ", ",
                   operation.returned == kNever ? "..." : absl::StrCat(operation.returned),
                   "] process ", operation.process, " key ", operation.key, ": ",
                   Name(operation.kind), Name(operation.condition));
  if (operation.condition == Condition::kIfVersion) absl::StrAppend(&text, operation.expected);
  if (operation.kind == Kind::kAdd) absl::StrAppend(&text, " ", operation.summand);
  if (operation.value.length != 0) absl::StrAppend(&text, " ", ToString(operation.value));
  absl::StrAppend(&text, " -> ", Name(operation.outcome));
  if (operation.version != 0) absl::StrAppend(&text, ", version ", operation.version);
  return text;
}

std::string ToString(const State& state) {
  if (!state.present) return absl::StrCat("absent, versions above ", state.version);
  return absl::StrCat(ToString(state.value), ", version ", state.exact ? "" : "above ",
                      state.version);
}

}  // namespace verbena::linearizability
