#include "common/softverbs/read_copy.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "common/softverbs/switches.h"

namespace verbena::softverbs {
namespace {

class ReadCopyTest : public testing::Test {
 protected:
  void TearDown() override { SetSwitches({}); }

  // Copies every size and alignment and looks at the neighbours.
  void CheckSizes() {
    alignas(64) static std::array<uint8_t, 10'000> from;
    static std::array<uint8_t, 10'000> to;
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i * 13 + i / 256);
    for (const size_t size :
         {size_t{0}, size_t{1}, size_t{7}, size_t{8}, size_t{9}, size_t{63}, size_t{64}, size_t{65},
          size_t{127}, size_t{128}, size_t{1000}, size_t{4096}, size_t{5001}}) {
      for (size_t from_shift = 0; from_shift < 17; ++from_shift) {
        for (const size_t to_shift : {size_t{0}, size_t{1}, size_t{8}}) {
          to.fill(0xee);
          ReadCopy(to.data() + 16 + to_shift, from.data() + from_shift, size);
          ASSERT_EQ(std::memcmp(to.data() + 16 + to_shift, from.data() + from_shift, size), 0);
          ASSERT_EQ(to[15 + to_shift], 0xee);
          ASSERT_EQ(to[16 + to_shift + size], 0xee);
          to.fill(0xee);
          WriteCopy(to.data() + 16 + from_shift, from.data() + to_shift, size);
          ASSERT_EQ(std::memcmp(to.data() + 16 + from_shift, from.data() + to_shift, size), 0);
          ASSERT_EQ(to[15 + from_shift], 0xee);
          ASSERT_EQ(to[16 + from_shift + size], 0xee);
        }
      }
    }
  }
};

TEST_F(ReadCopyTest, AllSizesAndAlignments) { CheckSizes(); }

TEST_F(ReadCopyTest, HostileCopiesAreWhole) {
  Switches switches;
  switches.read_random_order = true;
  switches.read_split_words = true;
  SetSwitches(switches);
  CheckSizes();
}

// A writer keeps all lines equal, changing them one after the other in ascending order. An
// in-order copy of a quiescent block is uniform; the hostile one must be seen to tear.
TEST_F(ReadCopyTest, RandomOrderTearsAcrossLines) {
  Switches switches;
  switches.read_random_order = true;
  switches.read_pause_ns = 2000;
  SetSwitches(switches);
  constexpr size_t kLines = 16;
  alignas(64) static std::array<uint64_t, kLines * 8> shared;
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (uint64_t value = 1; !stop.load(std::memory_order_relaxed); ++value) {
      for (uint64_t& word : shared) {
        std::atomic_ref<uint64_t>(word).store(value, std::memory_order_release);
      }
    }
  });
  bool backwards = false;  // an earlier line newer by itself proves nothing; a later one does
  std::array<uint64_t, kLines * 8> copy;
  for (int i = 0; i < 20'000 && !backwards; ++i) {
    ReadCopy(copy.data(), shared.data(), sizeof(copy));
    for (size_t line = 1; line < kLines; ++line) {
      if (copy[line * 8] > copy[(line - 1) * 8]) backwards = true;
    }
  }
  stop = true;
  writer.join();
  EXPECT_TRUE(backwards);
}

// Words of 8 bytes stay whole whatever is switched on.
TEST_F(ReadCopyTest, WordsAreNeverTorn) {
  alignas(64) static std::array<uint64_t, 512> shared{};
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (uint64_t value = 1; !stop.load(std::memory_order_relaxed); ++value) {
      for (uint64_t& word : shared) {
        std::atomic_ref<uint64_t>(word).store(value % 255 * 0x0101010101010101u,
                                              std::memory_order_relaxed);
      }
    }
  });
  std::array<uint64_t, 512> copy;
  bool whole = true;
  for (int i = 0; i < 2000; ++i) {
    Switches switches;
    switches.read_split_words = switches.read_random_order = i % 2 == 1;
    SetSwitches(switches);
    ReadCopy(copy.data(), shared.data(), sizeof(copy));
    for (const uint64_t word : copy) whole = whole && word % 0x0101010101010101u == 0;
  }
  stop = true;
  writer.join();
  EXPECT_TRUE(whole);
}

TEST(SwitchesTest, Environment) {
  setenv("VERBENA_SOFT_READ_ORDER", "random", 1);
  setenv("VERBENA_SOFT_READ_PAUSE_NS", "250", 1);
  setenv("VERBENA_SOFT_READ_SPLIT", "1", 1);
  setenv("VERBENA_SOFT_SEED", "99", 1);
  Switches switches = SwitchesFromEnvironment();
  EXPECT_TRUE(switches.read_random_order);
  EXPECT_TRUE(switches.read_split_words);
  EXPECT_EQ(switches.read_pause_ns, 250u);
  EXPECT_EQ(switches.seed, 99u);
  EXPECT_TRUE(switches.HostileReads());
  setenv("VERBENA_SOFT_READ_ORDER", "sideways", 1);
  setenv("VERBENA_SOFT_READ_PAUSE_NS", "-3", 1);
  unsetenv("VERBENA_SOFT_READ_SPLIT");
  switches = SwitchesFromEnvironment();
  EXPECT_FALSE(switches.HostileReads());
  unsetenv("VERBENA_SOFT_READ_ORDER");
  unsetenv("VERBENA_SOFT_READ_PAUSE_NS");
  unsetenv("VERBENA_SOFT_SEED");
}

}  // namespace
}  // namespace verbena::softverbs
