#include "client/src/slice_shape.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace verbena::client {
namespace {

using layout::RegionHeader;

absl::Status Damaged(const char* what, uint64_t value) {
  return absl::DataLossError(
      absl::StrCat("the server's region header is damaged: ", what, " is ", value));
}

}  // namespace

absl::StatusOr<SliceShape> SliceShape::FromHeader(const RegionHeader& header, uint64_t size,
                                                  uint64_t epoch, uint64_t max_item_size) {
  if (header.magic != layout::kRegionMagic) {
    return absl::DataLossError(
        absl::StrFormat("the server's region begins with 0x%016x, not with Verbena's mark 0x%016x",
                        header.magic, layout::kRegionMagic));
  }
  if (header.layout_version != layout::kLayoutVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the server's region has layout version ", header.layout_version,
                     ", this client reads version ", layout::kLayoutVersion));
  }
  if (header.epoch == 0 || header.epoch != epoch) return Damaged("epoch", header.epoch);
  if (header.slice_size != size || size > layout::kMaxSliceSize) {
    return Damaged("slice size", header.slice_size);
  }
  if (header.directory_depth > layout::kMaxDepth) {
    return Damaged("directory depth", header.directory_depth);
  }
  const uint64_t directory_size = sizeof(layout::DirectoryEntry) << header.directory_depth;
  if (directory_size < layout::kDirectoryPageSize) {
    return Damaged("directory depth", header.directory_depth);
  }
  if (header.heap_end > size || header.heap_begin >= header.heap_end ||
      header.heap_begin % layout::kPageSize != 0 || header.heap_end % layout::kPageSize != 0) {
    return Damaged("heap end", header.heap_end);
  }
  if (header.directory_offset < sizeof(RegionHeader) ||
      header.directory_offset % layout::kDirectoryPageSize != 0 ||
      header.directory_offset > header.heap_begin ||
      directory_size > header.heap_begin - header.directory_offset) {
    return Damaged("directory offset", header.directory_offset);
  }
  SliceShape shape;
  shape.size = size;
  shape.epoch = epoch;
  shape.hash_seed = header.hash_seed;
  shape.directory_offset = header.directory_offset;
  shape.directory_depth = static_cast<unsigned>(header.directory_depth);
  shape.heap_begin = header.heap_begin;
  shape.heap_end = header.heap_end;
  shape.max_item_size = max_item_size;
  return shape;
}

}  // namespace verbena::client
