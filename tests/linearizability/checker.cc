#include "tests/linearizability/checker.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/macros.h"

namespace verbena::linearizability {
namespace {

constexpr uint64_t Bit(int slot) { return uint64_t{1} << slot; }

struct Event {
  int64_t time;
  bool answer;
  size_t operation;
};

// In the order of time. At equal times invocations come first: then the operations count as
// concurrent, which excuses more and accuses nobody wrongly.
std::vector<Event> EventsOf(std::span<const Operation> operations) {
  std::vector<Event> events;
  events.reserve(operations.size() * 2);
  for (size_t i = 0; i < operations.size(); ++i) {
    const Operation& operation = operations[i];
    events.push_back({operation.invoked, false, i});
    if (operation.outcome != Outcome::kUnknown) events.push_back({operation.returned, true, i});
  }
  std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return a.time != b.time ? a.time < b.time : a.answer < b.answer;
  });
  return events;
}

}  // namespace

KeyChecker::KeyChecker(Rules rules) : rules_(rules), configurations_(1) {}

absl::Status KeyChecker::Add(std::span<const Operation> operations) {
  std::vector<int> slots(operations.size());
  for (const Event& event : EventsOf(operations)) {
    VERBENA_RETURN_IF_ERROR(event.answer
                                ? Answer(slots[event.operation])
                                : Invoke(operations[event.operation], &slots[event.operation]));
  }
  return absl::OkStatus();
}

absl::Status KeyChecker::Invoke(const Operation& operation, int* slot) {
  if (pending_slots_ == ~uint64_t{0}) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "more than ", kMaxPending, " operations are under way with ", ToString(operation)));
  }
  *slot = std::countr_one(pending_slots_);
  pending_slots_ |= Bit(*slot);
  if (operation.outcome == Outcome::kUnknown) unknown_slots_ |= Bit(*slot);
  const auto place = static_cast<size_t>(*slot);
  if (place >= pending_.size()) pending_.resize(place + 1);
  pending_[place] = operation;
  return absl::OkStatus();
}

// Keeps the configurations in which the operation takes effect by now, and those that others,
// taking effect before it, lead to.
absl::Status KeyChecker::Answer(int slot) {
  const Operation& operation = pending_[static_cast<size_t>(slot)];
  seen_.clear();
  before_.clear();
  before_.swap(configurations_);
  for (const Configuration& configuration : before_) Consider(configuration);
  while (!to_expand_.empty()) {
    Configuration configuration = to_expand_.back();
    to_expand_.pop_back();
    if ((configuration.done & Bit(slot)) == 0) {
      Expand(configuration, operation.returned);
    } else {
      // All of these had the bit set, so they stay different without it.
      configuration.done &= ~Bit(slot);
      configurations_.push_back(configuration);
    }
  }
  if (configurations_.empty()) {
    configurations_.swap(before_);
    return Unexplained(operation);
  }
  pending_slots_ &= ~Bit(slot);
  if (unknown_slots_ != 0) ForgetSettled();
  return absl::OkStatus();
}

void KeyChecker::Consider(Configuration configuration) {
  TakeEffectWithoutEffect(configuration);
  if (seen_.insert(configuration).second) to_expand_.push_back(configuration);
}

// Whatever fits the state and leaves it as it is takes effect at once. Nothing is lost by that: an
// explanation in which it does so later stays one when it is moved to here, since nobody else
// notices it. So reads never multiply the configurations.
void KeyChecker::TakeEffectWithoutEffect(Configuration& configuration) const {
  for (uint64_t left = pending_slots_ & ~configuration.done; left != 0; left &= left - 1) {
    const int slot = std::countr_zero(left);
    const std::optional<State> after =
        Apply(configuration.state, pending_[static_cast<size_t>(slot)]);
    if (after == configuration.state) configuration.done |= Bit(slot);
  }
}

// Everything that can happen next, at the time `now` at the latest.
void KeyChecker::Expand(const Configuration& configuration, int64_t now) {
  for (uint64_t left = pending_slots_ & ~configuration.done; left != 0; left &= left - 1) {
    const int slot = std::countr_zero(left);
    const std::optional<State> after =
        Apply(configuration.state, pending_[static_cast<size_t>(slot)]);
    if (after.has_value()) Consider({*after, configuration.done | Bit(slot)});
  }
  if (configuration.state.present && (rules_.evictions || configuration.state.due <= now)) {
    Consider({Removed(configuration.state), configuration.done});
  }
}

// An operation of unknown outcome that has taken effect in every configuration needs no place.
void KeyChecker::ForgetSettled() {
  uint64_t settled = unknown_slots_;
  for (const Configuration& configuration : configurations_) settled &= configuration.done;
  if (settled == 0) return;
  for (Configuration& configuration : configurations_) configuration.done &= ~settled;
  pending_slots_ &= ~settled;
  unknown_slots_ &= ~settled;
}

absl::Status KeyChecker::Unexplained(const Operation& operation) const {
  std::string text = absl::StrCat("not linearizable: ", ToString(operation), "\n");
  constexpr size_t kMostShown = 8;
  for (size_t i = 0; i < std::min(configurations_.size(), kMostShown); ++i) {
    absl::StrAppend(&text, "  possible before: ", ToString(configurations_[i].state), "\n");
  }
  for (uint64_t left = pending_slots_; left != 0; left &= left - 1) {
    absl::StrAppend(&text, "  under way: ",
                    ToString(pending_[static_cast<size_t>(std::countr_zero(left))]), "\n");
  }
  return absl::DataLossError(text);
}

absl::Status Checker::Add(std::span<const Operation> operations) {
  for (auto& [key, part] : parts_) part.clear();
  for (const Operation& operation : operations) parts_[operation.key].push_back(operation);
  for (const auto& [key, part] : parts_) {
    VERBENA_RETURN_IF_ERROR(keys_.try_emplace(key, rules_).first->second.Add(part));
  }
  return absl::OkStatus();
}

}  // namespace verbena::linearizability
