#include "common/verbs/owners.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/base/macros.h"
#include "common/verbs/conn_param.h"
#include "common/verbs/errors.h"
#include "common/verbs/fault_verbs.h"
#include "tests/unit/verbs/fake_verbs.h"

namespace verbena::verbs {
namespace {

template <typename T>
constexpr bool kMoveOnly =
    std::is_nothrow_move_constructible_v<T>&& std::is_nothrow_move_assignable_v<T> &&
    !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T>;
static_assert(kMoveOnly<Device> && kMoveOnly<ProtectionDomain> && kMoveOnly<MemoryRegion> &&
              kMoveOnly<CompletionChannel> && kMoveOnly<CompletionQueue> &&
              kMoveOnly<SharedReceiveQueue> && kMoveOnly<QueuePair> && kMoveOnly<CmChannel> &&
              kMoveOnly<CmId> && kMoveOnly<CmEvent> && kMoveOnly<AsyncEvent>);

std::string Joined(const std::vector<std::string>& lines) {
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all;
}

// Everything that a connection needs, in the order that owners.h recommends.
struct Stack {
  CmChannel cm_channel;
  Device device;
  ProtectionDomain pd;
  MemoryRegion mr;
  CompletionChannel channel;
  CompletionQueue cq;
  SharedReceiveQueue srq;
  CmId id;
  QueuePair qp;
  QueuePair plain_qp;

  static absl::StatusOr<Stack> Make(VerbsApi& api, uint8_t* memory, size_t size) {
    Stack stack;
    VERBENA_ASSIGN_OR_RETURN(stack.cm_channel, CmChannel::Create(api));
    VERBENA_ASSIGN_OR_RETURN(stack.device, Device::Open(api));
    VERBENA_RETURN_IF_ERROR(stack.device.view().Query().status());
    VERBENA_ASSIGN_OR_RETURN(stack.pd, ProtectionDomain::Create(stack.device.view()));
    VERBENA_ASSIGN_OR_RETURN(
        stack.mr, MemoryRegion::Register(stack.pd, memory, size,
                                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ));
    VERBENA_ASSIGN_OR_RETURN(stack.channel, CompletionChannel::Create(stack.device.view()));
    VERBENA_ASSIGN_OR_RETURN(
        stack.cq, CompletionQueue::Create(stack.device.view(), 16, &stack.channel, memory));
    VERBENA_ASSIGN_OR_RETURN(stack.srq, SharedReceiveQueue::Create(stack.pd, 8));
    VERBENA_RETURN_IF_ERROR(stack.srq.ArmLimit(2));
    VERBENA_ASSIGN_OR_RETURN(stack.id, CmId::Create(stack.cm_channel));
    VERBENA_RETURN_IF_ERROR(stack.id.SetAckTimeout(14));
    QueuePairOptions options;
    options.send_cq = options.recv_cq = stack.cq.get();
    options.srq = stack.srq.get();
    VERBENA_ASSIGN_OR_RETURN(stack.qp, QueuePair::CreateOn(stack.id, stack.pd, options));
    VERBENA_ASSIGN_OR_RETURN(stack.plain_qp, QueuePair::Create(stack.pd, options));
    VERBENA_RETURN_IF_ERROR(stack.plain_qp.SetMinRnrTimer(12));
    return stack;
  }
};

TEST(Owners, MemberOrderDestroysChildrenFirst) {
  FakeVerbs fake;
  uint8_t memory[64];
  {
    auto stack = Stack::Make(fake, memory, sizeof(memory));
    ASSERT_TRUE(stack.ok()) << stack.status();
    EXPECT_EQ(fake.live(), 10U);
    EXPECT_EQ(stack->mr.lkey(), 17U);
    EXPECT_EQ(stack->mr.rkey(), 18U);
    EXPECT_EQ(stack->mr.data(), memory);
    EXPECT_EQ(stack->mr.size(), sizeof(memory));
    EXPECT_EQ(stack->cq.capacity(), 19);
    EXPECT_EQ(stack->srq.capacity(), 12U);
    EXPECT_EQ(stack->qp.number(), 100U);
    EXPECT_EQ(stack->plain_qp.cap().max_inline_data, 64U);
  }
  EXPECT_EQ(fake.live(), 0U);
  EXPECT_TRUE(fake.breaches().empty()) << Joined(fake.breaches());
  // The device list goes at once, the rest backwards.
  const std::vector<std::string> order = {"list",    "qp", "cm qp", "id",     "srq",       "cq",
                                          "channel", "mr", "pd",    "device", "cm channel"};
  EXPECT_EQ(fake.destroyed(), order);
}

TEST(Owners, EveryFailingCallLeavesNothingBehind) {
  uint8_t memory[64];
  uint64_t n = 1;
  for (bool done = false; !done; ++n) {
    ASSERT_LT(n, 100U);
    FakeVerbs fake;
    FaultVerbs faults(fake);
    faults.FailNth(n, ENOMEM);
    {
      auto stack = Stack::Make(faults, memory, sizeof(memory));
      done = !faults.fired();
      EXPECT_EQ(stack.ok(), done) << n;
      if (!done) {
        EXPECT_EQ(ErrnoOf(stack.status()), ENOMEM) << stack.status();
        EXPECT_EQ(stack.status().code(), absl::StatusCode::kResourceExhausted);
      }
    }
    EXPECT_EQ(fake.live(), 0U) << "call " << n;
    EXPECT_EQ(faults.live_count(), 0) << "call " << n;
    EXPECT_TRUE(fake.breaches().empty()) << n << ": " << Joined(fake.breaches());
  }
  // The calls of Stack::Make, and one run that got through.
  EXPECT_EQ(n - 2, 15U);
}

TEST(Owners, MovesHandOverOwnership) {
  FakeVerbs fake;
  {
    auto device = Device::Open(fake);
    ASSERT_TRUE(device.ok());
    auto first = ProtectionDomain::Create(device->view());
    auto second = ProtectionDomain::Create(device->view());
    ASSERT_TRUE(first.ok() && second.ok());
    ibv_pd* const kept = first->get();
    ProtectionDomain target = std::move(*second);
    EXPECT_FALSE(second->valid());
    target = std::move(*first);  // the second is destroyed here
    EXPECT_EQ(fake.destroyed(), (std::vector<std::string>{"list", "pd"}));
    EXPECT_EQ(target.get(), kept);
    EXPECT_FALSE(first->valid());
    ProtectionDomain& self = target;
    target = std::move(self);
    EXPECT_EQ(target.get(), kept);
  }
  EXPECT_EQ(fake.live(), 0U);
  EXPECT_TRUE(fake.breaches().empty()) << Joined(fake.breaches());
}

TEST(Owners, MovedQueuePairIsDestroyedOnce) {
  FakeVerbs fake;
  uint8_t memory[64];
  {
    auto stack = Stack::Make(fake, memory, sizeof(memory));
    ASSERT_TRUE(stack.ok());
    QueuePair moved = std::move(stack->qp);
    EXPECT_FALSE(stack->qp.valid());
    moved = std::move(stack->plain_qp);  // the one on the CM id goes now
    EXPECT_EQ(fake.destroyed().back(), "cm qp");
    EXPECT_EQ(moved.number(), 99U);
  }
  EXPECT_EQ(fake.live(), 0U);
  EXPECT_TRUE(fake.breaches().empty()) << Joined(fake.breaches());
}

TEST(Owners, FailedDestroyIsCountedAndNotFatal) {
  FakeVerbs fake;
  FaultVerbs faults(fake);
  const uint64_t before = FailedDestroyCount();
  auto device = Device::Open(faults);
  ASSERT_TRUE(device.ok());
  ibv_pd* leaked = nullptr;
  {
    auto pd = ProtectionDomain::Create(device->view());
    ASSERT_TRUE(pd.ok());
    leaked = pd->get();
    faults.FailNamed("ibv_dealloc_pd", 1, EBUSY);
  }
  EXPECT_EQ(FailedDestroyCount(), before + 1);
  EXPECT_EQ(faults.live_count(), 2);
  EXPECT_EQ(faults.live().at("ibv_alloc_pd"), 1);
  EXPECT_EQ(faults.DeallocPd(leaked), 0);
}

TEST(Device, ListAndOpenByName) {
  FakeVerbs fake(2);
  auto names = Device::List(fake);
  ASSERT_TRUE(names.ok());
  EXPECT_EQ(*names, (std::vector<std::string>{"fake0", "fake1"}));
  auto device = Device::Open(fake, "fake1");
  ASSERT_TRUE(device.ok());
  EXPECT_EQ(device->view().name(), "fake1");
  EXPECT_EQ(device->view().transport(), IBV_TRANSPORT_IB);
  auto missing = Device::Open(fake, "mlx5_7");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(missing.status().message().find("mlx5_7"), absl::string_view::npos);
  EXPECT_NE(missing.status().message().find("fake0, fake1"), absl::string_view::npos);
  EXPECT_EQ(fake.live(), 1U);
}

TEST(Device, NoDeviceIsAnEmptyListAndAClearError) {
  for (const int devices : {0, -1}) {
    FakeVerbs fake(devices);
    auto names = Device::List(fake);
    ASSERT_TRUE(names.ok()) << names.status();
    EXPECT_TRUE(names->empty());
    auto device = Device::Open(fake);
    EXPECT_TRUE(IsNoDevice(device.status())) << device.status();
    EXPECT_NE(device.status().message().find("--fabric=soft"), absl::string_view::npos);
    EXPECT_EQ(fake.live(), 0U);
  }
}

TEST(Device, Queries) {
  FakeVerbs fake;
  auto device = Device::Open(fake);
  ASSERT_TRUE(device.ok());
  auto port = device->view().QueryPort(1);
  ASSERT_TRUE(port.ok());
  EXPECT_EQ(MtuBytes(port->active_mtu), 4096U);
  EXPECT_STREQ(LinkLayerName(port->link_layer), "Ethernet");
  auto wrong = device->view().QueryPort(2);
  EXPECT_NE(wrong.status().message().find("port 2"), absl::string_view::npos) << wrong.status();
  EXPECT_TRUE(device->view().QueryGid(1, 0).ok());
  EXPECT_EQ(ErrnoOf(device->view().QueryGid(1, 3).status()), EINVAL);
}

TEST(Device, AsyncEventIsAcknowledgedOnce) {
  FakeVerbs fake;
  auto device = Device::Open(fake);
  ASSERT_TRUE(device.ok());
  fake.RaiseAsyncEvent(device->get(), IBV_EVENT_SRQ_LIMIT_REACHED);
  {
    auto event = device->view().TryGetAsyncEvent();
    ASSERT_TRUE(event.ok() && event->has_value());
    EXPECT_EQ((*event)->type(), IBV_EVENT_SRQ_LIMIT_REACHED);
    AsyncEvent moved = std::move(**event);
    EXPECT_EQ(fake.acked_async_events(), 0);
    moved.Ack();
    EXPECT_EQ(fake.acked_async_events(), 1);
  }
  EXPECT_EQ(fake.acked_async_events(), 1);
  auto none = device->view().TryGetAsyncEvent();
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->has_value());
}

TEST(Completion, EventsAreAcknowledgedInBatchesAndBeforeDestroy) {
  FakeVerbs fake;
  uint8_t memory[64];
  {
    auto stack = Stack::Make(fake, memory, sizeof(memory));
    ASSERT_TRUE(stack.ok());
    ibv_cq* const cq = stack->cq.get();
    for (int i = 0; i < 70; ++i) {
      fake.RaiseCqEvent(cq);
      auto event = stack->channel.TryGetEvent();
      ASSERT_TRUE(event.ok() && event->has_value());
      EXPECT_EQ((*event)->cq, cq);
      EXPECT_EQ((*event)->context, memory);
    }
    EXPECT_EQ(fake.acked_events(cq), 64U);
    EXPECT_EQ(stack->cq.unacked_events(), 6U);
    // A move in between loses nothing.
    CompletionQueue moved = std::move(stack->cq);
    EXPECT_EQ(moved.unacked_events(), 6U);
    stack->cq = std::move(moved);
    auto none = stack->channel.TryGetEvent();
    ASSERT_TRUE(none.ok());
    EXPECT_FALSE(none->has_value());
  }
  EXPECT_EQ(fake.live(), 0U);
  EXPECT_TRUE(fake.breaches().empty()) << Joined(fake.breaches());
}

TEST(Completion, WaitEventWaitsForOneOrForTheTime) {
  FakeVerbs fake;
  uint8_t memory[64];
  auto stack = Stack::Make(fake, memory, sizeof(memory));
  ASSERT_TRUE(stack.ok());
  auto none = stack->channel.WaitEvent(1);
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->has_value());
  fake.RaiseCqEvent(stack->cq.get());
  auto event = stack->channel.WaitEvent(60'000);
  ASSERT_TRUE(event.ok());
  EXPECT_TRUE(event->has_value());
}

TEST(Completion, ArmGoesThroughTheContext) {
  FakeVerbs fake;
  uint8_t memory[64];
  auto stack = Stack::Make(fake, memory, sizeof(memory));
  ASSERT_TRUE(stack.ok());
  EXPECT_TRUE(stack->cq.Arm().ok());
  EXPECT_EQ(fake.armed(), 1);
}

TEST(QueuePair, StatesAndTimers) {
  FakeVerbs fake;
  uint8_t memory[64];
  auto stack = Stack::Make(fake, memory, sizeof(memory));
  ASSERT_TRUE(stack.ok());
  EXPECT_EQ(fake.last_modify_mask(), IBV_QP_MIN_RNR_TIMER);
  EXPECT_EQ(fake.last_modify().min_rnr_timer, 12);
  EXPECT_EQ(stack->plain_qp.SetMinRnrTimer(32).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(stack->plain_qp.ToError().ok());
  auto state = stack->plain_qp.QueryState();
  ASSERT_TRUE(state.ok());
  EXPECT_EQ(*state, IBV_QPS_ERR);
}

class CmTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto channel = CmChannel::Create(fake_);
    ASSERT_TRUE(channel.ok());
    channel_ = std::move(*channel);
    auto listener = CmId::Create(channel_, this);
    ASSERT_TRUE(listener.ok());
    listener_ = std::move(*listener);
  }
  void TearDown() override {
    listener_ = CmId();
    channel_ = CmChannel();
    EXPECT_EQ(fake_.live(), 0U);
    EXPECT_TRUE(fake_.breaches().empty()) << Joined(fake_.breaches());
  }

  FakeVerbs fake_;
  CmChannel channel_;
  CmId listener_;
};

TEST_F(CmTest, EventIsAcknowledgedExactlyOnce) {
  fake_.RaiseCmEvent(channel_.get(), RDMA_CM_EVENT_ESTABLISHED, listener_.get());
  {
    auto event = channel_.TryGetEvent();
    ASSERT_TRUE(event.ok() && event->has_value());
    EXPECT_EQ((*event)->type(), RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_EQ((*event)->id(), listener_.get());
    EXPECT_EQ((*event)->id()->context, this);
    CmEvent moved = std::move(**event);
    CmEvent again = std::move(moved);
    EXPECT_EQ(fake_.acked_cm_events(), 0);
    again.Ack();
    EXPECT_EQ(fake_.acked_cm_events(), 1);
  }
  EXPECT_EQ(fake_.acked_cm_events(), 1);
}

TEST_F(CmTest, DestructorAcknowledges) {
  for (int i = 1; i <= 3; ++i) {
    fake_.RaiseCmEvent(channel_.get(), RDMA_CM_EVENT_DISCONNECTED, listener_.get());
    ASSERT_TRUE(channel_.WaitEvent(60'000).ok());
    EXPECT_EQ(fake_.acked_cm_events(), i);
  }
}

TEST_F(CmTest, AssigningAnEventAcknowledgesTheOldOne) {
  fake_.RaiseCmEvent(channel_.get(), RDMA_CM_EVENT_ADDR_RESOLVED, listener_.get());
  fake_.RaiseCmEvent(channel_.get(), RDMA_CM_EVENT_ROUTE_RESOLVED, listener_.get());
  auto first = channel_.TryGetEvent();
  auto second = channel_.TryGetEvent();
  ASSERT_TRUE(first.ok() && first->has_value() && second.ok() && second->has_value());
  **first = std::move(**second);
  EXPECT_EQ(fake_.acked_cm_events(), 1);
  EXPECT_EQ((*first)->type(), RDMA_CM_EVENT_ROUTE_RESOLVED);
}

TEST_F(CmTest, RequestIsTakenOrRefused) {
  rdma_cm_id* const taken = fake_.RaiseConnectRequest(listener_.get(), "hello");
  fake_.RaiseConnectRequest(listener_.get(), "ignored");
  CmId connection;
  {
    auto event = channel_.TryGetEvent();
    ASSERT_TRUE(event.ok() && event->has_value());
    const auto data = (*event)->private_data();
    EXPECT_EQ(std::string(data.begin(), data.end()), "hello");
    connection = (*event)->TakeRequest();
    EXPECT_EQ(connection.get(), taken);
    EXPECT_FALSE((*event)->TakeRequest().valid());
  }
  EXPECT_EQ(fake_.live(), 4U);
  {
    // Dropped with its event: the id goes, after the acknowledgement.
    auto event = channel_.TryGetEvent();
    ASSERT_TRUE(event.ok() && event->has_value());
  }
  EXPECT_EQ(fake_.live(), 3U);
  EXPECT_TRUE(connection.valid());
}

TEST_F(CmTest, AddressesAndLimits) {
  auto address = NetAddress::Parse("127.0.0.1:7001");
  ASSERT_TRUE(address.ok());
  ASSERT_TRUE(listener_.Bind(*address).ok());
  EXPECT_EQ(listener_.local_address().ToString(), "127.0.0.1:7001");
  EXPECT_FALSE(listener_.device().valid());
  EXPECT_EQ(listener_.SetAckTimeout(32).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(listener_.Reject(std::vector<uint8_t>(256)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(listener_.Reject(std::vector<uint8_t>(148)).ok());
}

TEST_F(CmTest, MigrateMovesToAnotherChannel) {
  auto other = CmChannel::Create(fake_);
  ASSERT_TRUE(other.ok());
  ASSERT_TRUE(listener_.Migrate(*other).ok());
  fake_.RaiseCmEvent(other->get(), RDMA_CM_EVENT_ESTABLISHED, listener_.get());
  auto event = other->WaitEvent(60'000);
  ASSERT_TRUE(event.ok() && event->has_value());
  (*event)->Ack();
  ASSERT_TRUE(listener_.Migrate(channel_).ok());
}

TEST_F(CmTest, WaitEventGivesUpAfterTheTime) {
  auto event = channel_.WaitEvent(1);
  ASSERT_TRUE(event.ok());
  EXPECT_FALSE(event->has_value());
}

TEST_F(CmTest, WaitEventSeesWhatHappensLater) {
  std::thread later(
      [this] { fake_.RaiseCmEvent(channel_.get(), RDMA_CM_EVENT_ESTABLISHED, listener_.get()); });
  auto event = channel_.WaitEvent(60'000);
  later.join();
  ASSERT_TRUE(event.ok() && event->has_value());
}

TEST(ConnParam, FilledInWhole) {
  const std::vector<uint8_t> data(56, 7);
  const rdma_conn_param param = MakeConnParam(ConnectOptions{}, data);
  EXPECT_EQ(param.private_data, data.data());
  EXPECT_EQ(param.private_data_len, 56);
  EXPECT_EQ(param.initiator_depth, 16);
  EXPECT_EQ(param.responder_resources, 16);
  EXPECT_EQ(param.retry_count, 6);
  EXPECT_EQ(param.rnr_retry_count, 7);
}

TEST(ConnParam, LimitedByDeviceAndRequest) {
  FakeVerbs fake;
  auto device = Device::Open(fake);
  ASSERT_TRUE(device.ok());
  auto attr = device->view().Query();
  ASSERT_TRUE(attr.ok());
  ConnectOptions options = LimitToDevice(ConnectOptions{}, *attr);
  EXPECT_EQ(options.initiator_depth, 4);
  EXPECT_EQ(options.responder_resources, 8);
  attr->max_qp_init_rd_atom = 0;
  EXPECT_EQ(LimitToDevice(ConnectOptions{}, *attr).initiator_depth, 1);
  attr->max_qp_init_rd_atom = 1000;
  EXPECT_EQ(LimitToDevice(ConnectOptions{}, *attr).initiator_depth, 16);
  rdma_conn_param offered{};
  offered.initiator_depth = 2;
  offered.responder_resources = 200;
  options = LimitToRequest(options, offered);
  EXPECT_EQ(options.initiator_depth, 2);
  EXPECT_EQ(options.responder_resources, 8);
}

TEST(ConnParam, OptionsBeforeConnecting) {
  FakeVerbs fake;
  FaultVerbs faults(fake);
  auto channel = CmChannel::Create(faults);
  ASSERT_TRUE(channel.ok());
  auto id = CmId::Create(*channel);
  ASSERT_TRUE(id.ok());
  faults.FailNamed("rdma_set_option", 1, ENOSYS);
  EXPECT_TRUE(ApplyBeforeConnect(*id, ConnectOptions{}).ok());  // no ack timeout: not an error
  EXPECT_EQ(faults.calls_of("rdma_set_option"), 1U);            // no type of service was asked for
  faults.FailNamed("rdma_set_option", 1, EINVAL);
  EXPECT_EQ(ErrnoOf(ApplyBeforeConnect(*id, ConnectOptions{})), EINVAL);
  faults.FailNamed("rdma_set_option", 1, ENOSYS);
  const absl::Status tos = ApplyBeforeConnect(*id, ConnectOptions{.tos = 0});
  EXPECT_EQ(ErrnoOf(tos), ENOSYS);
  EXPECT_NE(tos.message().find("type of service"), absl::string_view::npos);
}

TEST(FaultVerbs, CountsByNameAndOrder) {
  FakeVerbs fake;
  FaultVerbs faults(fake);
  EXPECT_STREQ(faults.fabric(), "fake");
  auto device = Device::Open(faults);
  ASSERT_TRUE(device.ok());
  EXPECT_EQ(faults.calls(), 2U);
  EXPECT_EQ(faults.calls_of("ibv_open_device"), 1U);
  EXPECT_EQ(faults.log(), (std::vector<std::string>{"ibv_get_device_list", "ibv_open_device",
                                                    "ibv_free_device_list"}));
  faults.FailNamed("ibv_alloc_pd", 2, EPERM);
  auto first = ProtectionDomain::Create(device->view());
  EXPECT_TRUE(first.ok());
  EXPECT_FALSE(faults.fired());
  auto second = ProtectionDomain::Create(device->view());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(faults.fired());
  faults.FailNth(1, ENOMEM);
  faults.Clear();
  EXPECT_TRUE(ProtectionDomain::Create(device->view()).ok());
}

}  // namespace
}  // namespace verbena::verbs
