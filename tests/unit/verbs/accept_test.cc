#include "common/verbs/accept.h"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/verbs/device.h"
#include "common/verbs/forwarding_verbs.h"
#include "tests/unit/verbs/fake_verbs.h"

namespace verbena::verbs {
namespace {

// What the queue pair is moved through, and what is accepted. `by_hand` false: a connection manager
// that moves queue pairs itself.
class Moves : public ForwardingVerbs {
 public:
  using ForwardingVerbs::ForwardingVerbs;
  int CmInitQpAttr(rdma_cm_id* id, ibv_qp_attr* attr, int* mask) override {
    if (by_hand) return base().CmInitQpAttr(id, attr, mask);
    errno = ENOSYS;
    return -1;
  }
  int ModifyQp(ibv_qp* qp, ibv_qp_attr* attr, int mask) override {
    if (attr->qp_state == IBV_QPS_RTR) ready_to_receive = *attr;
    if (attr->qp_state == IBV_QPS_RTS) ready_to_send = *attr;
    masks |= mask;
    last = *attr;
    return base().ModifyQp(qp, attr, mask);
  }
  // All that it has been given.
  int QueryQp(ibv_qp*, ibv_qp_attr* attr, int mask, ibv_qp_init_attr*) override {
    if (query_error != 0) return query_error;
    query_mask = mask;
    *attr = ready_to_send.value_or(ibv_qp_attr{});
    if (ready_to_receive.has_value()) {
      attr->ah_attr = ready_to_receive->ah_attr;
      attr->min_rnr_timer = ready_to_receive->min_rnr_timer;
      attr->max_dest_rd_atomic = ready_to_receive->max_dest_rd_atomic;
    }
    return 0;
  }
  int CmAccept(rdma_cm_id* id, rdma_conn_param* param) override {
    accepted = *param;
    had_qp = id->qp != nullptr;
    return base().CmAccept(id, param);
  }

  bool by_hand = true;
  std::optional<ibv_qp_attr> ready_to_receive;
  std::optional<ibv_qp_attr> ready_to_send;
  ibv_qp_attr last{};
  int masks = 0;
  std::optional<rdma_conn_param> accepted;
  bool had_qp = false;
  int query_error = 0;
  int query_mask = 0;
};

class AcceptTest : public ::testing::Test {
 protected:
  AcceptTest() {
    device_ = *Device::Open(api_);
    pd_ = *ProtectionDomain::Create(device_.view());
    channel_ = *CmChannel::Create(api_);
    id_ = *CmId::Create(channel_);
    id_.get()->verbs = device_.get();
    qp_ = *QueuePair::CreateOn(id_, pd_, {.max_send_wr = 1});
    options_.tos = 104;
    options_.retry_count = 5;
    options_.ack_timeout = 15;
    options_.min_rnr_timer = 14;
    options_.initiator_depth = 3;
    options_.responder_resources = 7;
  }
  absl::Status Run() { return Accept(id_, qp_, options_, IBV_ACCESS_REMOTE_READ, data_); }

  FakeVerbs fake_;
  Moves api_{fake_};
  Device device_;
  ProtectionDomain pd_;
  CmChannel channel_;
  CmId id_;
  QueuePair qp_;
  ConnectOptions options_;
  const std::array<uint8_t, 3> data_ = {1, 2, 3};
};

TEST_F(AcceptTest, MovesTheQueuePairWithTheOptions) {
  ASSERT_TRUE(Run().ok());
  ASSERT_TRUE(api_.ready_to_receive.has_value());
  EXPECT_EQ(api_.ready_to_receive->max_dest_rd_atomic, 7);
  EXPECT_EQ(api_.ready_to_receive->min_rnr_timer, 14);
  EXPECT_EQ(api_.ready_to_receive->ah_attr.grh.traffic_class, 104);
  ASSERT_TRUE(api_.ready_to_send.has_value());
  EXPECT_EQ(api_.ready_to_send->max_rd_atomic, 3);
  EXPECT_EQ(api_.ready_to_send->retry_cnt, 5);
  EXPECT_EQ(api_.ready_to_send->timeout, 15);
  // Bits of the kernel's that ibv_modify_qp does not know.
  EXPECT_EQ(api_.masks & 0xe00000, 0);
  ASSERT_TRUE(api_.accepted.has_value());
  EXPECT_FALSE(api_.had_qp) << "the id would move the queue pair again";
  EXPECT_EQ(api_.accepted->qp_num, qp_.number());
  EXPECT_EQ(api_.accepted->private_data_len, 3);
  EXPECT_NE(id_.get()->qp, nullptr);
}

TEST_F(AcceptTest, LeavesItToTheConnectionManagerThatMovesThemItself) {
  api_.by_hand = false;
  ASSERT_TRUE(Run().ok());
  EXPECT_FALSE(api_.ready_to_receive.has_value());
  ASSERT_TRUE(api_.accepted.has_value());
  EXPECT_TRUE(api_.had_qp);
  EXPECT_EQ(api_.masks, IBV_QP_MIN_RNR_TIMER | IBV_QP_ACCESS_FLAGS);
  EXPECT_EQ(api_.last.qp_access_flags, unsigned{IBV_ACCESS_REMOTE_READ});
}

TEST_F(AcceptTest, TheConnectionIsDescribedAsTheDeviceHasIt) {
  ASSERT_TRUE(Run().ok());
  const std::string start = absl::StrCat("QP ", qp_.number(), ": ");
  EXPECT_EQ(DescribeConnection(id_, qp_),
            start +
                "tos 104, ack_timeout 15, retry_count 5, rnr_timer 14, READs 3 out, 7 in, "
                "GID index 0");
  for (const int bit : {IBV_QP_AV, IBV_QP_TIMEOUT, IBV_QP_RETRY_CNT, IBV_QP_MIN_RNR_TIMER,
                        IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MAX_DEST_RD_ATOMIC}) {
    EXPECT_NE(api_.query_mask & bit, 0) << bit;
  }
  api_.ready_to_receive->ah_attr.is_global = 0;
  EXPECT_EQ(DescribeConnection(id_, qp_).find(start + "tos none (no GRH), ack_timeout 15"), 0U);
  api_.query_error = EINVAL;
  EXPECT_EQ(DescribeConnection(id_, qp_).find(start + "ibv_query_qp"), 0U);
  device_.get()->device->transport_type = IBV_TRANSPORT_IWARP;
  EXPECT_EQ(DescribeConnection(id_, qp_), start + "iWARP, TCP repeats");
}

}  // namespace
}  // namespace verbena::verbs
