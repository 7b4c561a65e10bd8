// Shared receive queues: limit event, sharing, overflow, what an error leaves alone.
#include <gtest/gtest.h>

#include <cerrno>

#include "tests/conformance/endpoint.h"

namespace verbena::conformance {
namespace {

Options WithSrq(uint32_t entries) {
  Options options;
  options.srq_wr = entries;
  return options;
}

void Consume(Pair* pair, int count) {
  for (int i = 0; i < count; ++i) {
    ASSERT_EQ(pair->client->PostSend(1, 0, 8), 0);
    ASSERT_EQ(pair->server->Wait().status, IBV_WC_SUCCESS);
    ASSERT_EQ(pair->client->Wait().status, IBV_WC_SUCCESS);
  }
}

void Arm(Endpoint* end, uint32_t limit) {
  ibv_srq_attr attr{};
  attr.srq_limit = limit;
  ASSERT_EQ(Api().ModifySrq(end->srq, &attr, IBV_SRQ_LIMIT), 0);
}

TEST(SrqTest, LimitEventUnderNotAtAndOnce) {
  Pair pair({}, WithSrq(16));
  for (uint64_t i = 0; i < 10; ++i) ASSERT_EQ(pair.server->PostSrqRecv(i, i * 64, 64), 0);
  Arm(pair.server.get(), 8);
  Consume(&pair, 2);  // 8 left
  EXPECT_FALSE(Readable(pair.server->context->async_fd, 5));
  Consume(&pair, 1);  // 7 left
  const ibv_async_event event = pair.server->WaitAsync();
  EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(event.element.srq, pair.server->srq);
  Consume(&pair, 2);
  EXPECT_FALSE(Readable(pair.server->context->async_fd, 5)) << "one shot";
  ibv_srq_attr attr;
  ASSERT_EQ(Api().QuerySrq(pair.server->srq, &attr), 0);
  EXPECT_EQ(attr.srq_limit, 0u);
  Arm(pair.server.get(), 6);
  Consume(&pair, 1);
  EXPECT_EQ(pair.server->WaitAsync().event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
}

TEST(SrqTest, Overflow) {
  Pair pair({}, WithSrq(3));
  ibv_recv_wr wrs[5] = {};
  for (size_t i = 0; i < 5; ++i) wrs[i].next = i < 4 ? &wrs[i + 1] : nullptr;
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_srq_recv(pair.server->srq, wrs, &bad), ENOMEM);
  EXPECT_EQ(bad, &wrs[3]) << "the earlier ones are posted";
  EXPECT_EQ(Api().DestroySrq(pair.server->srq), EBUSY);
}

TEST(SrqTest, ErrorKeepsReceivesAndRaisesLastWqe) {
  Pair pair({}, WithSrq(8));
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(pair.server->PostSrqRecv(i, i * 64, 64), 0);
  ASSERT_EQ(pair.server->ToError(), 0);
  const ibv_async_event event = pair.server->WaitAsync();
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
  EXPECT_EQ(event.element.qp, pair.server->qp);
  EXPECT_TRUE(pair.server->Quiet(5)) << "nothing of the SRQ is flushed";
}

TEST(SrqTest, EmptyQueueResumesWhenPosted) {
  Pair pair({}, WithSrq(8));
  ASSERT_EQ(pair.client->PostSend(1, 0, 8), 0);
  EXPECT_TRUE(pair.server->Quiet(5));
  ASSERT_EQ(pair.server->PostSrqRecv(7, 0, 64), 0);
  EXPECT_EQ(pair.server->Wait().wr_id, 7u);
  EXPECT_EQ(pair.client->Wait().status, IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace verbena::conformance
