// Short names for operations of one key in hand-made histories: Put("a", 1).At(10, 20).
#pragma once

#include <cstdint>
#include <string_view>

#include "tests/linearizability/register_model.h"

namespace verbena::linearizability {

struct Op : Operation {
  Op At(int64_t from, int64_t to) const {
    Op op = *this;
    op.invoked = from;
    op.returned = to;
    return op;
  }
  // Without an answer.
  Op Since(int64_t from) const {
    Op op = At(from, kNever);
    op.outcome = Outcome::kUnknown;
    op.version = 0;
    return op;
  }
  Op If(Condition what, uint64_t wanted = 0) const {
    Op op = *this;
    op.condition = what;
    op.expected = wanted;
    if (what != Condition::kNone) op.existed = what != Condition::kIfAbsent;
    return op;
  }
  // Answered with something else than success; `present`: version of what stood in the way.
  Op Fails(Outcome why, uint64_t present = 0) const {
    Op op = *this;
    op.outcome = why;
    op.version = present;
    return op;
  }
  Op Existed(bool before = true) const {
    Op op = *this;
    op.existed = before;
    return op;
  }
  Op Due(int64_t from) const {
    Op op = *this;
    op.due = from;
    return op;
  }
  Op OfKey(uint32_t number) const {
    Op op = *this;
    op.key = number;
    return op;
  }
};

inline Op Done(Kind kind, std::string_view value, uint64_t version) {
  Op op;
  op.kind = kind;
  op.outcome = Outcome::kOk;
  op.value = ValueId::Of(value);
  op.version = version;
  return op;
}

inline Op Get(std::string_view value, uint64_t version) { return Done(Kind::kGet, value, version); }
inline Op GetAbsent() { return Done(Kind::kGet, "", 0).Fails(Outcome::kNotFound); }
// Of an absent key; Put(...).Existed() else.
inline Op Put(std::string_view value, uint64_t version) { return Done(Kind::kPut, value, version); }
inline Op Cas(uint64_t expected, std::string_view value, uint64_t version) {
  return Put(value, version).If(Condition::kIfVersion, expected);
}
// `version` is that of what was deleted.
inline Op Delete(uint64_t version) { return Done(Kind::kDelete, "", version).Existed(); }
inline Op DeleteAbsent() { return Done(Kind::kDelete, "", 0).Fails(Outcome::kNotFound); }
inline Op GetAndDelete(std::string_view value, uint64_t version) {
  Op op = Done(Kind::kDelete, value, version).Existed();
  op.tells_value = true;
  return op;
}
// Of a key that exists; Existed(false) else.
inline Op Add(int64_t summand, int64_t sum, uint64_t version) {
  Op op;
  op.kind = Kind::kAdd;
  op.outcome = Outcome::kOk;
  op.summand = summand;
  op.value = ValueId::OfNumber(sum);
  op.version = version;
  op.existed = true;
  return op;
}
// Of a key without a time; Existed() else. At `due` it may vanish; never with kNever.
inline Op Expire(int64_t due, uint64_t version) {
  return Done(Kind::kExpire, "", version).Due(due);
}
inline Op Append(std::string_view suffix, uint64_t version) {
  return Done(Kind::kAppend, suffix, version).Existed();
}

}  // namespace verbena::linearizability
