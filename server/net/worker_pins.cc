// Worker: items that it keeps as they are while a client READs them.
//
// A client that could not READ a large value between two changes of its key asks for it, and the
// answer says where it lies. The item is pinned meanwhile, so the client gets on however fast
// others overwrite the key. A pin ends when the client releases it, when its time has passed (a
// client may have forgotten it, and what is pinned is memory that others may need), or with the
// connection. A client that still READs then finds that what it has READ is not the item.
#include <algorithm>

#include "server/net/worker.h"

namespace verbena::net {
namespace {

// Of one connection. What is more is answered without a pin.
constexpr size_t kMaxPins = 64;
// How long a pin is kept: 10 s and a second for each 16 MiB, which is a slow network's time.
constexpr uint32_t kPinTicks = 10;
constexpr uint32_t kPinBytesPerTick = uint32_t{16} << 20;

}  // namespace

bool Worker::MayPin(const Connection& connection) const {
  return connection.pins.size() < kMaxPins;
}

void Worker::HoldPin(Connection& connection, const Lookup& located) {
  if (located.pin == 0) {
    counters_.pins_refused.Add();
    return;
  }
  const uint32_t until = tick_ + 1 + kPinTicks + located.value_len / kPinBytesPerTick;
  connection.pins.push_back({.id = located.pin, .until = until});
  counters_.pins.Add();
  counters_.pins_made.Add();
}

// Only pins of the connection itself: nobody lets go of what others READ.
void Worker::RunRelease(Connection& connection, const wire::OperationHeader& operation) {
  const auto found = std::find_if(connection.pins.begin(), connection.pins.end(),
                                  [&](const HeldPin& pin) { return pin.id == operation.argument; });
  if (found == connection.pins.end()) {
    AddResult(connection, operation, wire::ResultCode::kNotFound, {});
    return;
  }
  DropPin(*found);
  connection.pins.erase(found);
  AddResult(connection, operation, wire::ResultCode::kOk, {});
}

void Worker::DropPin(const HeldPin& pin) {
  handler_.Release(options_.index, pin.id);
  counters_.pins.Subtract();
}

// Ticks wrap: times are compared by their difference.
void Worker::ExpirePins(Connection& connection) {
  std::erase_if(connection.pins, [&](const HeldPin& pin) {
    if (static_cast<int32_t>(tick_ - pin.until) < 0) return false;
    DropPin(pin);
    counters_.pins_expired.Add();
    return true;
  });
}

void Worker::DropPins(Connection& connection) {
  for (const HeldPin& pin : connection.pins) DropPin(pin);
  connection.pins.clear();
}

}  // namespace verbena::net
