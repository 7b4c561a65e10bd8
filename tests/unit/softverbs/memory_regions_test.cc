#include "common/softverbs/memory_regions.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <set>
#include <vector>

#include "common/base/shared_memory.h"
#include "common/base/unique_fd.h"
#include "common/softverbs/event_counter.h"

namespace verbena::softverbs {
namespace {

constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;

class MemoryRegionsTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(Device::Get(), nullptr);
    regions_ = MemoryRegions::Create();
    ASSERT_NE(regions_, nullptr);
    pd_.id = 3;
  }
  const MrEntry& Entry(const MemoryRegion* mr) {
    return regions_->table().entries[MrIndex(mr->rkey)];
  }

  std::unique_ptr<MemoryRegions> regions_;
  ProtectionDomain pd_;
  std::array<uint8_t, 4096> plain_{};
};

TEST_F(MemoryRegionsTest, BoundsAndRights) {
  MemoryRegion* mr = regions_->Register(&pd_, plain_.data(), 1000, IBV_ACCESS_REMOTE_READ);
  ASSERT_NE(mr, nullptr);
  const auto begin = reinterpret_cast<uint64_t>(plain_.data());
  EXPECT_TRUE(regions_->CheckLocal(mr->lkey, begin, 1000, 3, 0));
  EXPECT_TRUE(regions_->CheckLocal(mr->lkey, begin + 1000, 0, 3, 0));
  EXPECT_FALSE(regions_->CheckLocal(mr->lkey, begin + 1, 1000, 3, 0));
  EXPECT_FALSE(regions_->CheckLocal(mr->lkey, begin - 1, 1, 3, 0));
  EXPECT_FALSE(regions_->CheckLocal(mr->lkey, begin, ~uint64_t{0}, 3, 0));
  EXPECT_FALSE(regions_->CheckLocal(mr->lkey, begin, 8, 4, 0)) << "another PD";
  EXPECT_TRUE(regions_->CheckLocal(mr->lkey, begin, 8, 3, IBV_ACCESS_REMOTE_READ));
  for (const uint32_t missing : {uint32_t{IBV_ACCESS_LOCAL_WRITE},
                                 uint32_t{IBV_ACCESS_REMOTE_READ} | IBV_ACCESS_LOCAL_WRITE}) {
    EXPECT_FALSE(regions_->CheckLocal(mr->lkey, begin, 8, 3, missing)) << missing;
  }
  EXPECT_FALSE(regions_->CheckLocal(mr->lkey + 1, begin, 8, 3, 0));
  EXPECT_FALSE(regions_->CheckLocal(0, begin, 0, 3, 0));
  EXPECT_FALSE(regions_->CheckLocal(0xffffffff, begin, 8, 3, 0));
  EXPECT_EQ(pd_.users.load(), 1);
  const uint32_t key = mr->lkey;
  EXPECT_EQ(regions_->Deregister(mr), 0);
  EXPECT_FALSE(regions_->CheckLocal(key, begin, 8, 3, 0));
  EXPECT_EQ(pd_.users.load(), 0);
}

TEST_F(MemoryRegionsTest, RemoteChangeNeedsLocalWrite) {
  EXPECT_EQ(regions_->Register(&pd_, plain_.data(), 8, IBV_ACCESS_REMOTE_WRITE), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(regions_->Register(&pd_, plain_.data(), 8, IBV_ACCESS_REMOTE_ATOMIC), nullptr);
  EXPECT_EQ(regions_->Register(&pd_, plain_.data(), ~size_t{0}, kAll), nullptr) << "wraps around";
}

TEST_F(MemoryRegionsTest, MemoryThatIsNotThereIsRefused) {
  const size_t page = 4096;
  void* const mapped =
      mmap(nullptr, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  auto* const at = static_cast<uint8_t*>(mapped);
  ASSERT_EQ(mprotect(at + page, page, PROT_READ), 0);
  ASSERT_EQ(mprotect(at + 2 * page, page, PROT_NONE), 0);
  ASSERT_EQ(munmap(at + 3 * page, page), 0);
  const auto expect = [&](size_t from, size_t length, int access, bool good) {
    errno = 0;
    MemoryRegion* mr = regions_->Register(&pd_, at + from, length, access);
    EXPECT_EQ(mr != nullptr, good) << from << " " << length << " " << access;
    if (mr == nullptr) {
      EXPECT_EQ(errno, EFAULT);
    } else {
      regions_->Deregister(mr);
    }
  };
  expect(0, page, kAll, true);
  expect(0, 2 * page, IBV_ACCESS_REMOTE_READ, true);
  expect(page, page, 0, true);
  expect(0, page + 1, kAll, false);
  expect(page, 1, kAll, false);
  expect(page, page + 1, IBV_ACCESS_REMOTE_READ, false);
  expect(2 * page, 1, 0, false);
  expect(3 * page, 1, 0, false);
  expect(0, 4 * page, kAll, false);
  expect(3 * page, 0, kAll, true);
  EXPECT_EQ(pd_.users.load(), 0);
  munmap(mapped, 3 * page);
  EXPECT_EQ(regions_->Register(&pd_, reinterpret_cast<void*>(page), page, 0), nullptr);
  EXPECT_EQ(errno, EFAULT);
}

TEST_F(MemoryRegionsTest, FindsTheMemfdAndTheOffset) {
  auto memory = SharedMemory::Create("regions-test", 1 << 20, false);
  ASSERT_TRUE(memory.ok());
  // Two mappings of one file, and advice that splits the mapping.
  madvise(memory->data() + 8192, 4096, MADV_DONTDUMP);
  MemoryRegion* whole = regions_->Register(&pd_, memory->data(), memory->size(), kAll);
  MemoryRegion* part = regions_->Register(&pd_, memory->data() + 5000, 100, kAll);
  MemoryRegion* heap = regions_->Register(&pd_, plain_.data(), plain_.size(), kAll);
  ASSERT_TRUE(whole != nullptr && part != nullptr && heap != nullptr);
  EXPECT_NE(Entry(whole).memory.load(), 0u);
  EXPECT_EQ(Entry(whole).offset.load(), 0u);
  EXPECT_EQ(Entry(part).memory.load(), Entry(whole).memory.load());
  EXPECT_EQ(Entry(part).offset.load(), 5000u);
  EXPECT_EQ(Entry(heap).memory.load(), 0u);
  size_t announced = 0;
  regions_->ForEachMemory(3, [&](uint64_t, int fd) {
    ++announced;
    EXPECT_NE(fd, memory->fd()) << "a descriptor of its own";
  });
  EXPECT_EQ(announced, 1u);
  regions_->ForEachMemory(4, [&](uint64_t, int) { ADD_FAILURE() << "another PD"; });
  regions_->Deregister(part);
  regions_->Deregister(whole);
  regions_->ForEachMemory(3, [&](uint64_t, int) { ADD_FAILURE() << "nothing is left"; });
  regions_->Deregister(heap);
}

TEST_F(MemoryRegionsTest, KeysAreNotUsedAgainSoon) {
  std::set<uint32_t> keys;
  for (int i = 0; i < 1000; ++i) {
    MemoryRegion* mr = regions_->Register(&pd_, plain_.data(), 8, kAll);
    ASSERT_NE(mr, nullptr);
    EXPECT_TRUE(keys.insert(mr->rkey).second);
    regions_->Deregister(mr);
  }
}

// Whether the descriptor table holds `fd`.
bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(PeerProcessTest, MemoryLivesAsLongAsSomebodyHoldsIt) {
  auto memory = SharedMemory::Create("peer-test", 1 << 16, false);
  ASSERT_TRUE(memory.ok());
  memory->data()[77] = 7;
  PeerProcess peer;
  const int number = dup(memory->fd());
  auto first = peer.AdoptMemory(5, UniqueFd(number));
  ASSERT_NE(first, nullptr);
  const int duplicate = dup(memory->fd());
  auto second = peer.AdoptMemory(5, UniqueFd(duplicate));
  EXPECT_EQ(first, second) << "two links share it";
  EXPECT_FALSE(IsOpen(duplicate));
  // What a translation holds stays mapped when both links have let go.
  auto pinned = peer.FindMemory(5);
  const uint8_t* data = pinned->Map(false);
  ASSERT_NE(data, nullptr);
  first.reset();
  second.reset();
  EXPECT_TRUE(IsOpen(number));
  EXPECT_EQ(data[77], 7);
  EXPECT_NE(peer.FindMemory(5), nullptr);
  EXPECT_EQ(peer.FindMemory(6), nullptr);
  pinned.reset();
  EXPECT_FALSE(IsOpen(number));
  EXPECT_EQ(peer.FindMemory(5), nullptr);
  // It may be announced again.
  EXPECT_NE(peer.AdoptMemory(5, UniqueFd(dup(memory->fd()))), nullptr);
}

TEST(PeerProcessTest, ChannelsLiveAsLongAsSomebodyHoldsThem) {
  const EventCounter counter = EventCounter::CreateShared();
  PeerProcess peer;
  const int number = dup(counter.fd());
  auto first = peer.AdoptChannel(1, UniqueFd(number));
  ASSERT_NE(first, nullptr);
  auto second = peer.AdoptChannel(1, UniqueFd(dup(counter.fd())));
  EXPECT_EQ(first, second);
  first.reset();
  EXPECT_TRUE(IsOpen(number));
  second.reset();
  EXPECT_FALSE(IsOpen(number));
  EXPECT_EQ(peer.AdoptChannel(2, UniqueFd(open("/dev/null", O_RDWR | O_CLOEXEC))), nullptr);
}

TEST(CqNotifyTest, MarkReadySetsBothLevels) {
  auto notify = std::make_unique<CqNotify>();
  notify->MarkReady(0);
  notify->MarkReady(63);
  notify->MarkReady(64);
  notify->MarkReady(kMaxQps - 1);
  EXPECT_EQ(notify->groups[0].summary.load(), 3u);
  EXPECT_EQ(notify->groups[0].ready[0].load(), uint64_t{1} << 63 | 1);
  EXPECT_EQ(notify->groups[0].ready[1].load(), 1u);
  EXPECT_EQ(notify->groups[CqNotify::kGroups - 1].summary.load(), uint64_t{1} << 63);
}

}  // namespace
}  // namespace verbena::softverbs
