#include "bench/systems/raw_backend.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "bench/workload/random.h"
#include "common/base/clock.h"

namespace verbena::bench {
namespace {

// Which block of the region a key stands for. Names differ in their last bytes.
uint64_t BlockOf(std::string_view key, uint64_t blocks) {
  uint64_t ends[2] = {0, key.size()};
  const size_t size = std::min(sizeof(ends[0]), key.size());
  std::memcpy(&ends[0], key.data() + key.size() - size, size);
  if (key.size() > 8) {
    uint64_t more = 0;
    const size_t before = std::min<size_t>(8, key.size() - 8);
    std::memcpy(&more, key.data() + key.size() - 8 - before, before);
    ends[1] ^= more << 8;
  }
  return Mix64(Mix64(ends[0]) ^ ends[1]) % blocks;
}

}  // namespace

RawBackend::RawBackend(std::shared_ptr<void> owner, RawInitiator* initiator, Reads reads,
                       const RawSizes& sizes, uint32_t depth, std::chrono::nanoseconds poll_time)
    : owner_(std::move(owner)),
      initiator_(initiator),
      reads_(reads),
      sizes_(sizes),
      poll_nanos_(poll_time.count()) {
  const uint32_t places = std::min(depth, initiator_->depth());
  for (uint32_t place = places; place-- > 0;) free_places_.push_back(place);
  slot_of_place_.resize(places);
}

absl::Status RawBackend::SubmitRead(uint32_t slot, std::string_view key) {
  if (!status_.ok()) return status_;
  if (reads_ == Reads::kMessages) {
    waiting_requests_.push_back({slot, true});
  } else {
    const uint64_t blocks = std::max<uint64_t>(1, sizes_.region / sizes_.block);
    waiting_reads_.push_back({slot, BlockOf(key, blocks) * sizes_.block});
  }
  return absl::OkStatus();
}

absl::Status RawBackend::SubmitWrite(uint32_t slot, std::string_view /*key*/,
                                     std::string_view /*value*/) {
  if (!status_.ok()) return status_;
  waiting_requests_.push_back({slot, false});
  return absl::OkStatus();
}

int RawBackend::Fail(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
  return 0;
}

void RawBackend::PostReads() {
  places_.clear();
  offsets_.clear();
  while (!waiting_reads_.empty() && !free_places_.empty()) {
    const uint32_t place = free_places_.back();
    free_places_.pop_back();
    slot_of_place_[place] = waiting_reads_.front().slot;
    places_.push_back(place);
    offsets_.push_back(waiting_reads_.front().offset);
    waiting_reads_.pop_front();
  }
  if (places_.empty()) return;
  ++counters_.doorbells;
  counters_.reads += places_.size();
  if (absl::Status status = initiator_->PostReads(places_, offsets_); !status.ok()) {
    Fail(std::move(status));
  }
}

void RawBackend::PostWhatFits() {
  PostReads();
  while (!waiting_requests_.empty() && sent_requests_.size() < RawInitiator::kMostRequests) {
    const Request request = waiting_requests_.front();
    const uint32_t size = request.is_read ? sizes_.read_request : sizes_.write_request;
    if (absl::Status status = initiator_->PostRequest(size, !request.is_read); !status.ok()) {
      Fail(std::move(status));
      return;
    }
    ++counters_.doorbells;
    counters_.bytes_out += size;
    sent_requests_.push_back(request);
    waiting_requests_.pop_front();
  }
}

int RawBackend::Poll() {
  if (!status_.ok()) return 0;
  PostWhatFits();
  if (!status_.ok()) return 0;
  std::array<RawCompletion, 32> completions;
  const auto found = initiator_->Poll(completions);
  if (!found.ok()) return Fail(found.status());
  for (size_t i = 0; i < *found; ++i) {
    const RawCompletion& completion = completions[i];
    counters_.bytes_in += completion.bytes;
    Request finished{0, true};
    if (completion.is_read) {
      finished.slot = slot_of_place_[completion.slot];
      free_places_.push_back(completion.slot);
    } else if (sent_requests_.empty()) {
      return Fail(absl::InternalError("an answer that nobody asked for"));
    } else {
      finished = sent_requests_.front();
      sent_requests_.pop_front();
    }
    if (finished.is_read) ++counters_.gets;
    if (sink_ == nullptr) continue;
    if (finished.is_read) {
      sink_->OnRead(finished.slot, absl::OkStatus(), {});
    } else {
      sink_->OnWrite(finished.slot, absl::OkStatus());
    }
  }
  return static_cast<int>(*found);
}

int RawBackend::Wait(std::chrono::nanoseconds timeout) {
  if (const int finished = Poll(); finished > 0 || !status_.ok()) return finished;
  const int64_t begin = MonotonicNanos();
  for (;;) {
    for (int i = 0; i < 64; ++i) {
      if (const int finished = Poll(); finished > 0 || !status_.ok()) return finished;
    }
    const int64_t waited = MonotonicNanos() - begin;
    if (waited >= timeout.count()) return 0;
    if (waited < poll_nanos_) continue;
    if (absl::Status status = initiator_->Arm(); !status.ok()) return Fail(std::move(status));
    if (const int finished = Poll(); finished > 0 || !status_.ok()) return finished;
    const int64_t left_ms = (timeout.count() - waited) / 1'000'000 + 1;
    if (absl::Status status = initiator_->Sleep(static_cast<int>(left_ms)); !status.ok()) {
      return Fail(std::move(status));
    }
  }
}

}  // namespace verbena::bench
