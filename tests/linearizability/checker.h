// Decides whether recorded histories are linearizable: whether every operation can be given one
// instant between its invocation and its answer such that all answers are what the register model
// says in the order of these instants.
//
// The search is that of Wing and Gong with Lowe's improvements, in the form that goes through the
// history once, in the order of time: kept is the set of all configurations that explain what has
// been seen so far, a configuration being a state and the set of operations without an answer yet
// that have already taken effect. Operations take effect just in time: only when another one's
// answer has to be explained. Equal configurations are kept once. Keys are checked one by one,
// since a history is linearizable if and only if each key's part of it is.
//
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "tests/linearizability/register_model.h"

namespace verbena::linearizability {

struct Rules {
  // Items may vanish at any time (eviction), not only from their `due` on.
  bool evictions = false;
};

// The check of one key, which may be handed over in stretches.
class KeyChecker {
 public:
  // Operations that may be without an answer at the same time, those of unknown outcome included.
  static constexpr int kMaxPending = 64;

  // The key is absent at the beginning.
  explicit KeyChecker(Rules rules = {});

  // Takes `operations` in (any order, one key). Every operation that was answered in an earlier
  // stretch must have been answered before the first of these was invoked. DataLoss if they cannot
  // be explained: the message has the answer that cannot, what the states were, and what was under
  // way. ResourceExhausted with more than kMaxPending operations under way. After an error the
  // checker is of no more use.
  absl::Status Add(std::span<const Operation> operations);

  // Configurations that explain what was seen so far.
  size_t configurations() const { return configurations_.size(); }

 private:
  struct Configuration {
    State state;
    uint64_t done = 0;  // slots of operations that have taken effect, though not answered yet

    friend bool operator==(const Configuration&, const Configuration&) = default;
    template <typename H>
    friend H AbslHashValue(H hash, const Configuration& c) {
      return H::combine(std::move(hash), c.state, c.done);
    }
  };

  absl::Status Invoke(const Operation& operation, int* slot);
  absl::Status Answer(int slot);
  void Consider(Configuration configuration);
  void Expand(const Configuration& configuration, int64_t now);
  void TakeEffectWithoutEffect(Configuration& configuration) const;
  void ForgetSettled();
  absl::Status Unexplained(const Operation& operation) const;

  Rules rules_;
  std::vector<Operation> pending_;  // by slot
  uint64_t pending_slots_ = 0;
  uint64_t unknown_slots_ = 0;  // of these, the ones that will never be answered
  std::vector<Configuration> configurations_;
  // Of the answer that is being explained; members so that their memory is used again.
  absl::flat_hash_set<Configuration> seen_;
  std::vector<Configuration> before_;
  std::vector<Configuration> to_expand_;
};

// The check of many keys, which may be handed over in stretches, as KeyChecker::Add.
class Checker {
 public:
  explicit Checker(Rules rules = {}) : rules_(rules) {}

  // The first error of a key, see KeyChecker::Add.
  absl::Status Add(std::span<const Operation> operations);

 private:
  Rules rules_;
  absl::flat_hash_map<uint32_t, KeyChecker> keys_;
  absl::flat_hash_map<uint32_t, std::vector<Operation>> parts_;
};

}  // namespace verbena::linearizability
