// The one descriptor of a connection: readable exactly when something has come, from each of its
// sources, also when these are replaced.
#include "client/src/waiter.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "common/base/clock.h"
#include "common/base/unique_fd.h"

namespace verbena::client {
namespace {

constexpr int64_t kMilli = 1'000'000;

std::unique_ptr<Waiter> Make() {
  auto waiter = Waiter::Create();
  EXPECT_TRUE(waiter.ok()) << waiter.status();
  return waiter.ok() ? *std::move(waiter) : nullptr;
}

bool Readable(int fd) {
  pollfd entry = {fd, POLLIN, 0};
  return poll(&entry, 1, 0) == 1;
}

UniqueFd Counter(uint64_t value) {
  UniqueFd fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (value != 0) {
    EXPECT_EQ(write(fd.get(), &value, sizeof(value)), ssize_t{sizeof(value)});
  }
  return fd;
}

TEST(Waiter, HasNothingAtFirst) {
  auto waiter = Make();
  EXPECT_FALSE(Readable(waiter->fd()));
  EXPECT_FALSE(waiter->Check().any());
  const int64_t before = MonotonicNanos();
  EXPECT_FALSE(waiter->Wait(before + 5 * kMilli).any());
  EXPECT_GE(MonotonicNanos(), before + 5 * kMilli);
  EXPECT_FALSE(waiter->Wait(before).any());  // a deadline that has passed
}

TEST(Waiter, TellsItsSourcesApart) {
  auto waiter = Make();
  const UniqueFd completions = Counter(0);
  const UniqueFd events = Counter(1);
  ASSERT_TRUE(waiter->Watch(Waiter::Source::kCompletions, completions.get()).ok());
  EXPECT_FALSE(Readable(waiter->fd()));
  ASSERT_TRUE(waiter->Watch(Waiter::Source::kEvents, events.get()).ok());
  EXPECT_TRUE(Readable(waiter->fd()));
  Waiter::Ready ready = waiter->Wait(INT64_MAX);
  EXPECT_TRUE(ready.events);
  EXPECT_FALSE(ready.completions || ready.timer || ready.woken);
  // It is not taken by looking.
  EXPECT_TRUE(waiter->Check().events);

  uint64_t value = 1;
  ASSERT_EQ(write(completions.get(), &value, sizeof(value)), ssize_t{sizeof(value)});
  ASSERT_EQ(read(events.get(), &value, sizeof(value)), ssize_t{sizeof(value)});
  ready = waiter->Check();
  EXPECT_TRUE(ready.completions);
  EXPECT_FALSE(ready.events);
}

TEST(Waiter, ReplacesASourceUnderTheSameDescriptor) {
  auto waiter = Make();
  const int fd = waiter->fd();
  UniqueFd first = Counter(1);
  const UniqueFd copy(dup(first.get()));  // as a process that was forked off has one
  ASSERT_TRUE(waiter->Watch(Waiter::Source::kCompletions, first.get()).ok());
  EXPECT_TRUE(Readable(fd));
  const UniqueFd second = Counter(0);
  ASSERT_TRUE(waiter->Watch(Waiter::Source::kCompletions, second.get()).ok());
  first.Reset();
  EXPECT_FALSE(Readable(fd));
  const uint64_t one = 1;
  ASSERT_EQ(write(second.get(), &one, sizeof(one)), ssize_t{sizeof(one)});
  EXPECT_TRUE(Readable(fd));
  EXPECT_TRUE(waiter->Check().completions);

  ASSERT_TRUE(waiter->Watch(Waiter::Source::kCompletions, -1).ok());
  EXPECT_FALSE(Readable(fd));
  EXPECT_EQ(waiter->fd(), fd);
  // The same one again.
  ASSERT_TRUE(waiter->Watch(Waiter::Source::kCompletions, second.get()).ok());
  EXPECT_TRUE(waiter->Check().completions);
}

TEST(Waiter, SourceThatWasClosedAlready) {
  auto waiter = Make();
  UniqueFd gone = Counter(1);
  ASSERT_TRUE(waiter->Watch(Waiter::Source::kEvents, gone.get()).ok());
  EXPECT_TRUE(waiter->Check().events);
  gone.Reset();
  EXPECT_FALSE(waiter->Check().any());
  EXPECT_TRUE(waiter->Watch(Waiter::Source::kEvents, -1).ok());
}

TEST(Waiter, WhatCannotBeWaitedOn) {
  auto waiter = Make();
  const UniqueFd file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(file.valid());
  const absl::Status status = waiter->Watch(Waiter::Source::kCompletions, file.get());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_FALSE(waiter->Check().any());
}

TEST(Waiter, Timer) {
  auto waiter = Make();
  const int64_t now = MonotonicNanos();
  waiter->WakeAt(INT64_MAX);
  EXPECT_FALSE(Readable(waiter->fd()));
  waiter->WakeAt(now + 10 * kMilli);
  // A later time does not put it off.
  waiter->WakeAt(now + 3'600'000 * kMilli);
  pollfd entry = {waiter->fd(), POLLIN, 0};
  ASSERT_EQ(poll(&entry, 1, 30'000), 1);
  EXPECT_GE(MonotonicNanos(), now + 10 * kMilli);
  EXPECT_TRUE(waiter->Check().timer);
  EXPECT_FALSE(waiter->Check().any());  // once

  // An earlier one brings it forward, and one that has passed fires at once.
  waiter->WakeAt(MonotonicNanos() + 3'600'000 * kMilli);
  waiter->WakeAt(now);
  EXPECT_TRUE(waiter->Wait(INT64_MAX).timer);
  waiter->WakeAt(0);
  EXPECT_TRUE(waiter->Wait(INT64_MAX).timer);
}

TEST(Waiter, IsWokenByAnotherThread) {
  auto waiter = Make();
  std::thread other([&waiter] { waiter->Wake(); });
  EXPECT_TRUE(waiter->Wait(INT64_MAX).woken);
  other.join();
  EXPECT_FALSE(waiter->Check().any());
  // Any number of wake-ups is one.
  waiter->Wake();
  waiter->Wake();
  EXPECT_TRUE(waiter->Check().woken);
  EXPECT_FALSE(waiter->Check().any());
}

TEST(Waiter, WithoutDescriptors) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  for (rlim_t allowed = 0; allowed < 3; ++allowed) {
    const UniqueFd next(dup(STDIN_FILENO));
    ASSERT_TRUE(next.valid());
    rlimit few = before;
    few.rlim_cur = static_cast<rlim_t>(next.get()) + 1 + allowed;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    const auto waiter = Waiter::Create();
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    ASSERT_EQ(waiter.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_NE(waiter.status().message().find("ulimit -n"), std::string::npos) << waiter.status();
  }
}

}  // namespace
}  // namespace verbena::client
