// A server in the test's own process: keepalive, and what happens when calls of the device fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <string>

#include "common/verbs/fault_verbs.h"
#include "server/server.h"
#include "tests/integration/eventually.h"
#include "tests/integration/fabric_under_test.h"
#include "tests/integration/raw_client.h"
#include "tests/no_threads.h"

namespace verbena::testing {
namespace {

using server::Server;
using server::ServerConfig;
using wire::OpCode;
using wire::ResultCode;

ServerConfig SmallConfig(verbs::VerbsApi& api) {
  ServerConfig config;
  config.listen = *NetAddress::Parse(LocalAddress());
  config.memory = 16 << 20;
  config.huge_pages = false;
  config.queues = {.workers = 2, .max_connections = 8, .srq_depth = 128};
  config.fabrics = {{.api = &api, .required = true}};
  return config;
}

TEST(ServerInProcess, SilentConnectionsAreProbedThreeTimes) {
  ServerConfig config = SmallConfig(Fabric());
  config.silence_seconds = 1;
  auto server = Server::Start(config);
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  auto client = RawClient::ConnectAndGreet(Fabric(), (*server)->address());
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  for (int i = 0; i < 3; ++i) {
    const auto probe = (*client)->Receive();
    ASSERT_TRUE(probe.ok()) << probe.status().ToString();
    EXPECT_TRUE(probe->results.empty());
    EXPECT_EQ(probe->header.grant, 1);
  }
  // It keeps three receives for that, so there is no fourth; and it still counts as connected.
  EXPECT_TRUE(absl::IsDeadlineExceeded((*client)->Receive(std::chrono::seconds(3)).status()));
  EXPECT_EQ((*client)->Call(OpCode::kPing, "", "x")->value, "x");
  EXPECT_TRUE((*client)->Receive().ok());
}

TEST(ServerInProcess, ASilentStrangerIsShownTheDoor) {
  ServerConfig config = SmallConfig(Fabric());
  config.silence_seconds = 1;
  auto server = Server::Start(config);
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  auto client = RawClient::Connect(Fabric(), (*server)->address());
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  EXPECT_TRUE((*client)->WaitClosed().ok());
  EXPECT_TRUE(Eventually([&] { return (*server)->network().connections() == 0; }));
}

TEST(ServerInProcess, StopTellsClientsAndFreesEverything) {
  verbs::FaultVerbs counted(Fabric());
  auto server = Server::Start(SmallConfig(counted));
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  RawClientOptions options;
  options.value_memory = 1 << 20;
  auto client = RawClient::ConnectAndGreet(Fabric(), (*server)->address(), options);
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  EXPECT_EQ((*client)->PutByReference("key", std::string(1 << 20, 'v'))->code(), ResultCode::kOk);
  EXPECT_TRUE((*server)->Stop(absl::Seconds(30)));
  EXPECT_TRUE((*client)->WaitClosed().ok());
  EXPECT_EQ((*server)->network().connections(), 0u);
  server->reset();
  EXPECT_EQ(counted.live_count(), 0) << ::testing::PrintToString(counted.live());
}

TEST(ServerInProcess, WithoutAThreadItSaysSo) {
  // The fabric may have a thread of its own from its first use on.
  ASSERT_TRUE(Server::Start(SmallConfig(Fabric())).ok());
  const NoThreads none;
  const absl::Status status = Server::Start(SmallConfig(Fabric())).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("no thread"));
}

// Whichever call of the device fails while the server starts: it says so, or does without, and
// nothing is left behind.
TEST(ServerInProcess, AnyCallMayFailAtTheStart) {
  int failed = 0;
  for (uint64_t n = 1;; ++n) {
    verbs::FaultVerbs faults(Fabric());
    faults.FailNth(n, ENOMEM);
    auto server = Server::Start(SmallConfig(faults));
    const bool fired = faults.fired();
    faults.Clear();
    if (server.ok()) {
      (*server)->Stop(absl::ZeroDuration());
    } else {
      ++failed;
      EXPECT_FALSE(server.status().message().empty());
    }
    server = absl::UnknownError("destroyed");
    ASSERT_EQ(faults.live_count(), 0) << n << ": " << ::testing::PrintToString(faults.live());
    if (!fired) break;
  }
  EXPECT_GT(failed, 15);
}

// Whichever call fails while a client connects: that client may fail, the next one does not.
TEST(ServerInProcess, AnyCallMayFailWhileAClientConnects) {
  verbs::FaultVerbs faults(Fabric());
  auto server = Server::Start(SmallConfig(faults));
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  for (uint64_t n = 1; n < 50; ++n) {
    faults.FailNth(n, ENOMEM);
    { auto unlucky = RawClient::ConnectAndGreet(Fabric(), (*server)->address()); }
    ASSERT_TRUE(Eventually([&] { return (*server)->network().connections() == 0; })) << n;
    const bool fired = faults.fired();
    faults.Clear();
    auto lucky = RawClient::ConnectAndGreet(Fabric(), (*server)->address());
    ASSERT_TRUE(lucky.ok()) << n << ": " << lucky.status().ToString();
    EXPECT_EQ((*lucky)->Call(OpCode::kPut, "key", "value")->code(), ResultCode::kOk);
    lucky->reset();
    ASSERT_TRUE(Eventually([&] { return (*server)->network().connections() == 0; })) << n;
    if (!fired) {
      EXPECT_GT(n, 4u);
      break;
    }
  }
  EXPECT_TRUE((*server)->Stop(absl::Seconds(30)));
  server->reset();
  EXPECT_EQ(faults.live_count(), 0) << ::testing::PrintToString(faults.live());
}

}  // namespace
}  // namespace verbena::testing
