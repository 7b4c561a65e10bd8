#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/macros.h"
#include "common/base/net_address.h"
#include "common/base/relaxed_copy.h"
#include "common/base/shared_memory.h"
#include "common/base/sizes.h"
#include "common/base/spinlock.h"
#include "common/base/text.h"
#include "common/base/threads.h"
#include "common/base/unique_fd.h"
#include "tests/no_threads.h"

namespace verbena {
namespace {

using absl::StatusCode;

TEST(SizesTest, Parse) {
  const std::pair<const char*, uint64_t> good[] = {
      {"0", 0},
      {"512", 512},
      {"512B", 512},
      {"64KiB", 64 * kKiB},
      {"64K", 64 * kKiB},
      {"1MiB", kMiB},
      {"3M", 3 * kMiB},
      {"1GiB", kGiB},
      {"2G", 2 * kGiB},
      {"1TiB", kTiB},
      {"4T", 4 * kTiB},
      {"1.5GiB", kGiB + kGiB / 2},
      {"0.25KiB", 256},
      {"9007199254740993", 9007199254740993},  // 2^53 + 1: no way through a double
      {"8388607TiB", 8388607 * kTiB},
  };
  for (const auto& [text, bytes] : good) {
    const absl::StatusOr<uint64_t> size = ParseSize(text);
    ASSERT_TRUE(size.ok()) << text << ": " << size.status();
    EXPECT_EQ(*size, bytes) << text;
  }
}

TEST(SizesTest, ParseRefuses) {
  for (const char* text : {"",
                           "B",
                           "KiB",
                           "-1",
                           "-1KiB",
                           "+1",
                           "1 KiB",
                           " 1",
                           "1KB",
                           "1kib",
                           "0x10",
                           "1e3",
                           "nan",
                           "inf",
                           "1..5",
                           "1.5.5K",
                           ".",
                           "8388609TiB",
                           "99999999999999999999",
                           "12MiBs",
                           "1,5G"}) {
    const absl::StatusOr<uint64_t> size = ParseSize(text);
    EXPECT_EQ(size.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_NE(size.status().message().find(std::string("'") + text + "'"), absl::string_view::npos)
        << size.status();
  }
}

TEST(SizesTest, Format) {
  const std::pair<uint64_t, const char*> cases[] = {
      {0, "0B"},
      {100, "100B"},
      {1023, "1023B"},
      {1024, "1KiB"},
      {1536, "1.5KiB"},
      {kMiB, "1MiB"},
      {kMiB + kMiB / 4, "1.25MiB"},
      {10 * kGiB, "10GiB"},
      {3 * kTiB, "3TiB"},
  };
  for (const auto& [bytes, text] : cases) {
    EXPECT_EQ(FormatSize(bytes), text);
    EXPECT_EQ(*ParseSize(text), bytes);
  }
}

TEST(SizesTest, AlignUp) {
  EXPECT_EQ(AlignUp(0, 8), 0u);
  EXPECT_EQ(AlignUp(1, 8), 8u);
  EXPECT_EQ(AlignUp(8, 8), 8u);
  EXPECT_EQ(AlignUp(9, 6), 12u);
}

TEST(NetAddressTest, ParseAndPrint) {
  const std::pair<const char*, const char*> cases[] = {
      {"127.0.0.1:7400", "127.0.0.1:7400"},   {"0.0.0.0:0", "0.0.0.0:0"},
      {"[::1]:65535", "[::1]:65535"},         {"[fe80::1%lo]:1", "[fe80::1%lo]:1"},
      {"[2001:db8::1]:1", "[2001:db8::1]:1"}, {"localhost:80", nullptr},
  };
  for (const auto& [text, printed] : cases) {
    const absl::StatusOr<NetAddress> address = NetAddress::Parse(text);
    ASSERT_TRUE(address.ok()) << text << ": " << address.status();
    if (printed != nullptr) {
      EXPECT_EQ(address->ToString(), printed);
    }
  }
  NetAddress address = *NetAddress::Parse("127.0.0.1:7400");
  EXPECT_EQ(address.family(), AF_INET);
  EXPECT_EQ(address.length(), sizeof(sockaddr_in));
  EXPECT_EQ(address.port(), 7400);
  EXPECT_EQ(address.host(), "127.0.0.1");
  address.set_port(1);
  EXPECT_EQ(address.ToString(), "127.0.0.1:1");
  NetAddress six = *NetAddress::Parse("[::1]:9");
  EXPECT_EQ(six.family(), AF_INET6);
  EXPECT_EQ(six.length(), sizeof(sockaddr_in6));
  six.set_port(10);
  EXPECT_EQ(NetAddress(six.addr()).ToString(), "[::1]:10");
}

TEST(NetAddressTest, ParseRefuses) {
  for (const char* text :
       {"", "127.0.0.1", ":7400", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:http",
        "::1:7400", "[::1]", "[]:7400", "300.0.0.1:1", "no.such.host.invalid:1", "[fe80::1]:7400",
        "[fe80::1%]:7400", "[fe80::1%nowhere9]:7400", "[localhost]:7400", "[::1%lo]x:7400",
        "1.2.3.4.5:7400"}) {
    const absl::StatusOr<NetAddress> address = NetAddress::Parse(text);
    EXPECT_EQ(address.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_NE(address.status().message().find(std::string("'") + text + "'"),
              absl::string_view::npos)
        << address.status();
  }
}

// They name what to write.
TEST(NetAddressTest, LinkLocalAddressesNeedTheirInterface) {
  const absl::Status missing = SplitHostAndPort("[fe80::1]:7400").status();
  EXPECT_THAT(std::string(missing.message()),
              ::testing::AllOf(::testing::HasSubstr("which one is missing"),
                               ::testing::HasSubstr("[fe80::1%INTERFACE]:7400"),
                               ::testing::HasSubstr("(lo")));
  const absl::Status unknown = SplitHostAndPort("[fe80::1%nowhere9]:7400").status();
  EXPECT_THAT(std::string(unknown.message()),
              ::testing::AllOf(::testing::HasSubstr("this machine has no interface nowhere9"),
                               ::testing::HasSubstr("[fe80::1%INTERFACE]:7400")));
}

// Names are not looked up.
TEST(NetAddressTest, Splits) {
  const absl::StatusOr<HostAndPort> name = SplitHostAndPort("no.such.host.invalid:7400");
  ASSERT_TRUE(name.ok()) << name.status();
  EXPECT_EQ(name->host, "no.such.host.invalid");
  EXPECT_EQ(name->port, 7400);
  const absl::StatusOr<HostAndPort> six = SplitHostAndPort("[::1]:65535");
  ASSERT_TRUE(six.ok()) << six.status();
  EXPECT_EQ(six->host, "::1");
  EXPECT_EQ(six->port, 65535);
}

// A name server that does not answer is no fault of the text.
TEST(NetAddressTest, ErrorsOfResolution) {
  const absl::Status later = ResolutionError("host.example:7400", EAI_AGAIN);
  EXPECT_TRUE(absl::IsUnavailable(later)) << later;
  EXPECT_NE(later.message().find("host.example:7400"), std::string::npos);
  errno = ENFILE;
  const absl::Status system = ResolutionError("host.example:7400", EAI_SYSTEM);
  EXPECT_TRUE(absl::IsUnavailable(system)) << system;
  EXPECT_NE(system.message().find(std::strerror(ENFILE)), std::string::npos) << system;
  const absl::Status unknown = ResolutionError("host.example:7400", EAI_NONAME);
  EXPECT_TRUE(absl::IsInvalidArgument(unknown)) << unknown;
  EXPECT_NE(unknown.message().find("no host 'host.example'"), std::string::npos) << unknown;
}

TEST(NetAddressTest, LocalAndWildcard) {
  EXPECT_TRUE(NetAddress::Parse("127.0.0.1:1")->IsLocal());
  EXPECT_TRUE(NetAddress::Parse("127.3.2.1:1")->IsLocal());
  EXPECT_TRUE(NetAddress::Parse("0.0.0.0:1")->IsWildcard());
  EXPECT_TRUE(NetAddress::Parse("[::]:1")->IsWildcard());
  EXPECT_TRUE(NetAddress::Parse("0.0.0.0:1")->IsLocal());
  EXPECT_FALSE(NetAddress::Parse("127.0.0.1:1")->IsWildcard());
  EXPECT_FALSE(NetAddress::Parse("[::1]:1")->IsWildcard());
  // An address set aside for documentation.
  EXPECT_FALSE(NetAddress::Parse("192.0.2.1:1")->IsLocal());
  EXPECT_FALSE(NetAddress::Parse("[2001:db8::1]:1")->IsLocal());
}

TEST(SharedMemoryTest, IsZeroedAndShared) {
  absl::StatusOr<SharedMemory> memory = SharedMemory::Create("test", 10000, false);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->size(), 12288u);
  EXPECT_EQ(memory->bytes().size(), memory->size());
  EXPECT_EQ(memory->page_kind(), PageKind::kSmall);
  EXPECT_EQ(std::accumulate(memory->bytes().begin(), memory->bytes().end(), 0), 0);
  void* other = mmap(nullptr, memory->size(), PROT_READ, MAP_SHARED, memory->fd(), 0);
  ASSERT_NE(other, MAP_FAILED);
  memory->data()[9999] = 42;
  EXPECT_EQ(static_cast<const uint8_t*>(other)[9999], 42);
  munmap(other, memory->size());
}

TEST(SharedMemoryTest, IsFoundByItsAddressWhileItLives) {
  absl::StatusOr<SharedMemory> memory = SharedMemory::Create("test", 8192, false);
  absl::StatusOr<SharedMemory> other = SharedMemory::Create("test", 4096, false);
  ASSERT_TRUE(memory.ok() && other.ok());
  const auto found = SharedMemory::FileOf(memory->data() + 100, 8092);
  ASSERT_TRUE(found.has_value());
  struct stat status;
  ASSERT_EQ(fstat(memory->fd(), &status), 0);
  EXPECT_EQ(found->fd, memory->fd());
  EXPECT_EQ(found->device, status.st_dev);
  EXPECT_EQ(found->inode, status.st_ino);
  EXPECT_EQ(found->offset, 100u);
  EXPECT_TRUE(SharedMemory::FileOf(memory->data() + 8192, 0).has_value());
  EXPECT_FALSE(SharedMemory::FileOf(memory->data(), 8193).has_value());
  EXPECT_FALSE(SharedMemory::FileOf(memory->data(), ~uint64_t{0}).has_value());
  EXPECT_FALSE(SharedMemory::FileOf(nullptr, 1).has_value());
  EXPECT_FALSE(SharedMemory::FileOf(&status, sizeof status).has_value());

  uint8_t* const at = memory->data();
  SharedMemory moved = *std::move(memory);
  EXPECT_TRUE(SharedMemory::FileOf(at, 1).has_value());
  moved = *std::move(other);  // the moved-from one has the first mapping now
  EXPECT_TRUE(SharedMemory::FileOf(at, 1).has_value());
  other = absl::UnknownError("gone");
  EXPECT_FALSE(SharedMemory::FileOf(at, 1).has_value());
  EXPECT_TRUE(SharedMemory::FileOf(moved.data(), 4096).has_value());
}

TEST(SharedMemoryTest, WithHugePagesWantedItWorksEitherWay) {
  absl::StatusOr<SharedMemory> memory = SharedMemory::Create("test", 3 * kMiB, true);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_GE(memory->size(), 3 * kMiB);
  memory->data()[memory->size() - 1] = 1;
  EXPECT_NE(std::string(PageKindName(memory->page_kind())), "");
}

// The word in brackets of a file of /sys, such as "never" of "always within_size advise [never]".
std::string Chosen(const std::string& path) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t open = text.find('[');
  return open == std::string::npos ? "" : text.substr(open + 1, text.find(']') - open - 1);
}

// What the banner and `doctor` say of the region's pages must be one thing.
TEST(SharedMemoryTest, TransparentHugePagesAreClaimedOnlyWhereTheKernelGivesThem) {
  const std::string settings = "/sys/kernel/mm/transparent_hugepage/";
  std::string policy = Chosen(settings + "hugepages-2048kB/shmem_enabled");  // since Linux 6.14
  if (policy.empty() || policy == "inherit") policy = Chosen(settings + "shmem_enabled");
  const bool given = !policy.empty() && policy != "never" && policy != "deny";
  absl::StatusOr<SharedMemory> memory = SharedMemory::Create("test", 4 * kMiB, true);
  ASSERT_TRUE(memory.ok()) << memory.status();
  if (memory->page_kind() == PageKind::kHugeTlb)
    return;  // reserved ones: nothing else is asked for
  EXPECT_EQ(memory->page_kind(), given ? PageKind::kTransparent : PageKind::kSmall) << policy;
}

TEST(SharedMemoryTest, TooMuchIsAnErrorThatNamesTheSize) {
  const absl::StatusOr<SharedMemory> memory =
      SharedMemory::Create("test", uint64_t{1} << 62, false);
  EXPECT_EQ(memory.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(memory.status().message().find(FormatSize(uint64_t{1} << 62)), absl::string_view::npos)
      << memory.status();
}

TEST(SharedMemoryTest, SealedItCannotBeMappedForWriting) {
  absl::StatusOr<SharedMemory> memory = SharedMemory::Create("test", 4096, false);
  ASSERT_TRUE(memory.ok());
  ASSERT_TRUE(memory->SealFutureWrites().ok());
  EXPECT_EQ(mmap(nullptr, 4096, PROT_WRITE, MAP_SHARED, memory->fd(), 0), MAP_FAILED);
  EXPECT_NE(ftruncate(memory->fd(), 8192), 0);
  memory->data()[0] = 1;
}

TEST(SharedMemoryTest, Moves) {
  absl::StatusOr<SharedMemory> one = SharedMemory::Create("one", 4096, false);
  absl::StatusOr<SharedMemory> two = SharedMemory::Create("two", 8192, false);
  ASSERT_TRUE(one.ok() && two.ok());
  one->data()[0] = 1;
  two->data()[0] = 2;
  SharedMemory moved = *std::move(one);
  EXPECT_EQ(moved.data()[0], 1);
  moved = *std::move(two);
  EXPECT_EQ(moved.data()[0], 2);
  EXPECT_EQ(moved.size(), 8192u);
}

// Every alignment of both sides and every size, with guards around the target.
TEST(RelaxedCopyTest, CopiesExactlyTheBytes) {
  alignas(8) std::array<uint8_t, 64> source;
  std::iota(source.begin(), source.end(), uint8_t{1});
  for (size_t from = 0; from < 8; ++from) {
    for (size_t to = 0; to < 8; ++to) {
      for (size_t size = 0; size <= 40; ++size) {
        alignas(8) std::array<uint8_t, 64> expected;
        expected.fill(0xee);
        std::memcpy(expected.data() + to, source.data() + from, size);
        alignas(8) std::array<uint8_t, 64> target;
        target.fill(0xee);
        CopyFromShared(target.data() + to, source.data() + from, size);
        ASSERT_EQ(target, expected) << from << " " << to << " " << size;
        target.fill(0xee);
        CopyToShared(target.data() + to, source.data() + from, size);
        ASSERT_EQ(target, expected) << from << " " << to << " " << size;
      }
    }
  }
}

// A reader may see old and new words, but no word that is half old.
TEST(RelaxedCopyTest, AlignedWordsAreNotTorn) {
  alignas(8) std::array<uint64_t, 16> shared{};
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    std::array<uint64_t, 16> words;
    for (uint64_t n = 0; !stop.load(std::memory_order_relaxed); ++n) {
      words.fill(n % 256 * 0x0101010101010101);
      CopyToShared(shared.data(), words.data(), sizeof(words));
    }
  });
  int torn = 0;
  for (int i = 0; i < 20000; ++i) {
    std::array<uint64_t, 16> words;
    CopyFromShared(words.data(), shared.data(), sizeof(words));
    for (const uint64_t word : words) torn += word % 0x0101010101010101 != 0 ? 1 : 0;
  }
  stop.store(true, std::memory_order_relaxed);
  writer.join();
  EXPECT_EQ(torn, 0);
}

TEST(RelaxedCopyTest, Words) {
  alignas(8) uint64_t word = 5;
  EXPECT_EQ(LoadRelaxed(&word), 5u);
  StoreRelease(&word, 6);
  EXPECT_EQ(LoadAcquire(&word), 6u);
}

TEST(SpinLockTest, Excludes) {
  SpinLock lock;
  uint64_t count = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 20000; ++n) {
        const std::lock_guard guard(lock);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 80000u);
  EXPECT_TRUE(lock.try_lock());
  EXPECT_FALSE(lock.try_lock());
  lock.unlock();
  EXPECT_TRUE(lock.try_lock());
  lock.unlock();
}

TEST(UniqueFdTest, ClosesOnce) {
  const auto is_open = [](int fd) { return fcntl(fd, F_GETFD) >= 0; };
  int raw = -1;
  {
    UniqueFd fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(fd.valid());
    raw = fd.get();
    UniqueFd moved(std::move(fd));
    EXPECT_EQ(moved.get(), raw);
    fd = std::move(moved);
    EXPECT_EQ(fd.get(), raw);
    EXPECT_TRUE(is_open(raw));
  }
  EXPECT_FALSE(is_open(raw));
  UniqueFd released(open("/dev/null", O_RDONLY | O_CLOEXEC));
  raw = released.Release();
  EXPECT_FALSE(released.valid());
  EXPECT_TRUE(is_open(raw));
  close(raw);
}

TEST(ClockTest, MonotonicDoesNotGoBack) {
  int64_t last = MonotonicNanos();
  for (int i = 0; i < 1000; ++i) {
    const int64_t now = MonotonicNanos();
    ASSERT_GE(now, last);
    last = now;
  }
  EXPECT_GT(UnixNanos(), int64_t{1600000000} * 1000000000);
}

absl::StatusOr<int> Half(int n) {
  if (n % 2 != 0) return absl::InvalidArgumentError("odd");
  return n / 2;
}
absl::StatusOr<int> Quarter(int n) {
  VERBENA_ASSIGN_OR_RETURN(const int half, Half(n));
  VERBENA_ASSIGN_OR_RETURN(const int quarter, Half(half));
  return quarter;
}
absl::Status Check(int n) {
  VERBENA_RETURN_IF_ERROR(Half(n).status());
  return absl::OkStatus();
}

TEST(MacrosTest, ReturnEarly) {
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_EQ(Quarter(6).status().message(), "odd");
  EXPECT_TRUE(Check(2).ok());
  EXPECT_FALSE(Check(3).ok());
}

// Standard output is the program's.
TEST(LogTest, ALibraryThatNobodyHasSetUpLogsToStandardError) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  LogError("something is ", "wrong");
  LogDebug("details");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "verbena: error: something is wrong\n");
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
}

TEST(ThreadsTest, RunOrSayWhyNot) {
  std::atomic<bool> ran{false};
  const auto run = [&] { ran = true; };
  {
    const testing::NoThreads none;
    const absl::StatusOr<std::thread> thread = MakeThread("the test", run);
    EXPECT_TRUE(absl::IsResourceExhausted(thread.status())) << thread.status();
    EXPECT_THAT(std::string(thread.status().message()), ::testing::HasSubstr("for the test"));
  }
  EXPECT_FALSE(ran);
  absl::StatusOr<std::thread> thread = MakeThread("the test", run);
  ASSERT_TRUE(thread.ok()) << thread.status();
  thread->join();
  EXPECT_TRUE(ran);
}

TEST(TextTest, BothWays) {
  const std::string text("a\0b", 3);
  EXPECT_EQ(ToAbsl(text).size(), 3u);
  EXPECT_EQ(ToStd(ToAbsl(text)), std::string_view(text));
}

// A process that maps it must be able to rely on its pages.
TEST(SharedMemoryTest, CannotBeTruncated) {
  const auto memory = SharedMemory::Create("test", 2 * kMiB, /*want_huge=*/false);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_NE(ftruncate(memory->fd(), 0), 0);
}

}  // namespace
}  // namespace verbena
