#include "server/net/read_window.h"

#include <gtest/gtest.h>

namespace verbena::net {
namespace {

constexpr int64_t kQuick = 1'000'000;
constexpr int64_t kRepeated = 67'000'000;  // ns: an ack timeout of code 14

// READs the whole window, each piece in `nanos`.
void ReadOneWindow(ReadWindow& window, int64_t nanos) {
  uint64_t left = window.size();
  while (left > 0) {
    const uint64_t bytes = std::min(left, window.piece());
    window.OnRead(bytes, nanos);
    left -= bytes;
  }
}

TEST(ReadWindow, DoublesUntilTheLinkIsFull) {
  ReadWindow window;
  EXPECT_EQ(window.size(), ReadWindow::kFirst);
  for (uint64_t expected = 2 * ReadWindow::kFirst; expected <= ReadWindow::kMost; expected *= 2) {
    ReadOneWindow(window, kQuick);
    EXPECT_EQ(window.size(), expected);
  }
  EXPECT_EQ(window.piece(), kReadPiece);
  ReadOneWindow(window, kQuick);
  EXPECT_EQ(window.size(), ReadWindow::kMost);
}

TEST(ReadWindow, HalvesOnceForAWindowThatWasLate) {
  ReadWindow window;
  while (window.size() < ReadWindow::kMost) ReadOneWindow(window, kQuick);
  for (int i = 0; i < 4; ++i) window.OnRead(kReadPiece, kRepeated);
  EXPECT_EQ(window.size(), ReadWindow::kMost / 2);
  window.OnRead(window.piece(), kRepeated);
  EXPECT_EQ(window.size(), ReadWindow::kMost / 4);
}

TEST(ReadWindow, OneReadOfTheLeastSizeIsLeft) {
  ReadWindow window;
  for (int i = 0; i < 20; ++i) ReadOneWindow(window, kRepeated);
  EXPECT_EQ(window.size(), ReadWindow::kLeast);
  EXPECT_EQ(window.piece(), ReadWindow::kLeast);
  EXPECT_TRUE(window.HasRoom(0));
  EXPECT_FALSE(window.HasRoom(1));
  // And grows again.
  ReadOneWindow(window, kQuick);
  ReadOneWindow(window, kQuick);
  EXPECT_GT(window.size(), ReadWindow::kLeast);
}

TEST(ReadWindow, PiecesFillIt) {
  ReadWindow window;
  for (int i = 0; i < 10; ++i) {
    uint64_t in_flight = 0;
    int reads = 0;
    while (window.HasRoom(in_flight)) {
      in_flight += window.piece();
      ++reads;
    }
    EXPECT_LE(in_flight, window.size());
    EXPECT_EQ(reads, int{kReadsInFlight}) << window.size();
    ReadOneWindow(window, kQuick);
  }
}

TEST(ReadWindow, WhatIsLateFollowsTheAckTimeout) {
  ReadWindow shortest(1);  // 8 us: repeats as often as it may, whatever the link is like
  shortest.OnRead(ReadWindow::kLeast, 9'000'000);
  EXPECT_GT(shortest.size(), ReadWindow::kFirst);
  shortest.OnRead(ReadWindow::kLeast, 11'000'000);
  EXPECT_LT(shortest.size(), ReadWindow::kFirst);
  ReadWindow usual(14);
  usual.OnRead(ReadWindow::kLeast, 30'000'000);
  EXPECT_GT(usual.size(), ReadWindow::kFirst);
  usual.OnRead(ReadWindow::kLeast, 40'000'000);
  EXPECT_LT(usual.size(), ReadWindow::kFirst);
  ReadWindow longest(31);
  longest.OnRead(ReadWindow::kLeast, 110'000'000);
  EXPECT_LT(longest.size(), ReadWindow::kFirst);
}

}  // namespace
}  // namespace verbena::net
