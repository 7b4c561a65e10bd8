// The memory that processes share: plain layouts of lock-free words, in memfds.
//
//   notify segment   one per process, written by its peers: which of its QPs need attention and
//                    which of its CQs want an event
//   MR table         one per process, peers map it read-only: what may be READ and WRITTEN
//   link segment     one per connection: a message ring and counters for each direction
//
// Nothing in here is a lock or a linked list: a process that is killed between two stores leaves
// nothing behind that could block another. Sizes cannot change (sealed), so a peer cannot make
// this process fault.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"
#include "common/softverbs/ring.h"

namespace verbena::softverbs {

inline constexpr uint32_t kMaxCqs = 4096;
inline constexpr uint32_t kMaxQps = 65536;
inline constexpr uint32_t kMaxMrs = 1u << 18;

// What a CQ's owner wants to be told; the low bits of CqNotify::control.
enum class ArmState : uint32_t {
  kIdle = 0,
  kArmed = 1,           // any completion raises an event
  kArmedSolicited = 2,  // only solicited messages and errors do
  kFired = 3,           // the event has been raised and not yet collected
};

// Bits that peers set for one CQ: one per QP slot of that CQ, in two levels. A group's words lie
// behind its summary so that the first QPs of a CQ share one cache line with `control`.
struct alignas(kRingLine) CqNotify {
  struct Group {
    std::atomic<uint64_t> summary;
    std::array<std::atomic<uint64_t>, 64> ready;
  };
  static constexpr uint32_t kSlotsPerGroup = 64 * 64;
  static constexpr uint32_t kGroups = kMaxQps / kSlotsPerGroup;

  std::atomic<uint32_t> control;
  uint32_t reserved;
  std::array<Group, kGroups> groups;

  // Says that the QP in `slot` needs attention. Idempotent; seq_cst (see the wake-up protocol in
  // completion_queue.h). The leaf is set before the summary, and collected after it.
  void MarkReady(uint32_t slot) {
    Group& group = groups[slot / kSlotsPerGroup];
    const uint32_t word = slot / 64 % 64;
    group.ready[word].fetch_or(uint64_t{1} << (slot % 64));
    const uint64_t bit = uint64_t{1} << word;
    if ((group.summary.load() & bit) == 0) group.summary.fetch_or(bit);
  }
};

struct NotifySegment {
  // CQs that the owner's service thread is asked to progress, a bit each.
  alignas(kRingLine) std::array<std::atomic<uint64_t>, kMaxCqs / 64> service;
  std::array<CqNotify, kMaxCqs> cqs;
};

// One registered range. Keys are index << 8 | generation; lkey and rkey are the same number.
struct alignas(kRingLine) MrEntry {
  // key << 1 | 1 while the registration is valid; written last, cleared first.
  std::atomic<uint64_t> tag;
  std::atomic<uint64_t> address;
  std::atomic<uint64_t> length;
  std::atomic<uint32_t> pd;
  std::atomic<uint32_t> access;  // ibv_access_flags
  // The memfd under the range (a number of the owner's, 0: none) and where in it the range begins.
  std::atomic<uint64_t> memory;
  std::atomic<uint64_t> offset;
};

struct MrTable {
  std::array<MrEntry, kMaxMrs> entries;
};

inline constexpr uint32_t MrIndex(uint32_t key) { return key >> 8; }
inline constexpr uint64_t MrTag(uint32_t key) { return uint64_t{key} << 1 | 1; }

// What one end tells the other about its QP.
struct LinkSide {
  // Set by the owner under its locks.
  alignas(kRingLine) std::atomic<uint32_t> state;  // ibv_qp_state; IBV_QPS_RESET: not there yet
  std::atomic<uint32_t> access;                    // qp_access_flags
  std::atomic<uint32_t> max_dest_rd_atomic;
  std::atomic<uint32_t> min_rnr_timer;
  std::atomic<uint32_t> rnr_retry;
  // Odd while the owner, as an initiator, may touch the other end's memory (see MrGuard).
  alignas(kRingLine) std::atomic<uint64_t> busy;
  // Set by the other end: an operation of its that this end must answer by going to ERR.
  // FaultWord; 0: none. Applies once all messages sent before it have been received.
  alignas(kRingLine) std::atomic<uint64_t> fault;
};

// LinkSide::fault: kind (enum Fault) and how many messages come before it.
enum class Fault : uint8_t { kNone = 0, kAccess = 1, kInvalidRequest = 2, kAccessWithReceive = 3 };
inline constexpr uint64_t FaultWord(Fault kind, uint64_t messages) {
  return messages << 8 | static_cast<uint64_t>(kind);
}

// Messages from one end (the requester) to the other (the responder).
struct Direction {
  // Written by the requester.
  // Nonzero: the ring was full; the responder says when there is space again.
  alignas(kRingLine) std::atomic<uint64_t> blocked;
  // The responder says when it has completed this many messages (0: need not).
  std::atomic<uint64_t> wanted;
  // Messages from this number on are void: the requester has reported them as failed (0: none).
  std::atomic<uint64_t> cancelled;
  // Written by the responder.
  alignas(kRingLine) std::atomic<uint64_t> head;  // bytes consumed
  std::atomic<uint64_t> completed;                // messages received with success
  // ibv_wc_status << 56 | number of the message that failed; 0: none.
  std::atomic<uint64_t> nak;
  // Grows each time the responder finds no RECV for the next message.
  std::atomic<uint64_t> rnr_count;
  alignas(kRingLine) RingData ring;
};

struct LinkSegment {
  std::array<LinkSide, 2> sides;
  // directions[i]: requester is side i.
  std::array<Direction, 2> directions;
};

static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::atomic<uint32_t>::is_always_lock_free);
static_assert(sizeof(MrEntry) == kRingLine);
static_assert(offsetof(CqNotify, groups) == 8, "the first ready word shares control's line");

// A memfd of fixed size, mapped. Move-only.
class SharedMapping {
 public:
  // A new zeroed memfd that can neither grow nor shrink. With `peers_read_only` nobody else can
  // map it for writing.
  static absl::StatusOr<SharedMapping> Create(const char* name, size_t size, bool peers_read_only);
  // Maps a descriptor received from a peer. InvalidArgument if it is not a sealed memfd of at
  // least `size` bytes.
  static absl::StatusOr<SharedMapping> Open(UniqueFd fd, size_t size, bool writable);

  SharedMapping() = default;
  SharedMapping(SharedMapping&& other) noexcept;
  SharedMapping& operator=(SharedMapping&& other) noexcept;
  ~SharedMapping();

  void* data() const { return data_; }
  int fd() const { return fd_.get(); }
  // The mapping stays; nobody needs the descriptor any more.
  void CloseFd() { fd_.Reset(); }

 private:
  UniqueFd fd_;
  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace verbena::softverbs
