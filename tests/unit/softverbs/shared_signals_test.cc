// The descriptors that peers signal, in the hands of a peer that misuses them.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <thread>

#include "common/base/clock.h"
#include "common/softverbs/completion_queue.h"
#include "common/softverbs/device.h"

namespace verbena::softverbs {
namespace {

constexpr std::chrono::seconds kPatience{20};
constexpr uint64_t kManySignals = uint64_t{1} << 62;

// As a peer can that holds the same open file: clears O_NONBLOCK and writes one huge count.
void Misuse(int fd) {
  ASSERT_EQ(fcntl(fd, F_SETFL, 0), 0);
  ASSERT_EQ(write(fd, &kManySignals, sizeof(kManySignals)),
            static_cast<ssize_t>(sizeof(kManySignals)));
}

bool Readable(int fd) {
  pollfd entry = {fd, POLLIN, 0};
  return poll(&entry, 1, 0) == 1;
}

// Whether the service thread gets round to something new.
bool ServiceThreadAnswers() {
  auto answered = std::make_shared<std::promise<void>>();
  auto answer = answered->get_future();
  Device::Existing().service().RunAt(0, [answered] { answered->set_value(); });
  return answer.wait_for(kPatience) == std::future_status::ready;
}

TEST(SharedSignals, AHugeKickDoesNotHoldUpTheServiceThread) {
  ASSERT_NE(Device::Get(), nullptr);
  const int kick = Device::Existing().kick_fd();
  for (int round = 0; round < 3; ++round) {
    Misuse(kick);
    const int64_t deadline = MonotonicNanos() + std::chrono::nanoseconds(kPatience).count();
    while (Readable(kick) && MonotonicNanos() < deadline) std::this_thread::yield();
    EXPECT_FALSE(Readable(kick)) << "round " << round;
    ASSERT_TRUE(ServiceThreadAnswers()) << "round " << round;
  }
}

class SharedChannelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    context_ = Context::Open(Device::Get()->abi());
    channel_ = CompletionChannel::Create(context_);
    ASSERT_NE(channel_, nullptr);
    for (CompletionQueue*& cq : cqs_) {
      cq = CompletionQueue::Create(context_, 4, &cq, channel_);
      ASSERT_NE(cq, nullptr);
    }
  }
  void TearDown() override {
    for (CompletionQueue* cq : cqs_) {
      if (cq == nullptr) continue;
      EXPECT_EQ(cq->Destroy(), 0);
    }
    EXPECT_EQ(channel_->Destroy(), 0);
    delete context_;
  }
  static void Fire(CompletionQueue* cq) {
    cq->notify().control.store(static_cast<uint32_t>(ArmState::kArmed));
    cq->FireIfArmed(false);
  }
  // Collects an event; nullptr, with errno, if there is none.
  CompletionQueue* Take() {
    ibv_cq* cq = nullptr;
    void* of = nullptr;
    if (channel_->GetEvent(&cq, &of) != 0) return nullptr;
    CompletionQueue::From(cq)->AckEvents(1);
    return CompletionQueue::From(cq);
  }

  Context* context_ = nullptr;
  CompletionChannel* channel_ = nullptr;
  std::array<CompletionQueue*, 3> cqs_{};
};

TEST_F(SharedChannelTest, EveryFiredQueueGetsItsEvent) {
  ASSERT_EQ(fcntl(channel_->fd, F_SETFL, O_NONBLOCK), 0);
  EXPECT_FALSE(Readable(channel_->fd));
  for (CompletionQueue* cq : cqs_) Fire(cq);
  std::array<bool, 3> seen{};
  for (size_t i = 0; i < cqs_.size(); ++i) {
    EXPECT_TRUE(Readable(channel_->fd));
    CompletionQueue* taken = Take();
    for (size_t j = 0; j < cqs_.size(); ++j) seen[j] = seen[j] || taken == cqs_[j];
  }
  EXPECT_TRUE(seen[0] && seen[1] && seen[2]);
  EXPECT_EQ(Take(), nullptr);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_FALSE(Readable(channel_->fd));
}

TEST_F(SharedChannelTest, AnEventThatNobodyCollectedGoesWithItsQueue) {
  ASSERT_EQ(fcntl(channel_->fd, F_SETFL, O_NONBLOCK), 0);
  Fire(cqs_[0]);
  Fire(cqs_[1]);
  EXPECT_EQ(cqs_[0]->Destroy(), 0);
  cqs_[0] = nullptr;
  EXPECT_TRUE(Readable(channel_->fd)) << "the other's event stays";
  EXPECT_EQ(Take(), cqs_[1]);
  Fire(cqs_[1]);
  EXPECT_EQ(cqs_[1]->Destroy(), 0);
  cqs_[1] = nullptr;
  EXPECT_FALSE(Readable(channel_->fd));
}

TEST_F(SharedChannelTest, MisuseDoesNotHoldUpTheOwner) {
  ASSERT_EQ(fcntl(channel_->fd, F_SETFL, O_NONBLOCK), 0);
  ASSERT_EQ(channel_->ShareFd(), channel_->fd);
  Misuse(channel_->fd);
  EXPECT_EQ(Take(), nullptr);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_FALSE(Readable(channel_->fd)) << "the surplus is gone";
  Fire(cqs_[1]);
  Misuse(channel_->fd);
  EXPECT_EQ(Take(), cqs_[1]);
  EXPECT_EQ(Take(), nullptr) << "although O_NONBLOCK has been cleared";
  EXPECT_EQ(errno, EAGAIN);
}

}  // namespace
}  // namespace verbena::softverbs
