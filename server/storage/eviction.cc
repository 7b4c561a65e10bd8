#include "server/storage/eviction.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/sizes.h"

namespace verbena::storage {

using layout::KeyHash;

namespace {

unsigned TouchBits(uint64_t region_bytes) {
  return static_cast<unsigned>(std::bit_width(std::max<uint64_t>(region_bytes / 64, 1024) - 1));
}

}  // namespace

Eviction::Eviction(unsigned touch_bits, TouchTable touches)
    : touch_shift_(64 - touch_bits),
      touch_bytes_(uint64_t{1} << touch_bits),
      touches_(std::move(touches)),
      ghosts_(kLeastGhosts, 0) {}

void Eviction::Unmap::operator()(std::atomic<uint8_t>* table) const { munmap(table, bytes); }

// Mapped, since that takes no memory for what is never written to.
absl::StatusOr<std::unique_ptr<Eviction>> Eviction::Create(uint64_t region_bytes) {
  const unsigned bits = TouchBits(region_bytes);
  const uint64_t bytes = uint64_t{1} << bits;
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "cannot get ", FormatSize(bytes), " of memory for what eviction notes about a region of ",
        FormatSize(region_bytes), ": mmap: ", std::strerror(errno),
        "; choose a smaller memory size, allow the process more (`ulimit -v`), or run with ",
        "--eviction=none"));
  }
  return std::unique_ptr<Eviction>(
      new Eviction(bits, TouchTable(static_cast<std::atomic<uint8_t>*>(data), Unmap{bytes})));
}

void Eviction::Touch(KeyHash hash) {
  touch_count_.fetch_add(1, std::memory_order_relaxed);
  std::atomic<uint8_t>& touches = TouchesOf(hash.bits);
  const uint8_t before = touches.load(std::memory_order_relaxed);
  // Two touches at the same time may count as one.
  if (before < kMostTouches) {
    touches.store(static_cast<uint8_t>(before + 1), std::memory_order_relaxed);
  }
}

uint64_t Eviction::Pop(Queue& queue) {
  const uint64_t hash = queue.front();
  queue.pop_front();
  return hash;
}

std::optional<KeyHash> Eviction::NextVictim() {
  const std::lock_guard lock(lock_);
  for (int looked_at = 0; !small_.empty() || !main_.empty(); ++looked_at) {
    const bool go_on = looked_at < kMostLookedAt;
    if (small_.size() > (small_.size() + main_.size()) / 10 || main_.empty()) {
      const uint64_t hash = Pop(small_);
      if (TakeLeftOver(hash)) continue;
      std::atomic<uint8_t>& touches = TouchesOf(hash);
      const uint8_t left = touches.load(std::memory_order_relaxed);
      if (left == 0 || !go_on) {
        AddGhost(hash);
        CountLeftOver(hash, -1);
        return KeyHash{hash};
      }
      // Not all of them: another key that is read may have the same place, and its turn yet to
      // come.
      touches.store(static_cast<uint8_t>(left - 1), std::memory_order_relaxed);
      main_.push_back(hash);
      ++promoted_;
    } else {
      const uint64_t hash = Pop(main_);
      if (TakeLeftOver(hash)) continue;
      std::atomic<uint8_t>& touches = TouchesOf(hash);
      const uint8_t left = touches.load(std::memory_order_relaxed);
      if (left == 0 || !go_on) {
        CountLeftOver(hash, -1);
        return KeyHash{hash};
      }
      touches.store(static_cast<uint8_t>(left - 1), std::memory_order_relaxed);
      main_.push_back(hash);
    }
  }
  return std::nullopt;
}

// If the key has gone meanwhile, its removal has found no entry to be left over: this one is.
void Eviction::Keep(KeyHash hash) {
  const std::lock_guard lock(lock_);
  main_.push_back(hash.bits);
  CountLeftOver(hash.bits, 1);
}

void Eviction::OnInserted(KeyHash hash, std::string_view /*key*/, layout::Slot /*slot*/) {
  const std::lock_guard lock(lock_);
  ++live_;
  if (TakeGhost(hash.bits)) {
    main_.push_back(hash.bits);
    ++revived_;
  } else {
    small_.push_back(hash.bits);
  }
  SweepIfDue();
}

void Eviction::OnRemoved(KeyHash hash, std::string_view /*key*/, layout::Slot /*slot*/) {
  const std::lock_guard lock(lock_);
  --live_;
  // Here, and not when a key is inserted: many more come than go with touches left (one that is
  // evicted has none), and each would take those of another key that has the same place.
  TouchesOf(hash.bits).store(0, std::memory_order_relaxed);
  CountLeftOver(hash.bits, 1);
  SweepIfDue();
}

void Eviction::CountLeftOver(uint64_t hash, int32_t change) {
  const auto counted = left_over_.try_emplace(hash, 0).first;
  counted->second += change;
  if (counted->second == 0) left_over_.erase(counted);
}

// Whether an entry of this hash, which has left its queue, is one too many.
bool Eviction::TakeLeftOver(uint64_t hash) {
  const auto counted = left_over_.find(hash);
  if (counted == left_over_.end() || counted->second < 0) return false;
  CountLeftOver(hash, -1);
  return true;
}

// Looks at the oldest entries of both queues, four each. More than half of all are left over, so
// two of them go or more: as many as the bound falls by when a key goes, and more than a key adds.
void Eviction::SweepIfDue() {
  if (small_.size() + main_.size() <= 2 * live_ + kLeastGhosts) return;
  for (Queue* queue : {&small_, &main_}) {
    for (int i = 0; i < 4 && !queue->empty(); ++i) {
      const uint64_t hash = Pop(*queue);
      if (!TakeLeftOver(hash)) queue->push_back(hash);
    }
  }
}

// The table's index comes from the hash's upper bits and the tag from the lower ones.
void Eviction::AddGhost(uint64_t hash) {
  const uint64_t wanted = std::bit_ceil(std::max(kLeastGhosts, live_));
  if (ghosts_.size() < wanted) ghosts_.assign(wanted, 0);  // forgets them, seldom
  ++ghost_number_;
  const auto index = hash >> (64 - std::bit_width(ghosts_.size() - 1));
  ghosts_[index] = hash << 32 | ghost_number_;
}

bool Eviction::TakeGhost(uint64_t hash) {
  const auto index = hash >> (64 - std::bit_width(ghosts_.size() - 1));
  uint64_t& ghost = ghosts_[index];
  const auto number = static_cast<uint32_t>(ghost);
  const uint64_t most = std::max<uint64_t>(main_.size(), live_ / 2);
  if (ghost == 0 || ghost >> 32 != (hash & UINT32_MAX) || ghost_number_ - number > most) {
    return false;
  }
  ghost = 0;
  return true;
}

absl::Status Eviction::Validate(std::span<const KeyHash> there) const {
  const std::lock_guard lock(lock_);
  if (live_ != there.size()) {
    return absl::InternalError(absl::StrCat(live_, " keys counted, but ", there.size(), " there"));
  }
  // Of each hash: entries - left over - keys.
  absl::flat_hash_map<uint64_t, int64_t> balance;
  for (const Queue* queue : {&small_, &main_}) {
    for (const uint64_t hash : *queue) ++balance[hash];
  }
  for (const auto& [hash, count] : left_over_) {
    if (count <= 0) return absl::InternalError(absl::StrCat(count, " entries left over"));
    balance[hash] -= count;
  }
  for (const KeyHash hash : there) --balance[hash.bits];
  for (const auto& [hash, count] : balance) {
    if (count == 0) continue;
    return absl::InternalError(
        absl::StrCat("hash ", hash, ": ", count, " entries too many, or keys without one"));
  }
  return absl::OkStatus();
}

EvictionStats Eviction::Stats() const {
  const std::lock_guard lock(lock_);
  EvictionStats stats;
  stats.touches = touch_count_.load(std::memory_order_relaxed);
  stats.small = small_.size();
  stats.main = main_.size();
  stats.promoted = promoted_;
  stats.revived = revived_;
  stats.memory = touch_bytes_ + (small_.size() + main_.size() + ghosts_.size()) * sizeof(uint64_t) +
                 left_over_.capacity() * (sizeof(decltype(left_over_)::value_type) + 1);
  return stats;
}

}  // namespace verbena::storage
