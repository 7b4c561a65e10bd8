// Connecting where messages of the connection manager get lost, and where the server is slow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "client/src/endpoint.h"
#include "common/base/clock.h"
#include "common/verbs/forwarding_verbs.h"
#include "server/server.h"
#include "tests/integration/fabric_under_test.h"
#include "tests/integration/process.h"

namespace verbena::testing {
namespace {

using client::Endpoint;
using client::EndpointOptions;
using ::testing::HasSubstr;

constexpr int64_t kMilli = 1'000'000;

// A client's table whose connection manager loses messages.
class LossyVerbs : public verbs::ForwardingVerbs {
 public:
  explicit LossyVerbs(verbs::VerbsApi& base) : ForwardingVerbs(base), base_(base) {}

  int lose_requests = 0;  // so many of the first connection requests never leave
  int lose_answers = 0;   // so many of the first "established" never arrive
  // The first request is answered only after there have been so many.
  int hold_until_requests = 0;

  int requests() const { return requests_; }

  int CmConnect(rdma_cm_id* id, rdma_conn_param* param) override {
    if (++requests_ == 1) first_ = id->channel;
    return requests_ <= lose_requests ? 0 : base_.CmConnect(id, param);
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
  int requests_ = 0;
  rdma_event_channel* first_ = nullptr;  // of the first request
};

class ConnectAttempts : public ::testing::Test {
 protected:
  void StartServer(uint32_t max_connections = 8) {
    server::ServerConfig config;
    config.listen = *NetAddress::Parse(LocalAddress());
    config.memory = 16 << 20;
    config.huge_pages = false;
    config.queues = {.workers = 1, .max_connections = max_connections, .srq_depth = 128};
    config.fabrics = {{.api = &Fabric(), .required = true}};
    auto server = server::Server::Start(config);
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
  }
  absl::StatusOr<std::unique_ptr<Endpoint>> Connect(std::chrono::milliseconds timeout = kPatience) {
    EndpointOptions options;
    options.server = *NetAddress::Parse(server_->address());
    options.operations = 2;
    options.deadline = MonotonicNanos() + timeout.count() * kMilli;
    options.session = 1;
    options.patience = 20 * kMilli;
    return Endpoint::Connect(lossy_, options);
  }
  // Whether the server comes to have so many connections.
  bool ServerHas(uint32_t connections) {
    const int64_t deadline = MonotonicNanos() + kPatience.count() * 1000 * kMilli;
    while (server_->network().connections() != connections) {
      if (MonotonicNanos() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }

  std::unique_ptr<server::Server> server_;
  LossyVerbs lossy_{Fabric()};
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
    LossyVerbs other(Fabric());
    EndpointOptions options;
    options.server = *NetAddress::Parse(server_->address());
    options.operations = 2;
    options.deadline = MonotonicNanos() + kPatience.count() * 1000 * kMilli;
    options.session = 2;
    const auto refused = Endpoint::Connect(other, options);
    EXPECT_TRUE(absl::IsFailedPrecondition(refused.status())) << refused.status();
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("--max_connections"));
  }
  EXPECT_TRUE(ServerHas(0));
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
  } first(Fabric());
  first.hold_until_requests = 3;
  EndpointOptions options;
  options.server = *NetAddress::Parse(server_->address());
  options.operations = 2;
  options.deadline = MonotonicNanos() + kPatience.count() * 1000 * kMilli;
  options.session = 1;
  options.patience = 20 * kMilli;
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
  EXPECT_GE(taken, 300 * kMilli);
  EXPECT_LT(taken, 300 * kMilli + Soon().count() * kMilli);
  EXPECT_GE(lossy_.requests(), 2);
  EXPECT_LE(lossy_.requests(), 4);  // beside each other
}

TEST_F(ConnectAttempts, NobodyThereIsSaidAtOnce) {
  StartServer();
  const std::string address = server_->address();
  EndpointOptions options;
  options.server = *NetAddress::Parse(address);
  server_->Stop(absl::ZeroDuration());
  server_.reset();
  options.operations = 2;
  options.deadline = MonotonicNanos() + kPatience.count() * 1000 * kMilli;
  options.session = 1;
  const auto endpoint = Endpoint::Connect(lossy_, options);
  EXPECT_TRUE(absl::IsUnavailable(endpoint.status())) << endpoint.status();
  EXPECT_THAT(std::string(endpoint.status().message()), HasSubstr("nobody listens at " + address));
  EXPECT_EQ(lossy_.requests(), 1);
}

}  // namespace
}  // namespace verbena::testing
