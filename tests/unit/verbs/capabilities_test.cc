#include "common/verbs/capabilities.h"

#include <gtest/gtest.h>

#include "tests/unit/verbs/fake_verbs.h"

namespace verbena::verbs {
namespace {

ibv_device_attr Limits() {
  ibv_device_attr limits{};
  limits.max_sge = 32;
  limits.max_sge_rd = 30;
  limits.max_srq = 100;
  limits.max_srq_wr = 1000;
  limits.atomic_cap = IBV_ATOMIC_HCA;
  return limits;
}

TEST(Capabilities, InfiniBandAndRoce) {
  const Capabilities device(IBV_TRANSPORT_IB, Limits());
  EXPECT_FALSE(device.read_sink_needs_remote_write());
  EXPECT_EQ(device.read_sink_access(), IBV_ACCESS_LOCAL_WRITE);
  EXPECT_EQ(device.read_scatter_elements(), 30U);
  EXPECT_TRUE(device.immediate_data());
  EXPECT_TRUE(device.waits_for_receives());
  EXPECT_TRUE(HasRnrTimer(IBV_TRANSPORT_IB));
  EXPECT_FALSE(device.client_must_send_first());
  EXPECT_TRUE(device.transport_retries());
  EXPECT_TRUE(device.gids());
  EXPECT_TRUE(device.shared_receive_queues());
  EXPECT_TRUE(device.atomics());
}

TEST(Capabilities, Iwarp) {
  const Capabilities device(IBV_TRANSPORT_IWARP, Limits());
  EXPECT_TRUE(device.read_sink_needs_remote_write());
  EXPECT_EQ(device.read_sink_access(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  EXPECT_EQ(device.read_scatter_elements(), 1U);
  EXPECT_FALSE(device.immediate_data());
  EXPECT_FALSE(device.waits_for_receives());
  EXPECT_FALSE(HasRnrTimer(IBV_TRANSPORT_IWARP));
  EXPECT_TRUE(device.client_must_send_first());
  EXPECT_FALSE(device.transport_retries());
  EXPECT_FALSE(device.gids());
}

TEST(Capabilities, FollowTheLimits) {
  ibv_device_attr limits = Limits();
  limits.max_sge = 1;
  EXPECT_EQ(Capabilities(IBV_TRANSPORT_IB, limits).read_scatter_elements(), 1U);
  limits.max_sge = 32;
  limits.max_sge_rd = 0;  // not stated
  EXPECT_EQ(Capabilities(IBV_TRANSPORT_IB, limits).read_scatter_elements(), 1U);
  limits.max_srq = 0;
  EXPECT_FALSE(Capabilities(IBV_TRANSPORT_IB, limits).shared_receive_queues());
  limits.max_srq = 1;
  limits.max_srq_wr = 0;
  EXPECT_FALSE(Capabilities(IBV_TRANSPORT_IB, limits).shared_receive_queues());
  limits.atomic_cap = IBV_ATOMIC_NONE;
  EXPECT_FALSE(Capabilities(IBV_TRANSPORT_IB, limits).atomics());
}

TEST(Capabilities, AskedOfADevice) {
  FakeVerbs fake;
  const auto opened = Device::Open(fake);
  ASSERT_TRUE(opened.ok());
  const auto device = Capabilities::Of(opened->view());
  ASSERT_TRUE(device.ok()) << device.status();
  const auto attr = opened->view().Query();
  ASSERT_TRUE(attr.ok());
  EXPECT_EQ(device->limits().max_qp_rd_atom, attr->max_qp_rd_atom);
  EXPECT_FALSE(device->read_sink_needs_remote_write());
}

}  // namespace
}  // namespace verbena::verbs
