// Pins: items that the server keeps as they are while this client READs them, since they could not
// be READ between two changes. They are given back one at a time, each with a request of its own,
// which takes a place among the operations of the request queue but none of the depth's.
#include <utility>

#include "client/src/connection_impl.h"

namespace verbena {

void Connection::Impl::TakePin(Operation& op, uint64_t pin) {
  if (pin == 0) return;
  ++stats_.pinned_gets;
  op.pin = pin;
}

// With the connection the server lets go of all.
void Connection::Impl::DropPin(Operation& op) {
  const uint64_t pin = std::exchange(op.pin, 0);
  if (!up_) return;
  releases_.push_back(pin);
  if (!release_sent_) SendRelease();
}

// The request leaves with the next flush.
void Connection::Impl::SendRelease() {
  wire::OperationHeader header{};
  header.code = static_cast<uint8_t>(wire::OpCode::kRelease);
  header.argument = releases_.back();
  releases_.pop_back();
  release_sent_ = true;
  release_due_ = true;
  requests_.Add(release_slot(), header, {}, {});
}

// Whatever the answer is: the server may have had enough of waiting and have let go by itself.
void Connection::Impl::OnReleased() {
  release_sent_ = false;
  if (!releases_.empty()) SendRelease();
}

}  // namespace verbena
