// What the server remembers of a session: the answers to changes that it has made and that the
// client may not have seen, so that a change which the client repeats on its next connection is
// answered and not made again.
//
// An answer is kept in the place of its sequence number modulo the window. A client uses no number
// more than `operations` above the ones it has acknowledged, so what an answer replaces has been
// acknowledged: keeping one is a single write to a cache line, and it is found without a search.
//
// Only a change that had an effect is kept. What failed, or only read, is simply done again: then
// it takes effect (or does not) when it is done again, which is between its submission and its
// answer like any other time.
//
// Not thread-safe, and it needs no lock: it is used by the worker of the one connection that the
// session has. SessionTable hands it to the next connection under its lock, after the worker of the
// one before has said that it works on nothing of that connection any more.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "common/wire/messages.h"

namespace verbena::net {

// The answer to a change that was made. Aligned so that it lies in one cache line.
struct alignas(32) KeptAnswer {
  uint64_t sequence = 0;  // 0: none
  uint64_t version = 0;   // of the key after the change
  int64_t number = 0;     // after an addition: the sum
  wire::OpCode code{};
  bool existed = false;    // the key was there before
  bool has_value = false;  // a get-and-delete's answer, whose value is kept beside it
};
static_assert(sizeof(KeptAnswer) == 32);

class Session {
 public:
  // Bytes of values of get-and-deletes that a session keeps.
  static constexpr size_t kMaxValueBytes = 256 * 1024;
  // So often is a change tried whose value the client's device does not let the server READ.
  static constexpr uint32_t kRefusedReads = 3;

  // `operations`: sequence numbers above the acknowledged ones that the client may use,
  // wire::kMinSessionOperations to wire::kMaxSessionOperations.
  // `incarnation`: as in wire::Welcome, not 0.
  Session(uint32_t operations, uint32_t incarnation);

  uint32_t operations() const { return operations_; }
  uint32_t incarnation() const { return incarnation_; }
  // Bytes that it takes, without values.
  size_t bytes() const { return sizeof(*this) + (mask_ + 1) * sizeof(KeptAnswer); }

  // The client has seen the answers of all operations up to `acked`.
  void Acknowledge(uint64_t acked) {
    if (acked > acked_) acked_ = acked;
    if (!values_.empty()) DropValues();
  }
  // InvalidArgument for a number that the client may not use (any more).
  absl::Status Check(uint64_t sequence) const {
    if (sequence > acked_ && sequence - acked_ <= operations_) return absl::OkStatus();
    return WrongSequence(sequence);
  }
  // The answer to the change of that number; nullptr if it has not been made.
  const KeptAnswer* Find(uint64_t sequence) const {
    const KeptAnswer& kept = answers_[sequence & mask_];
    return kept.sequence == sequence ? &kept : nullptr;
  }
  // A change has been made. Its number has passed Check.
  void Keep(const KeptAnswer& answer) {
    answers_[answer.sequence & mask_] = answer;
    if (answer.sequence > highest_) highest_ = answer.sequence;
  }
  // The client's device has refused the server's READ of the value of the change of that number.
  void NoteRefusedRead(uint64_t sequence) {
    refused_reads_ = sequence == refused_ ? refused_reads_ + 1 : 1;
    refused_ = sequence;
  }
  // Whether it has done so each time that the change was tried: the next time it would, too. Once
  // tells nothing, since the memory's registration may just have ended with the connection.
  bool ValueIsUnreadable(uint64_t sequence) const {
    return sequence == refused_ && refused_reads_ >= kRefusedReads;
  }
  // Another connection goes on with it, on which changes may be repeated.
  void TakeUp() { repeated_up_to_ = highest_; }
  // Changes may come that have been made on an earlier connection.
  bool may_repeat() const { return acked_ < repeated_up_to_; }

  // Values of get-and-deletes.
  size_t value_bytes() const { return value_bytes_; }
  // Bytes of value that can be kept now.
  size_t room_for_value() const { return kMaxValueBytes - value_bytes_; }
  void KeepValue(uint64_t sequence, std::string_view value);
  // Empty if there is none.
  std::string_view ValueOf(uint64_t sequence) const;

 private:
  struct Value {
    uint64_t sequence;
    std::string bytes;
  };

  absl::Status WrongSequence(uint64_t sequence) const;
  void DropValues();

  uint32_t operations_;
  uint32_t incarnation_;
  uint64_t mask_;
  std::unique_ptr<KeptAnswer[]> answers_;
  uint64_t acked_ = 0;
  uint64_t highest_ = 0;         // of the answers kept so far
  uint64_t repeated_up_to_ = 0;  // highest_ when it was last taken up
  uint64_t refused_ = 0;         // the last change whose value could not be READ
  uint32_t refused_reads_ = 0;   // in a row
  std::deque<Value> values_;     // in the order of their sequence numbers
  size_t value_bytes_ = 0;
};

}  // namespace verbena::net
