#include "client/src/raw_reads.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <chrono>

#include "client/src/ticks.h"
#include "common/base/clock.h"
#include "common/base/macros.h"
#include "common/base/sizes.h"
#include "common/verbs/data_path.h"
#include "common/verbs/errors.h"

namespace verbena::client {
namespace {

constexpr uint64_t kLine = 64;
// Polls in vain between two looks at the clock.
constexpr uint32_t kPollsPerLook = 32;

}  // namespace

RawReads::RawReads(Connection::Impl& impl, uint32_t depth, uint32_t block_size)
    : impl_(impl),
      depth_(depth),
      block_size_(block_size),
      requests_(new ibv_send_wr[depth]),
      pieces_(new ibv_sge[depth]) {
  // An odd number of lines, so that blocks do not share sets of the caches.
  stride_ = AlignUp(block_size, kLine);
  if (stride_ / kLine % 2 == 0) stride_ += kLine;
}

absl::StatusOr<std::unique_ptr<RawReads>> RawReads::Create(Connection& connection, uint32_t depth,
                                                           uint32_t block_size) {
  Connection::Impl& impl = Access::ImplOf(connection);
  const uint32_t allowed = std::clamp(depth, 1U, impl.endpoint().read_depth());
  std::unique_ptr<RawReads> reads(new RawReads(impl, allowed, block_size));
  VERBENA_ASSIGN_OR_RETURN(
      reads->memory_, SharedMemory::Create("verbena-raw-reads", reads->stride_ * allowed, false));
  VERBENA_ASSIGN_OR_RETURN(
      reads->region_,
      verbs::MemoryRegion::Register(impl.endpoint().pd(), reads->memory_.data(),
                                    reads->memory_.size(), impl.endpoint().sink_access()));
  for (uint32_t place = 0; place < allowed; ++place) {
    reads->pieces_[place] = verbs::MakeSge(reads->block(place), block_size, reads->region_.lkey());
  }
  return reads;
}

absl::Status RawReads::Post(std::span<const uint32_t> places, std::span<const uint64_t> offsets) {
  assert(places.size() <= depth_ && places.size() == offsets.size());
  ibv_send_wr* list = nullptr;
  ibv_send_wr** tail = &list;
  for (size_t i = 0; i < places.size(); ++i) {
    ibv_send_wr& request = requests_[places[i]];
    request = verbs::MakeRead(WrId(RequestKind::kRead, {places[i], 0}).bits(), &pieces_[places[i]],
                              impl_.region_address_ + offsets[i], impl_.region_rkey());
    *tail = &request;
    tail = &request.next;
  }
  ibv_send_wr* bad = nullptr;
  return verbs::FromReturn(verbs::PostSend(impl_.endpoint().qp(), list, &bad), "ibv_post_send");
}

// The server may say something unasked in between, which is the connection's.
absl::StatusOr<uint32_t> RawReads::Poll(std::span<uint32_t> completed) {
  std::array<ibv_wc, 32> completions;
  const size_t most = std::min(completions.size(), completed.size());
  const int count = verbs::Poll(impl_.endpoint().cq(), {completions.data(), most});
  if (count < 0) return absl::InternalError("ibv_poll_cq failed");
  uint32_t reads = 0;
  for (int i = 0; i < count; ++i) {
    const ibv_wc& wc = completions[static_cast<size_t>(i)];
    const WrId id(wc.wr_id);
    if (wc.status == IBV_WC_SUCCESS && id.kind == RequestKind::kRead) {
      completed[reads++] = id.ref.slot;
    } else {
      impl_.OnOtherCompletion(wc);
      VERBENA_RETURN_IF_ERROR(impl_.lost());
    }
  }
  return reads;
}

absl::StatusOr<uint32_t> RawReads::Await(std::span<uint32_t> completed, int64_t deadline) {
  const int64_t poll_ns = std::chrono::nanoseconds(impl_.options_.poll_time).count();
  int64_t sleep_at = 0;
  for (uint32_t empty = 0;;) {
    VERBENA_ASSIGN_OR_RETURN(uint32_t found, Poll(completed));
    if (found > 0) return found;
    if (++empty % kPollsPerLook != 0 && poll_ns > 0) continue;
    const int64_t now = MonotonicNanos();
    if (now >= deadline) return absl::DeadlineExceededError("a READ does not complete");
    if (sleep_at == 0) sleep_at = now + poll_ns;
    if (now < sleep_at) continue;
    VERBENA_RETURN_IF_ERROR(impl_.endpoint_->Arm());
    VERBENA_ASSIGN_OR_RETURN(found, Poll(completed));
    if (found > 0) return found;
    if (impl_.endpoint_->Sleep(*impl_.waiter_, deadline)) {
      VERBENA_RETURN_IF_ERROR(impl_.endpoint_->CheckEvents());
    }
    sleep_at = 0;
  }
}

}  // namespace verbena::client
