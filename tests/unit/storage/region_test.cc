#include "server/storage/region.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "common/base/sizes.h"
#include "common/layout/bucket.h"

namespace verbena::storage {
namespace {

RegionOptions Options(uint64_t size) {
  RegionOptions options;
  options.size = size;
  options.want_huge_pages = false;
  return options;
}

TEST(RegionTest, HeaderSaysWhereThingsAre) {
  absl::StatusOr<Region> region = Region::Create(Options(16 * kMiB));
  ASSERT_TRUE(region.ok()) << region.status();
  const layout::RegionHeader& header = region->header();
  EXPECT_EQ(header.magic, layout::kRegionMagic);
  EXPECT_EQ(header.layout_version, layout::kLayoutVersion);
  EXPECT_NE(header.epoch, 0u);
  EXPECT_NE(header.hash_seed, 0u);
  EXPECT_EQ(header.slice_size, 16 * kMiB);
  EXPECT_EQ(header.directory_depth, 10u);
  EXPECT_EQ(header.directory_offset, 4096u);
  EXPECT_EQ(header.heap_begin, 1 * kMiB);
  EXPECT_EQ(header.heap_end, 16 * kMiB);
  EXPECT_EQ(region->heap_pages(), 15u);
  EXPECT_EQ(region->directory().size(), 1024u);
  // The bytes say the same.
  EXPECT_EQ(std::memcmp(region->base(), &header, sizeof(header)), 0);
}

TEST(RegionTest, EachHasAnEpochAndASeedOfItsOwn) {
  absl::StatusOr<Region> one = Region::Create(Options(kMinSliceSize));
  absl::StatusOr<Region> two = Region::Create(Options(kMinSliceSize));
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_NE(one->epoch(), two->epoch());
  EXPECT_NE(one->hash_seed(), two->hash_seed());
}

TEST(RegionTest, SizesOutOfRangeAreNamed) {
  for (const uint64_t size : {uint64_t{0}, kMinSliceSize - 1, layout::kMaxSliceSize + 1}) {
    const absl::StatusOr<Region> region = Region::Create(Options(size));
    EXPECT_EQ(region.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(region.status().message().find(FormatSize(size)), absl::string_view::npos)
        << region.status();
  }
}

TEST(RegionTest, CannotBeMappedForWritingByOthers) {
  absl::StatusOr<Region> region = Region::Create(Options(kMinSliceSize));
  ASSERT_TRUE(region.ok());
  void* writable = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, region->fd(), 0);
  EXPECT_EQ(writable, MAP_FAILED);
  EXPECT_EQ(errno, EPERM);
  void* readable = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, region->fd(), 0);
  ASSERT_NE(readable, MAP_FAILED);
  EXPECT_EQ(static_cast<const layout::RegionHeader*>(readable)->epoch, region->epoch());
  EXPECT_NE(mprotect(readable, 4096, PROT_READ | PROT_WRITE), 0);
  munmap(readable, 4096);
  // Its own mapping stays writable.
  region->base()[region->size() - 1] = 1;
  EXPECT_EQ(region->base()[region->size() - 1], 1);
}

TEST(RegionTest, PreTouchReportsProgressUpToTheEnd) {
  RegionOptions options = Options(64 * kMiB);
  options.touch_threads = 2;
  std::vector<uint64_t> done;
  options.progress = [&](uint64_t bytes, uint64_t total) {
    EXPECT_EQ(total, 64 * kMiB);
    done.push_back(bytes);
  };
  absl::StatusOr<Region> region = Region::Create(options);
  ASSERT_TRUE(region.ok()) << region.status();
  ASSERT_FALSE(done.empty());
  EXPECT_EQ(done.back(), 64 * kMiB);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  // Every page is in memory.
  std::vector<unsigned char> in_core(region->size() / 4096);
  ASSERT_EQ(mincore(region->base(), region->size(), in_core.data()), 0);
  EXPECT_EQ(std::count_if(in_core.begin(), in_core.end(), [](auto c) { return (c & 1) == 0; }), 0);
}

TEST(RegionTest, FormatsMemoryOfTheCaller) {
  constexpr uint64_t kSize = kMinSliceSize;
  struct Free {
    void operator()(uint8_t* p) const { ::operator delete[](p, std::align_val_t{4096}); }
  };
  const std::unique_ptr<uint8_t, Free> memory(
      static_cast<uint8_t*>(::operator new[](kSize, std::align_val_t{4096})));
  std::memset(memory.get(), 0, kSize);
  absl::StatusOr<Region> region = Region::Format({memory.get(), kSize});
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_EQ(region->base(), memory.get());
  EXPECT_EQ(region->fd(), -1);
  EXPECT_EQ(Region::Format({memory.get() + 64, kSize}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Region::Format({memory.get(), kSize - 1}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace verbena::storage
