// Connecting with Options::preload: the whole index is READ into the cache, with few large READs.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "client/src/connection_impl.h"
#include "common/base/macros.h"
#include "common/layout/bucket.h"
#include "common/layout/directory.h"

namespace verbena {
namespace {

// Pieces of the directory, and whole segments, are READ one after another into places of this size.
constexpr uint32_t kPlaceBytes = 64 * 1024;
static_assert(layout::kSegmentSize <= kPlaceBytes && kPlaceBytes % layout::kDirectoryPageSize == 0);
// READs under way at once: while one is taken in, the others keep the link busy.
constexpr size_t kPlaces = 4;

}  // namespace

// READs `length` bytes (at most a place's) from each offset, several at once, and hands what came
// to `take` with the number of its offset, in their order.
absl::Status Connection::Impl::ReadPieces(
    const std::vector<uint64_t>& offsets, uint32_t length,
    const std::function<void(size_t number, const uint8_t* bytes)>& take) {
  VERBENA_ASSIGN_OR_RETURN(client::LargeBuffers::Buffer* const buffer,
                           large_buffers_.Acquire(kPlaces * kPlaceBytes));
  if (buffer == nullptr) return absl::InternalError("no memory is left for a preload's READs");
  std::array<SyncCall, kPlaces> calls;
  const size_t at_once = std::min<size_t>(kPlaces, options_.depth);
  absl::Status status;
  size_t begun = 0;
  for (size_t ended = 0; ended < begun || (status.ok() && ended < offsets.size());) {
    const bool more = status.ok() && begun < offsets.size();
    if (more && begun - ended < at_once) {
      SyncCall& call = calls[begun % at_once];
      call = {};
      const absl::StatusOr<Operation*> op = AcquireSync(OperationKind::kRawRead, &call);
      if (!op.ok()) {
        status = op.status();
        continue;
      }
      // Its own until it is finished; then it is used again.
      (*op)->space = buffer;
      (*op)->step = {.action = Lookup::Action::kRead,
                     .in_space = true,
                     .length = length,
                     .offset = offsets[begun],
                     .target = buffer->bytes().data() + begun % at_once * kPlaceBytes};
      QueueRead(**op);
      ++begun;
      continue;
    }
    // Also after an error: what is under way ends before its place does.
    SyncCall& call = calls[ended % at_once];
    FinishSync(&call);
    if (status.ok()) status = call.status;
    if (status.ok()) take(ended, buffer->bytes().data() + ended % at_once * kPlaceBytes);
    ++ended;
  }
  large_buffers_.Release(buffer);
  return status;
}

// The whole directory, then as many segments as the cache has room for.
absl::Status Connection::Impl::Preload() {
  client::IndexCache& index = *context_->index;
  const client::SliceShape& shape = context_->shape;
  const auto piece = static_cast<uint32_t>(std::min<uint64_t>(shape.directory_size(), kPlaceBytes));
  std::vector<uint64_t> offsets;
  for (uint64_t at = 0; at < shape.directory_size(); at += piece) {
    offsets.push_back(shape.directory_offset + at);
  }
  std::vector<uint64_t> words(piece / sizeof(uint64_t));
  VERBENA_RETURN_IF_ERROR(ReadPieces(offsets, piece, [&](size_t number, const uint8_t* bytes) {
    std::memcpy(words.data(), bytes, piece);
    index.segments.Learn(number * words.size(), words);
    context_->counters.directory_reads += piece / layout::kDirectoryPageSize;
  }));
  const std::vector<client::SegmentRef> segments = index.segments.Segments(index.buckets.frames());
  offsets.clear();
  for (const client::SegmentRef& segment : segments) offsets.push_back(segment.offset);
  return ReadPieces(offsets, layout::kSegmentSize, [&](size_t number, const uint8_t* bytes) {
    index.StoreSegment(segments[number], {bytes, layout::kSegmentSize});
  });
}

}  // namespace verbena
