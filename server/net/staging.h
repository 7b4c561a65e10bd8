// Memory that READs of large values land in, on devices whose READ sinks must allow remote writes
// (verbs::Capabilities::read_sink_needs_remote_write): the slice, which clients READ, never may.
//
// What that right means. An adapter of this kind answers a READ with tagged messages to the sink's
// key, which are remote writes in all but name. So its own registration is the only one of the
// server that has the right. Whoever could write there would have to know the key and be let
// through by a queue pair of the same protection domain:
//   - no message of the protocol has the key in it, and no client's program is shown it. (Its
//     adapter is: a READ names its sink on the wire. A network stack of the client's own making
//     would learn it with the first large value.)
//   - the queue pairs allow remote read and nothing else (Acceptor::Accept); adapters hold to
//     that, although siw does not look.
// What could be spoilt is a value under way of the same tenant, whose clients may put any value
// anyway; never what is in the slice, since a value is judged (its check computed) by what has been
// copied there.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/shared_memory.h"
#include "common/verbs/device.h"
#include "common/verbs/queues.h"
#include "server/net/queue_plan.h"

namespace verbena::net {

struct Connection;

// A worker's staging memory on one device: pieces of kStagingPiece bytes, each for one READ, and
// the line of connections that wait for one, first come, first served.
//
// A piece belongs to its READ until nothing can write there any more (Worker::ReleaseStaged says
// when that is), and only then to the next.
//
// Move-only. Used by one thread.
class StagingPool {
 public:
  // `access`: verbs::Capabilities::read_sink_access.
  static absl::StatusOr<StagingPool> Create(const verbs::ProtectionDomain& pd,
                                            const std::string& name, uint32_t pieces, int access);

  // Without memory: READs are not staged.
  StagingPool() = default;
  bool used() const { return region_.valid(); }

  uint32_t lkey() const { return region_.lkey(); }
  uint8_t* Piece(uint32_t index) const { return memory_.data() + index * kStagingPiece; }

  bool has_free() const { return !free_.empty(); }
  // The one that came back last, which is warm. Only if has_free().
  uint32_t Acquire();
  void Release(uint32_t index) { free_.push_back(index); }

  // The line. A connection stands in it at most once (ReadTransfer::waits_for_piece) and must leave
  // it before it ends.
  bool has_waiting() const { return !waiting_.empty(); }
  void Wait(Connection& connection);
  // The first leaves the line. Only if has_waiting().
  Connection& NextWaiting();
  void StopWaiting(Connection& connection);

 private:
  SharedMemory memory_;
  verbs::MemoryRegion region_;
  std::vector<uint32_t> free_;
  std::deque<Connection*> waiting_;
};

}  // namespace verbena::net
