// Type of service, timers and repeats as they were asked for, seen in what the device itself says
// of the queue pairs of each side. (What the packets carry, tests/lab/tos_guest.sh looks at.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/src/endpoint.h"
#include "common/base/clock.h"
#include "common/verbs/conn_param.h"
#include "tests/integration/fabric_under_test.h"
#include "tests/integration/process.h"

namespace verbena::testing {
namespace {

using client::Endpoint;
using ::testing::HasSubstr;

// None of them as usual, nor as the other side has it.
constexpr verbs::ConnectOptions kClients = {
    .retry_count = 4, .ack_timeout = 16, .min_rnr_timer = 11, .tos = 72};

absl::StatusOr<std::unique_ptr<Endpoint>> Connect(const std::string& server) {
  client::EndpointOptions options;
  options.server = *NetAddress::Parse(server);
  options.connect = kClients;
  options.operations = 2;
  options.session = 1;
  options.patience = std::chrono::nanoseconds(kPatience).count();
  options.deadline = MonotonicNanos() + options.patience;
  return Endpoint::Connect(Fabric(), options);
}

// Packets that are addressed by LID have no type of service.
bool HasTypeOfService() { return LinkLayer() != "InfiniBand"; }

TEST(ConnectionOptions, OfTheServerReachItsQueuePairs) {
  auto server = ServerProcess::Start(
      {"--log_level=debug", "--tos=104", "--ack_timeout=15", "--retry_count=5", "--rnr_timer=14"});
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  const auto endpoint = Connect((*server)->address());
  ASSERT_TRUE(endpoint.ok()) << endpoint.status().ToString();
  Process& process = (*server)->process();
  if (!(*endpoint)->capabilities().transport_retries()) {
    EXPECT_TRUE(process.WaitForOutput(": iWARP, TCP repeats").ok()) << process.err();
    // The software device has no packets either.
    const std::string tos = FabricName() == "soft" ? "--tos=104, " : "";
    EXPECT_THAT(process.err(),
                HasSubstr(absl::StrCat("no effect    ", tos,
                                       "--ack_timeout=15, --retry_count=5, --rnr_timer=14 on ")));
    return;
  }
  // The software device's connection manager gives an accepted queue pair the client's count.
  const bool soft = FabricName() == "soft";
  const std::string wanted =
      absl::StrCat(": tos ", HasTypeOfService() ? "104" : "none (no GRH)", ", ack_timeout 15, ",
                   soft ? "retry_count 4" : "retry_count 5", ", rnr_timer 14, READs ");
  EXPECT_TRUE(process.WaitForOutput(wanted).ok()) << process.err();
  EXPECT_EQ(soft, absl::StrContains(process.err(), "no effect    --tos=104, --retry_count=5 on "))
      << process.err();
}

TEST(ConnectionOptions, OfTheClientReachItsQueuePair) {
  auto server = ServerProcess::Start();
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  const auto endpoint = Connect((*server)->address());
  ASSERT_TRUE(endpoint.ok()) << endpoint.status().ToString();
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(
      Fabric().QueryQp((*endpoint)->qp(), &attr,
                       IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_MIN_RNR_TIMER, &init),
      0);
  // On iWARP they do no harm; the answer means nothing there.
  if (!(*endpoint)->capabilities().transport_retries()) return;
  EXPECT_EQ(attr.ah_attr.is_global != 0, HasTypeOfService());
  if (HasTypeOfService()) {
    EXPECT_EQ(attr.ah_attr.grh.traffic_class, 72);
  }
  EXPECT_EQ(attr.timeout, 16);
  EXPECT_EQ(attr.retry_cnt, 4);
  EXPECT_EQ(attr.min_rnr_timer, 11);
}

}  // namespace
}  // namespace verbena::testing
