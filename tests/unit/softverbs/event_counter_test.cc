// What a peer may pass as an event counter, and that signalling never waits.

#include "common/softverbs/event_counter.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "common/base/unique_fd.h"

namespace verbena::softverbs {
namespace {

TEST(EventCounter, OnlyEventCountersPass) {
  const EventCounter counter = EventCounter::Create();
  EXPECT_TRUE(EventCounter::IsEventCounter(counter.fd()));
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  const UniqueFd writer(ends[1]);
  EXPECT_FALSE(EventCounter::IsEventCounter(writer.get()));
  EXPECT_FALSE(EventCounter::IsEventCounter(-1));
}

TEST(EventCounter, SignallingAFullCounterReturns) {
  const EventCounter counter = EventCounter::Create();
  const uint64_t almost_all = UINT64_MAX - 1;
  ASSERT_EQ(write(counter.fd(), &almost_all, sizeof(almost_all)),
            static_cast<ssize_t>(sizeof(almost_all)));
  EventCounter::SignalFd(counter.fd());
  EXPECT_EQ(counter.Take(), 0);
}

TEST(EventCounter, TryTakeNeverWaits) {
  for (const bool shared : {false, true}) {
    const EventCounter counter = shared ? EventCounter::CreateShared() : EventCounter::Create();
    ASSERT_EQ(fcntl(counter.fd(), F_GETFL) & O_NONBLOCK, 0);
    EXPECT_EQ(counter.TryTake(), -1);
    EXPECT_EQ(errno, EAGAIN);
    counter.Signal();
    counter.Signal();
    EXPECT_EQ(counter.TryTake(), 0);
    EXPECT_EQ(counter.TryTake(), shared ? -1 : 0) << "a shared counter gives all at once";
    EXPECT_EQ(counter.TryTake(), -1);
  }
}

}  // namespace
}  // namespace verbena::softverbs
