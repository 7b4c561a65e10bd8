// Queue pairs: states, limits, errors and what they flush (the table of expected results).
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "common/base/clock.h"
#include "tests/conformance/endpoint.h"

namespace verbena::conformance {
namespace {

// A QP that nothing connects.
class LooseQp : public testing::Test {
 protected:
  void SetUp() override {
    ibv_device** list = Api().GetDeviceList(nullptr);
    ASSERT_NE(list, nullptr);
    context_ = Api().OpenDevice(list[0]);
    Api().FreeDeviceList(list);
    pd_ = Api().AllocPd(context_);
    cq_ = Api().CreateCq(context_, 64, nullptr, nullptr, 0);
    init_.send_cq = init_.recv_cq = cq_;
    init_.qp_type = IBV_QPT_RC;
    init_.cap = {8, 8, 1, 1, 0};
  }
  void TearDown() override {
    if (qp_ != nullptr) {
      EXPECT_EQ(Api().DestroyQp(qp_), 0);
    }
    EXPECT_EQ(Api().DestroyCq(cq_), 0);
    EXPECT_EQ(Api().DeallocPd(pd_), 0);
    EXPECT_EQ(Api().CloseDevice(context_), 0);
  }
  int To(ibv_qp_state state, int mask) {
    ibv_qp_attr attr{};
    attr.qp_state = state;
    attr.port_num = 1;
    attr.path_mtu = IBV_MTU_1024;
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 1;
    // To itself, where peers are addressed by LID.
    ibv_port_attr port;
    EXPECT_EQ(Api().QueryPort(context_, 1, &port), 0);
    attr.ah_attr.port_num = 1;
    attr.ah_attr.dlid = port.lid;
    return Api().ModifyQp(qp_, &attr, IBV_QP_STATE | mask);
  }
  ibv_qp_state State() {
    ibv_qp_attr attr;
    ibv_qp_init_attr init;
    EXPECT_EQ(Api().QueryQp(qp_, &attr, IBV_QP_STATE, &init), 0);
    return attr.qp_state;
  }
  static constexpr int kInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  static constexpr int kRtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  static constexpr int kRts = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                              IBV_QP_MAX_QP_RD_ATOMIC;

  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_qp* qp_ = nullptr;
  ibv_qp_init_attr init_{};
};

TEST_F(LooseQp, StatesInOrderOnly) {
  qp_ = Api().CreateQp(pd_, &init_);
  ASSERT_NE(qp_, nullptr);
  EXPECT_EQ(State(), IBV_QPS_RESET);
  EXPECT_EQ(To(IBV_QPS_RTR, kRtr), EINVAL);
  EXPECT_EQ(To(IBV_QPS_RTS, kRts), EINVAL);
  EXPECT_EQ(To(IBV_QPS_INIT, 0), EINVAL) << "attributes are missing";
  EXPECT_EQ(To(IBV_QPS_INIT, kInit), 0);
  EXPECT_EQ(To(IBV_QPS_RTS, kRts), EINVAL);
  EXPECT_EQ(To(IBV_QPS_RTR, kRtr & ~IBV_QP_DEST_QPN), EINVAL);
  EXPECT_EQ(To(IBV_QPS_RTR, kRtr), 0);
  EXPECT_EQ(To(IBV_QPS_RTS, kRts), 0);
  EXPECT_EQ(State(), IBV_QPS_RTS);
  EXPECT_EQ(qp_->state, IBV_QPS_RTS);
  EXPECT_EQ(To(IBV_QPS_INIT, kInit), EINVAL);
  EXPECT_EQ(To(IBV_QPS_RTS, IBV_QP_MIN_RNR_TIMER), 0);
  EXPECT_EQ(To(IBV_QPS_ERR, 0), 0);
  EXPECT_EQ(To(IBV_QPS_RTS, kRts), EINVAL);
  EXPECT_EQ(To(IBV_QPS_RESET, 0), 0);
  EXPECT_EQ(To(IBV_QPS_INIT, kInit), 0);
}

TEST_F(LooseQp, PostingBeforeReady) {
  qp_ = Api().CreateQp(pd_, &init_);
  ASSERT_NE(qp_, nullptr);
  ibv_send_wr send{};
  send.opcode = IBV_WR_SEND;
  ibv_send_wr* bad_send = nullptr;
  ibv_recv_wr receive{};
  receive.wr_id = 5;
  ibv_recv_wr* bad_receive = nullptr;
  EXPECT_NE(ibv_post_send(qp_, &send, &bad_send), 0);
  EXPECT_EQ(bad_send, &send);
  EXPECT_NE(ibv_post_recv(qp_, &receive, &bad_receive), 0);
  ASSERT_EQ(To(IBV_QPS_INIT, kInit), 0);
  EXPECT_EQ(ibv_post_recv(qp_, &receive, &bad_receive), 0);
  EXPECT_NE(ibv_post_send(qp_, &send, &bad_send), 0);
  ASSERT_EQ(To(IBV_QPS_ERR, 0), 0);
  ibv_wc wc;
  ASSERT_EQ(ibv_poll_cq(cq_, 1, &wc), 1);
  EXPECT_EQ(wc.wr_id, 5u);
  EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(LooseQp, Limits) {
  ibv_device_attr limits;
  ASSERT_EQ(Api().QueryDevice(context_, &limits), 0);
  ibv_qp_init_attr init = init_;
  init.cap.max_send_wr = static_cast<uint32_t>(limits.max_qp_wr) + 1;
  EXPECT_EQ(Api().CreateQp(pd_, &init), nullptr);
  init = init_;
  init.cap.max_send_sge = static_cast<uint32_t>(limits.max_sge) + 1;
  EXPECT_EQ(Api().CreateQp(pd_, &init), nullptr);
  init = init_;
  init.cap.max_inline_data = 1 << 20;
  EXPECT_EQ(Api().CreateQp(pd_, &init), nullptr);
  qp_ = Api().CreateQp(pd_, &init_);
  ASSERT_NE(qp_, nullptr);
  EXPECT_EQ(Api().DeallocPd(pd_), EBUSY);
  EXPECT_EQ(Api().DestroyCq(cq_), EBUSY);
  EXPECT_EQ(Api().CloseDevice(context_), EBUSY);
}

TEST_F(LooseQp, DeviceAndPort) {
  EXPECT_EQ(context_->device->transport_type, IBV_TRANSPORT_IB);
  EXPECT_EQ(context_->device->node_type, IBV_NODE_CA);
  ibv_port_attr port;
  ASSERT_EQ(Api().QueryPort(context_, 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
  EXPECT_NE(Api().QueryPort(context_, 2, &port), 0);
  ibv_gid gid;
  EXPECT_EQ(Api().QueryGid(context_, 1, 0, &gid), 0);
  ibv_gid_entry entry;
  ASSERT_EQ(Api().QueryGidEx(context_, 1, 0, &entry), 0);
  EXPECT_EQ(std::memcmp(&entry.gid, &gid, sizeof(gid)), 0);
  EXPECT_NE(Api().QueryGidEx(context_, 1, 1, &entry), 0);
  if (port.link_layer == IBV_LINK_LAYER_INFINIBAND) {
    EXPECT_EQ(entry.gid_type, IBV_GID_TYPE_IB);
    EXPECT_EQ(gid.raw[0], 0xfe);
    EXPECT_NE(port.lid, 0);
    EXPECT_NE(port.sm_lid, 0);
  } else {
    EXPECT_EQ(entry.gid_type, IBV_GID_TYPE_ROCE_V2);
    EXPECT_EQ(gid.raw[10], 0xff);
    EXPECT_EQ(gid.raw[11], 0xff);
    EXPECT_EQ(port.lid, 0);
  }
}

// One bad operation, and what both ends must say.
struct Outcome {
  ibv_wc_status client;
  bool server_error;
  ibv_event_type event;  // at the server, if server_error
};

class BadOperation : public testing::Test {
 protected:
  void Expect(Pair* pair, const Outcome& outcome) {
    EXPECT_EQ(pair->client->Wait().status, outcome.client);
    EXPECT_EQ(pair->client->State(), IBV_QPS_ERR);
    if (outcome.server_error) {
      EXPECT_EQ(pair->server->WaitAsync().event_type, outcome.event);
      // Raised on the way to ERR, so the state follows.
      const int64_t deadline = MonotonicNanos() + int64_t{kPatienceMs} * 1'000'000;
      while (pair->server->State() != IBV_QPS_ERR && MonotonicNanos() < deadline) {
      }
      EXPECT_EQ(pair->server->State(), IBV_QPS_ERR);
    } else {
      EXPECT_FALSE(Readable(pair->server->context->async_fd, 5));
      EXPECT_EQ(pair->server->State(), IBV_QPS_RTS);
    }
  }
  static constexpr Outcome kAccess = {IBV_WC_REM_ACCESS_ERR, true, IBV_EVENT_QP_ACCESS_ERR};
  static constexpr Outcome kLocal = {IBV_WC_LOC_PROT_ERR, false, IBV_EVENT_CQ_ERR};
  static constexpr Outcome kInvalid = {IBV_WC_REM_INV_REQ_ERR, true, IBV_EVENT_QP_REQ_ERR};
};

TEST_F(BadOperation, ReadWithUnknownKey) {
  Pair pair;
  pair.client->PostRead(1, 0, 8, Address(*pair.server, 0), pair.server->mr->rkey + 1);
  Expect(&pair, kAccess);
}

TEST_F(BadOperation, ReadOutOfBounds) {
  for (const uint64_t offset : {uint64_t{1 << 20} - 7, uint64_t{1} << 40, ~uint64_t{0} - 3}) {
    Pair pair;
    pair.client->PostRead(1, 0, 8, Address(*pair.server, 0) + offset, pair.server->mr->rkey);
    Expect(&pair, kAccess);
  }
}

TEST_F(BadOperation, ReadWithoutPermission) {
  Options options;
  options.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  Pair pair({}, options);
  pair.client->PostRead(1, 0, 8, Address(*pair.server, 0), pair.server->mr->rkey);
  Expect(&pair, kAccess);
}

TEST_F(BadOperation, WriteWithoutPermission) {
  Options options;
  options.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
  Pair pair({}, options);
  std::memset(pair.server->data, 1, 64);
  pair.client->PostWrite(1, 0, 8, Address(*pair.server, 0), pair.server->mr->rkey);
  Expect(&pair, kAccess);
  EXPECT_EQ(pair.server->data[0], 1);
}

TEST_F(BadOperation, ReadOfAnotherProtectionDomain) {
  Pair pair;
  ibv_pd* other = Api().AllocPd(pair.server->context);
  std::array<uint64_t, 8> secret{};
  ibv_mr* mr = Api().RegMr(other, secret.data(), sizeof(secret), IBV_ACCESS_REMOTE_READ);
  ASSERT_NE(mr, nullptr);
  pair.client->PostRead(1, 0, 8, reinterpret_cast<uint64_t>(secret.data()), mr->rkey);
  Expect(&pair, kAccess);
  EXPECT_EQ(Api().DeregMr(mr), 0);
  EXPECT_EQ(Api().DeallocPd(other), 0);
}

TEST_F(BadOperation, ReadAfterDeregistration) {
  Pair pair;
  std::array<uint64_t, 8> words{};
  ibv_mr* mr = Api().RegMr(pair.server->pd, words.data(), sizeof(words), IBV_ACCESS_REMOTE_READ);
  ASSERT_NE(mr, nullptr);
  const uint32_t rkey = mr->rkey;
  const auto address = reinterpret_cast<uint64_t>(words.data());
  pair.client->PostRead(1, 0, 8, address, rkey);
  EXPECT_EQ(pair.client->Wait().status, IBV_WC_SUCCESS);
  EXPECT_EQ(Api().DeregMr(mr), 0);
  pair.client->PostRead(2, 0, 8, address, rkey);
  Expect(&pair, kAccess);
}

TEST_F(BadOperation, LocalKey) {
  for (const ibv_wr_opcode opcode : {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    Pair pair;
    pair.server->PostRecv(1, 0, 64);
    ibv_sge sge = pair.client->Sge(0, 8);
    sge.lkey ^= 0x100;
    ibv_send_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.wr.rdma.remote_addr = Address(*pair.server, 0);
    wr.wr.rdma.rkey = pair.server->mr->rkey;
    // Unsignalled: a failure is completed all the same.
    ASSERT_EQ(pair.client->Post(&wr), 0);
    Expect(&pair, kLocal);
  }
}

TEST_F(BadOperation, BothKeysOfARead) {
  Pair pair;
  ibv_sge sge = pair.client->Sge(0, 8);
  sge.lkey ^= 0x100;
  ibv_send_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_READ;
  wr.wr.rdma.remote_addr = Address(*pair.server, 0);
  wr.wr.rdma.rkey = pair.server->mr->rkey ^ 0x100;
  ASSERT_EQ(pair.client->Post(&wr), 0);
  Expect(&pair, kAccess);
}

TEST_F(BadOperation, WriteWithImmediateAndBadKey) {
  Pair pair;
  pair.server->PostRecv(1, 0, 64);
  ibv_sge sge = pair.client->Sge(0, 8);
  ibv_send_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  wr.wr.rdma.remote_addr = Address(*pair.server, 0);
  wr.wr.rdma.rkey = pair.server->mr->rkey ^ 0x100;
  ASSERT_EQ(pair.client->Post(&wr), 0);
  Expect(&pair, kAccess);
  const ibv_wc wc = pair.server->Wait();
  EXPECT_EQ(wc.wr_id, 1u);
  EXPECT_TRUE(wc.status == IBV_WC_LOC_ACCESS_ERR || wc.status == IBV_WC_LOC_PROT_ERR);
}

TEST_F(BadOperation, MisalignedAtomic) {
  Pair pair;
  ibv_sge sge = pair.client->Sge(0, 8);
  ibv_send_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  wr.wr.atomic.remote_addr = Address(*pair.server, 4);
  wr.wr.atomic.rkey = pair.server->mr->rkey;
  wr.wr.atomic.compare_add = 1;
  ASSERT_EQ(pair.client->Post(&wr), 0);
  Expect(&pair, kInvalid);
}

TEST_F(BadOperation, ResponderTakesNoReads) {
  Options options;
  options.depth = 0;
  Pair pair({}, options);
  pair.client->PostRead(1, 0, 8, Address(*pair.server, 0), pair.server->mr->rkey);
  Expect(&pair, kInvalid);
}

TEST_F(BadOperation, AccessFlagsOfTheQp) {
  Pair pair;
  ibv_qp_attr attr{};
  attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
  ASSERT_EQ(Api().ModifyQp(pair.server->qp, &attr, IBV_QP_ACCESS_FLAGS), 0);
  pair.client->PostRead(1, 0, 8, Address(*pair.server, 0), pair.server->mr->rkey);
  EXPECT_EQ(pair.client->Wait().status, IBV_WC_SUCCESS);
  pair.client->PostWrite(1, 0, 8, Address(*pair.server, 0), pair.server->mr->rkey);
  Expect(&pair, kInvalid);
}

TEST(ErrorTest, ReceiveTooSmall) {
  Pair pair;
  pair.server->PostRecv(1, 0, 8);
  pair.client->PostSend(2, 0, 9);
  EXPECT_EQ(pair.server->Wait().status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(pair.client->Wait().status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(pair.client->State(), IBV_QPS_ERR);
  EXPECT_EQ(pair.server->State(), IBV_QPS_ERR);
}

TEST(ErrorTest, ReceiveWithBadKey) {
  Pair pair;
  std::memset(pair.server->data, 3, 64);
  ibv_sge sge = pair.server->Sge(0, 64);
  sge.lkey ^= 0x100;
  ibv_recv_wr wr = {1, nullptr, &sge, 1};
  ibv_recv_wr* bad;
  ASSERT_EQ(ibv_post_recv(pair.server->qp, &wr, &bad), 0);
  pair.client->PostSend(2, 128, 8);
  EXPECT_EQ(pair.server->Wait().status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(pair.client->Wait().status, IBV_WC_REM_OP_ERR);
  EXPECT_EQ(pair.server->data[0], 3);
}

TEST(ErrorTest, LaterRequestsAreFlushedInOrder) {
  Pair pair;
  pair.client->PostRecv(50, 0, 64);
  pair.client->PostRecv(51, 64, 64);
  const uint64_t address = Address(*pair.server, 0);
  const uint32_t rkey = pair.server->mr->rkey;
  pair.client->PostRead(1, 0, 8, address, rkey);
  pair.client->PostRead(2, 0, 8, address, rkey ^ 0x100);
  pair.client->PostRead(3, 0, 8, address, rkey, 0);
  pair.client->PostSend(4, 0, 8);
  EXPECT_EQ(pair.client->Wait().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.client->Wait().status, IBV_WC_REM_ACCESS_ERR);
  // Two queues on one CQ: each is in order.
  std::vector<uint64_t> sends;
  std::vector<uint64_t> receives;
  for (int i = 0; i < 4; ++i) {
    const ibv_wc wc = pair.client->Wait();
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    (wc.wr_id >= 50 ? receives : sends).push_back(wc.wr_id);
  }
  EXPECT_EQ(sends, (std::vector<uint64_t>{3, 4}));
  EXPECT_EQ(receives, (std::vector<uint64_t>{50, 51}));
  // Posting in ERR succeeds and flushes.
  EXPECT_EQ(pair.client->PostSend(5, 0, 8, 0), 0);
  EXPECT_EQ(pair.client->Wait().wr_id, 5u);
  EXPECT_EQ(pair.client->PostRecv(52, 0, 8), 0);
  EXPECT_EQ(pair.client->Wait().wr_id, 52u);
}

TEST(ErrorTest, ErrorBehindAnUnacknowledgedSend) {
  Pair pair;
  const uint64_t address = Address(*pair.server, 0);
  pair.client->PostSend(1, 0, 8);
  pair.client->PostRead(2, 0, 8, address, pair.server->mr->rkey ^ 0x100);
  EXPECT_TRUE(pair.client->Quiet(10));
  EXPECT_EQ(pair.server->State(), IBV_QPS_RTS) << "the SEND comes first";
  pair.server->PostRecv(9, 0, 64);
  EXPECT_EQ(pair.server->Wait().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.client->Wait().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.client->Wait().status, IBV_WC_REM_ACCESS_ERR);
}

TEST(ErrorTest, PeerInErrorExhaustsRetries) {
  Options options;
  options.retry = 1;
  Pair pair(options, {});
  ASSERT_EQ(pair.server->ToError(), 0);
  const int64_t start = MonotonicNanos();
  pair.client->PostRead(1, 0, 8, Address(*pair.server, 0), pair.server->mr->rkey);
  EXPECT_EQ(pair.client->Wait().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_LT(MonotonicNanos() - start, 3'000'000'000);
}

TEST(ErrorTest, SendOnItsWayWhenThePeerFails) {
  Options options;
  options.retry = 1;
  Pair pair(options, {});
  pair.client->PostSend(1, 0, 8);  // no RECV
  EXPECT_TRUE(pair.client->Quiet(5));
  ASSERT_EQ(pair.server->ToError(), 0);
  EXPECT_EQ(pair.client->Wait().status, IBV_WC_RETRY_EXC_ERR);
}

TEST(RnrTest, WaitsForEverAndResumes) {
  Pair pair;  // rnr_retry 7
  pair.client->PostSend(1, 0, 8);
  pair.client->PostSend(2, 0, 8);
  EXPECT_TRUE(pair.client->Quiet(30));
  pair.server->PostRecv(1, 0, 64);
  EXPECT_EQ(pair.server->Wait().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.client->Wait().wr_id, 1u);
  EXPECT_TRUE(pair.client->Quiet(5));
  pair.server->PostRecv(2, 0, 64);
  EXPECT_EQ(pair.client->Wait().wr_id, 2u) << "without the server polling";
}

TEST(RnrTest, FiniteRetriesRunOut) {
  Options client;
  Options server;
  server.rnr_retry = 2;  // tells the other end how often to retry
  Pair pair(client, server);
  ibv_qp_attr attr{};
  attr.min_rnr_timer = 18;  // 4.096 * 2^... ms: 5.12 ms
  ASSERT_EQ(Api().ModifyQp(pair.server->qp, &attr, IBV_QP_MIN_RNR_TIMER), 0);
  const int64_t start = MonotonicNanos();
  pair.client->PostSend(1, 0, 8);
  EXPECT_EQ(pair.client->Wait().status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_GE(MonotonicNanos() - start, 2 * 5'120'000);
  EXPECT_EQ(pair.server->State(), IBV_QPS_RTS);
  pair.server->PostRecv(1, 0, 64);
  EXPECT_TRUE(pair.server->Quiet(5)) << "the message has been given up";
}

TEST(RnrTest, ZeroRetriesFailAtOnce) {
  Options server;
  server.rnr_retry = 0;
  Pair pair({}, server);
  pair.client->PostSend(1, 0, 8);
  EXPECT_EQ(pair.client->Wait().status, IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST(RnrTest, ReceiveInTimeSaves) {
  Options server;
  server.rnr_retry = 3;
  Pair pair({}, server);
  ibv_qp_attr attr{};
  attr.min_rnr_timer = 24;  // 40.96 ms
  ASSERT_EQ(Api().ModifyQp(pair.server->qp, &attr, IBV_QP_MIN_RNR_TIMER), 0);
  pair.client->PostSend(1, 0, 8);
  EXPECT_TRUE(pair.client->Quiet(10));
  pair.server->PostRecv(1, 0, 64);
  EXPECT_EQ(pair.client->Wait().status, IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace verbena::conformance
