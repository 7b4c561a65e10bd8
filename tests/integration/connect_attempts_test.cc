// Connecting where messages of the connection manager get lost, and where the server is slow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/src/endpoint.h"
#include "common/base/clock.h"
#include "common/softverbs/softverbs.h"
#include "common/verbs/fault_verbs.h"
#include "common/verbs/forwarding_verbs.h"
#include "common/verbs/owners.h"
#include "server/server.h"
#include "tests/integration/eventually.h"
#include "tests/integration/fabric_under_test.h"
#include "tests/integration/process.h"

namespace verbena::testing {
namespace {

using client::Endpoint;
using client::EndpointOptions;
using ::testing::HasSubstr;

constexpr int64_t kMilli = 1'000'000;

// Attempts that are dropped may be destroyed in threads that nobody waits for, so the tables that
// they use are never destroyed.
template <typename Table>
Table& Immortal(verbs::VerbsApi& base) {
  static auto& tables = *new std::vector<std::unique_ptr<Table>>;
  tables.push_back(std::make_unique<Table>(base));
  return *tables.back();
}

// A client's table whose connection manager loses messages.
class LossyVerbs : public verbs::ForwardingVerbs {
 public:
  explicit LossyVerbs(verbs::VerbsApi& base) : ForwardingVerbs(base), base_(base) {}

  std::atomic<int> lose_requests = 0;  // so many of the first connection requests never leave
  std::atomic<int> lose_answers = 0;   // so many of the first "established" never arrive
  // The first request is answered only after there have been so many.
  std::atomic<int> hold_until_requests = 0;

  int requests() const { return requests_; }

  int CmConnect(rdma_cm_id* id, rdma_conn_param* param) override {
    const int request = requests_ + 1;
    if (request == 1) first_ = id->channel;
    requests_ = request;
    return request <= lose_requests ? 0 : base_.CmConnect(id, param);
  }
  int CmGetEvent(rdma_event_channel* channel, rdma_cm_event** event) override {
    if (channel == first_ && requests_ < hold_until_requests) return Nothing();
    const int returned = base_.CmGetEvent(channel, event);
    if (returned != 0 || (*event)->event != RDMA_CM_EVENT_ESTABLISHED || lose_answers == 0) {
      return returned;
    }
    --lose_answers;
    base_.CmAckEvent(*event);
    return Nothing();
  }

 private:
  static int Nothing() {
    errno = EAGAIN;
    return -1;
  }

  verbs::VerbsApi& base_;
  // Requests are made one after the other, if perhaps each in a thread of its own.
  std::atomic<int> requests_ = 0;
  std::atomic<rdma_event_channel*> first_ = nullptr;  // of the first request
};

class ConnectAttempts : public ::testing::Test {
 protected:
  explicit ConnectAttempts(verbs::VerbsApi& fabric = Fabric(), std::string listen = LocalAddress())
      : fabric_(fabric), listen_(std::move(listen)) {}

  void StartServer(uint32_t max_connections = 8) {
    server::ServerConfig config;
    config.listen = *NetAddress::Parse(listen_);
    config.memory = 16 << 20;
    config.huge_pages = false;
    config.queues = {.workers = 1, .max_connections = max_connections, .srq_depth = 128};
    config.fabrics = {{.api = &fabric_, .required = true}};
    auto server = server::Server::Start(config);
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
  }
  EndpointOptions OptionsFor(std::chrono::milliseconds timeout) {
    EndpointOptions options;
    options.server = *NetAddress::Parse(server_->address());
    options.operations = 2;
    options.deadline = MonotonicNanos() + timeout.count() * kMilli;
    options.session = 1;
    options.patience = 20 * kMilli;
    return options;
  }
  absl::StatusOr<std::unique_ptr<Endpoint>> Connect(std::chrono::milliseconds timeout = kPatience) {
    return Endpoint::Connect(lossy_, OptionsFor(timeout));
  }
  // Whether the server comes to have so many connections.
  bool ServerHas(uint32_t connections) {
    return Eventually([&] { return server_->network().connections() == connections; });
  }

  verbs::VerbsApi& fabric_;
  const std::string listen_;
  std::unique_ptr<server::Server> server_;
  LossyVerbs& lossy_ = Immortal<LossyVerbs>(fabric_);
};

TEST_F(ConnectAttempts, OneIsEnoughWhereNothingIsLost) {
  StartServer();
  const auto endpoint = Connect();
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  EXPECT_TRUE(ServerHas(1));
}

TEST_F(ConnectAttempts, LostRequestsAreMadeAgain) {
  StartServer();
  lossy_.lose_requests = 2;
  const auto endpoint = Connect();
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  EXPECT_GE(lossy_.requests(), 3);
  EXPECT_TRUE(ServerHas(1));
}

TEST_F(ConnectAttempts, LostAnswersLeaveNothingBehind) {
  StartServer();
  lossy_.lose_answers = 2;
  const auto endpoint = Connect();
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  EXPECT_GE(lossy_.requests(), 3);
  // What the server made for the attempts whose answers were lost has gone.
  EXPECT_TRUE(ServerHas(1));
}

// The attempt whose answer was lost is what fills the server.
TEST_F(ConnectAttempts, ALostAnswerDoesNotFillTheServer) {
  StartServer(/*max_connections=*/1);
  lossy_.lose_answers = 1;
  {
    const auto endpoint = Connect();
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    EXPECT_TRUE(ServerHas(1));
    // Who is refused at once is refused for good.
    EndpointOptions options = OptionsFor(kPatience);
    options.patience = 1000 * kMilli;
    const auto refused = Endpoint::Connect(Fabric(), options);
    EXPECT_TRUE(absl::IsFailedPrecondition(refused.status())) << refused.status();
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("--max_connections"));
  }
  EXPECT_TRUE(ServerHas(0));
}

// Who was refused many times asks again as soon as anybody when the answer that counts gets lost.
TEST_F(ConnectAttempts, RefusalsDoNotMakeTheWaitLonger) {
  StartServer(/*max_connections=*/1);
  auto other = Endpoint::Connect(Fabric(), OptionsFor(kPatience));
  ASSERT_TRUE(other.ok()) << other.status();
  lossy_.lose_requests = 1;  // who is refused at once is refused for good
  lossy_.lose_answers = 1;
  std::thread leaving([&] {
    EXPECT_TRUE(Eventually([&] { return lossy_.requests() >= 20; }));
    other->reset();
  });
  const int64_t start = MonotonicNanos();
  const auto endpoint = Connect();
  const int64_t taken = MonotonicNanos() - start;
  leaving.join();
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  EXPECT_GE(lossy_.requests(), 22);
  EXPECT_EQ(lossy_.lose_answers, 0);
  // Before the server gives the connection up of which it hears nothing (10 s).
  EXPECT_LT(taken, 8000 * kMilli);
}

// An answer to the first attempt that comes late is as good as any.
TEST_F(ConnectAttempts, ASlowServerIsNotGivenUp) {
  StartServer();
  class OnlyTheFirst final : public LossyVerbs {
   public:
    using LossyVerbs::LossyVerbs;
    int CmConnect(rdma_cm_id* id, rdma_conn_param* param) override {
      if (requests() == 1) lose_requests = 100;  // all but the first
      return LossyVerbs::CmConnect(id, param);
    }
  };
  auto& first = Immortal<OnlyTheFirst>(fabric_);
  first.hold_until_requests = 3;
  EndpointOptions options = OptionsFor(kPatience);
  // Where asking blocks, an attempt that takes longer to ask than this is given up, and rightly;
  // but here only the first one ever asks.
  if (DeviceCapabilities().connecting_blocks()) options.patience = Soon().count() * kMilli / 10;
  const auto endpoint = Endpoint::Connect(first, options);
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  EXPECT_GE(first.requests(), 3);
  EXPECT_TRUE(ServerHas(1));
}

TEST_F(ConnectAttempts, TheDeadlineHolds) {
  StartServer();
  lossy_.lose_requests = 1000;
  const int64_t start = MonotonicNanos();
  const auto endpoint = Connect(std::chrono::milliseconds(300));
  const int64_t taken = MonotonicNanos() - start;
  EXPECT_TRUE(absl::IsDeadlineExceeded(endpoint.status())) << endpoint.status();
  EXPECT_THAT(std::string(endpoint.status().message()), HasSubstr("attempts"));
  EXPECT_THAT(std::string(endpoint.status().message()), HasSubstr("see whether it runs"));
  EXPECT_GE(taken, 300 * kMilli);
  EXPECT_LT(taken, 300 * kMilli + Soon().count() * kMilli);
  EXPECT_GE(lossy_.requests(), 2);
  EXPECT_LE(lossy_.requests(), 4);  // beside each other
}

TEST_F(ConnectAttempts, NobodyThereIsSaidAtOnce) {
  StartServer();
  const std::string address = server_->address();
  EndpointOptions options = OptionsFor(kPatience);
  options.patience = 1000 * kMilli;
  server_->Stop(absl::ZeroDuration());
  server_.reset();
  const auto endpoint = Endpoint::Connect(lossy_, options);
  EXPECT_TRUE(absl::IsUnavailable(endpoint.status())) << endpoint.status();
  EXPECT_THAT(std::string(endpoint.status().message()), HasSubstr("nobody listens at " + address));
  EXPECT_EQ(lossy_.requests(), 1);
}

// A connection manager whose calls about a connection that is being opened do not return.
class BlockingVerbs : public verbs::FaultVerbs {
 public:
  explicit BlockingVerbs(verbs::VerbsApi& base) : FaultVerbs(base) {}

  bool block_connecting = false;
  bool block_destroying = false;

  void LetGo() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  int CmConnect(rdma_cm_id* id, rdma_conn_param* param) override {
    if (block_connecting) Block();
    // Nobody answers.
    return block_connecting || block_destroying ? 0 : FaultVerbs::CmConnect(id, param);
  }
  int CmDestroyId(rdma_cm_id* id) override {
    if (block_destroying) Block();
    return FaultVerbs::CmDestroyId(id);
  }

 private:
  void Block() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

// The software device, saying that it is an iWARP adapter, whatever the fabric under test: no other
// can be made to block.
class BlockingDevice : public ConnectAttempts {
 protected:
  BlockingDevice() : ConnectAttempts(softverbs::SoftVerbs(), "127.0.0.1:0") {}
  void SetUp() override {
    auto device = verbs::Device::Open(fabric_);
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = device->get()->device;
    device_->transport_type = IBV_TRANSPORT_IWARP;
    StartServer();
  }
  void TearDown() override {
    server_.reset();
    if (device_ != nullptr) device_->transport_type = IBV_TRANSPORT_IB;
  }
  // Connects in vain, in time; what is left behind goes once the device lets go of it.
  void ConnectInVain(BlockingVerbs& blocking) {
    EndpointOptions options = OptionsFor(std::chrono::milliseconds(300));
    const int64_t start = MonotonicNanos();
    const auto endpoint = Endpoint::Connect(blocking, options);
    const int64_t taken = MonotonicNanos() - start;
    EXPECT_TRUE(absl::IsDeadlineExceeded(endpoint.status())) << endpoint.status();
    EXPECT_GE(taken, 300 * kMilli);
    EXPECT_LT(taken, 300 * kMilli + Soon().count() * kMilli);
    EXPECT_GT(blocking.live_count(), 0);
    blocking.LetGo();
    EXPECT_TRUE(Eventually([&] { return blocking.live_count() == 0; }))
        << ::testing::PrintToString(blocking.live());
  }

  ibv_device* device_ = nullptr;
};

TEST_F(BlockingDevice, ConnectsAsUsual) {
  auto& blocking = Immortal<BlockingVerbs>(fabric_);
  const auto endpoint = Endpoint::Connect(blocking, OptionsFor(kPatience));
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  EXPECT_TRUE(ServerHas(1));
}

TEST_F(BlockingDevice, TheDeadlineHoldsWhileConnectingBlocks) {
  auto& blocking = Immortal<BlockingVerbs>(fabric_);
  blocking.block_connecting = true;
  ConnectInVain(blocking);
}

TEST_F(BlockingDevice, TheDeadlineHoldsWhileDestroyingBlocks) {
  auto& blocking = Immortal<BlockingVerbs>(fabric_);
  blocking.block_destroying = true;
  ConnectInVain(blocking);
}

}  // namespace
}  // namespace verbena::testing
