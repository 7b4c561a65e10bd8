// Completion queues and channels: overrun, events, acknowledgement, wake-ups under stress.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <thread>

#include "tests/conformance/endpoint.h"

namespace verbena::conformance {
namespace {

#if defined(VERBENA_TSAN) || defined(__SANITIZE_ADDRESS__)
constexpr int kStressRounds = 10'000;
#else
constexpr int kStressRounds = 100'000;
#endif

Options WithChannel() {
  Options options;
  options.use_channel = true;
  return options;
}

// Takes one event within the time and acknowledges it.
bool TakeEvent(Endpoint* end, int timeout_ms = kPatienceMs) {
  if (!Readable(end->channel->fd, timeout_ms)) return false;
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  if (Api().GetCqEvent(end->channel, &cq, &context) != 0 || cq != end->cq) return false;
  Api().AckCqEvents(cq, 1);
  return true;
}

TEST(CqTest, OverrunKillsQueueAndQp) {
  Options options;
  options.cqe = 4;
  Pair pair(options, {});
  for (uint64_t i = 0; i < 5; ++i) {
    ASSERT_EQ(pair.client->PostRead(i, 0, 8, Address(*pair.server), pair.server->mr->rkey), 0);
  }
  const ibv_async_event event = pair.client->WaitAsync();
  EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(event.element.cq, pair.client->cq);
  for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(pair.client->Wait().wr_id, i);
  ibv_wc wc;
  EXPECT_LT(ibv_poll_cq(pair.client->cq, 1, &wc), 0);
}

TEST(CqTest, EventFiresOncePerRequestAndForLaterCompletions) {
  Pair pair({}, WithChannel());
  for (uint64_t i = 0; i < 8; ++i) pair.server->PostRecv(i, i * 64, 64);
  pair.client->PostSend(1, 0, 8);
  EXPECT_FALSE(Readable(pair.server->channel->fd, 5)) << "not armed";
  EXPECT_EQ(pair.server->Wait().status, IBV_WC_SUCCESS);
  ASSERT_EQ(ibv_req_notify_cq(pair.server->cq, 0), 0);
  pair.client->PostSend(2, 0, 8);
  EXPECT_TRUE(TakeEvent(pair.server.get()));
  EXPECT_EQ(pair.server->Wait().status, IBV_WC_SUCCESS);
  pair.client->PostSend(3, 0, 8);
  EXPECT_FALSE(Readable(pair.server->channel->fd, 5)) << "one shot";
}

TEST(CqTest, SolicitedOnly) {
  Pair pair({}, WithChannel());
  for (uint64_t i = 0; i < 8; ++i) pair.server->PostRecv(i, i * 64, 64);
  ASSERT_EQ(ibv_req_notify_cq(pair.server->cq, 1), 0);
  pair.client->PostSend(1, 0, 8);
  EXPECT_FALSE(Readable(pair.server->channel->fd, 10));
  pair.client->PostSend(2, 0, 8, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
  EXPECT_TRUE(TakeEvent(pair.server.get()));
  EXPECT_EQ(pair.server->Wait().wr_id, 0u);
  EXPECT_EQ(pair.server->Wait().wr_id, 1u);
}

TEST(CqTest, SolicitedOnlyIncludesErrors) {
  Pair pair({}, WithChannel());
  pair.server->PostRecv(1, 0, 64);
  ASSERT_EQ(ibv_req_notify_cq(pair.server->cq, 1), 0);
  ASSERT_EQ(pair.server->ToError(), 0);
  EXPECT_TRUE(TakeEvent(pair.server.get()));
  EXPECT_EQ(pair.server->Wait().status, IBV_WC_WR_FLUSH_ERR);
}

TEST(CqTest, SendCompletionRaisesEvent) {
  Pair pair(WithChannel(), {});
  pair.server->PostRecv(1, 0, 64);
  ASSERT_EQ(ibv_req_notify_cq(pair.client->cq, 0), 0);
  pair.client->PostSend(2, 0, 8);
  ASSERT_EQ(ibv_req_notify_cq(pair.client->cq, 0), 0);
  // Nobody polls at the server: its device receives.
  EXPECT_TRUE(TakeEvent(pair.client.get()));
  EXPECT_EQ(pair.client->Wait().wr_id, 2u);
}

TEST(CqTest, ReadRaisesEvent) {
  Pair pair(WithChannel(), {});
  ASSERT_EQ(ibv_req_notify_cq(pair.client->cq, 0), 0);
  pair.client->PostRead(1, 0, 8, Address(*pair.server), pair.server->mr->rkey);
  EXPECT_TRUE(TakeEvent(pair.client.get()));
}

TEST(CqTest, NonBlockingChannel) {
  Pair pair({}, WithChannel());
  ibv_comp_channel* channel = pair.server->channel;
  ASSERT_EQ(fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
  ibv_cq* cq;
  void* context;
  EXPECT_EQ(Api().GetCqEvent(channel, &cq, &context), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(Api().DestroyCompChannel(channel), EBUSY);
}

TEST(CqTest, DestroyWaitsForAcknowledgement) {
  Pair pair({}, WithChannel());
  pair.server->PostRecv(1, 0, 64);
  ASSERT_EQ(ibv_req_notify_cq(pair.server->cq, 0), 0);
  pair.client->PostSend(1, 0, 8);
  ibv_cq* cq;
  void* context;
  ASSERT_TRUE(Readable(pair.server->channel->fd, kPatienceMs));
  ASSERT_EQ(Api().GetCqEvent(pair.server->channel, &cq, &context), 0);
  pair.server->DestroyQp();
  std::atomic<bool> destroyed{false};
  std::thread destroyer([&] {
    Api().DestroyCq(cq);
    destroyed = true;
  });
  EXPECT_FALSE(Readable(pair.server->channel->fd, 20));  // a pause
  EXPECT_FALSE(destroyed);
  Api().AckCqEvents(cq, 1);
  destroyer.join();
  pair.server->cq = nullptr;
}

// Two threads that sleep on their channels between messages. A lost wake-up hangs it.
TEST(CqTest, WakeUpStress) {
  Pair pair(WithChannel(), WithChannel());
  const auto run = [](Endpoint* end, bool first) {
    for (uint64_t i = 0; i < 8; ++i) end->PostRecv(i, i * 64, 64);
    if (first) end->PostSend(100, 1024, 8, IBV_SEND_SIGNALED);
    int received = 0;
    int sent = first ? 1 : 0;
    while (received < kStressRounds) {
      if (ibv_req_notify_cq(end->cq, 0) != 0) return false;
      ibv_wc wc;
      bool any = false;
      while (ibv_poll_cq(end->cq, 1, &wc) == 1) {
        any = true;
        if (wc.status != IBV_WC_SUCCESS) return false;
        if (wc.wr_id == 100) continue;
        ++received;
        end->PostRecv(wc.wr_id, wc.wr_id * 64, 64);
        if (sent < kStressRounds) {
          ++sent;
          if (end->PostSend(100, 1024, 8, IBV_SEND_SIGNALED) != 0) return false;
        }
      }
      if (any) continue;
      if (!TakeEvent(end)) return false;
    }
    return true;
  };
  bool server_good = false;
  std::thread server([&] { server_good = run(pair.server.get(), false); });
  EXPECT_TRUE(run(pair.client.get(), true));
  server.join();
  EXPECT_TRUE(server_good);
}

}  // namespace
}  // namespace verbena::conformance
