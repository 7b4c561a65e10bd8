#include "server/net/staging.h"

#include <cassert>

#include "common/base/macros.h"
#include "server/net/connection.h"

namespace verbena::net {

absl::StatusOr<StagingPool> StagingPool::Create(const verbs::ProtectionDomain& pd,
                                                const std::string& name, uint32_t pieces,
                                                int access) {
  StagingPool pool;
  VERBENA_ASSIGN_OR_RETURN(pool.memory_, SharedMemory::Create(name, pieces * kStagingPiece,
                                                              /*want_huge=*/false));
  VERBENA_ASSIGN_OR_RETURN(pool.region_, verbs::MemoryRegion::Register(
                                             pd, pool.memory_.data(), pool.memory_.size(), access));
  pool.free_.reserve(pieces);
  for (uint32_t i = pieces; i > 0; --i) pool.free_.push_back(i - 1);
  return pool;
}

uint32_t StagingPool::Acquire() {
  assert(has_free());
  const uint32_t index = free_.back();
  free_.pop_back();
  return index;
}

void StagingPool::Wait(Connection& connection) {
  assert(!connection.transfer.waits_for_piece);
  connection.transfer.waits_for_piece = true;
  waiting_.push_back(&connection);
}

Connection& StagingPool::NextWaiting() {
  assert(has_waiting());
  Connection& next = *waiting_.front();
  waiting_.pop_front();
  next.transfer.waits_for_piece = false;
  return next;
}

void StagingPool::StopWaiting(Connection& connection) {
  std::erase(waiting_, &connection);
  connection.transfer.waits_for_piece = false;
}

}  // namespace verbena::net
