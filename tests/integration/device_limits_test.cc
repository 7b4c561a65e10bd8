// Devices that can do less, at the server and at the client: each limit is lived with or refused by
// its name. The wrapping table enforces what it answers, so a depth that was not clamped fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "client/src/fabric.h"
#include "common/base/unique_fd.h"
#include "common/softverbs/softverbs.h"
#include "common/verbs/fault_verbs.h"
#include "common/verbs/limited_verbs.h"
#include "server/server.h"
#include "tests/integration/eventually.h"
#include "tests/integration/fabric_under_test.h"
#include "tests/integration/raw_client.h"
#include "verbena/connection.h"

namespace verbena::testing {
namespace {

using server::Server;
using server::ServerConfig;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using verbs::LimitedVerbs;
using verbs::LoweredLimits;
using wire::OpCode;
using wire::ResultCode;

constexpr uint64_t kRegion = 16 << 20;

ServerConfig Config(verbs::VerbsApi& api, const net::QueueOptions& queues) {
  ServerConfig config;
  config.listen = *NetAddress::Parse("127.0.0.1:0");
  config.memory = kRegion;
  config.huge_pages = false;
  config.queues = queues;
  config.fabrics = {{.api = &api, .required = true}};
  return config;
}

absl::StatusOr<std::unique_ptr<Connection>> Connect(verbs::VerbsApi& api, const Server& server,
                                                    uint32_t depth = 64, bool reconnect = true) {
  const client::ScopedFabric scoped(api);
  Options options;
  options.reconnect = reconnect;
  options.depth = depth;
  return Connection::Connect(server.address(), options);
}

std::string Text(const absl::Status& status) { return std::string(status.message()); }

// Small, middling and large values, changes in flight as many as the client likes, GETs one-sided
// and by the server.
void Work(Connection& connection) {
  // The server READs the large one in several pieces.
  for (const size_t size : {size_t{3} << 19, size_t{8000}, size_t{10}}) {
    const std::string value(size, 'v');
    const auto put = connection.Put("key", value);
    ASSERT_TRUE(put.ok()) << value.size() << ": " << put.status().ToString();
    std::string got;
    const absl::Status get = connection.Get("key", &got);
    ASSERT_TRUE(get.ok()) << value.size() << ": " << get.ToString();
    ASSERT_EQ(got, value);
  }
  int finished = 0;
  const auto count = [&finished](const absl::Status& status, const auto&) {
    ASSERT_TRUE(status.ok()) << status.ToString();
    ++finished;
  };
  // More than fit the window, several times over, since messages of this size hold one each.
  constexpr int kChanges = 120;
  const std::string value(7000, 'v');
  for (int i = 0; i < kChanges; ++i) {
    const std::string key = "key" + std::to_string(i % 50);
    while (absl::IsResourceExhausted(connection.SubmitPut(key, value, count))) {
      connection.Wait(std::chrono::seconds(1));
    }
    while (absl::IsResourceExhausted(connection.SubmitGet("key", count))) {
      connection.Wait(std::chrono::seconds(1));
    }
  }
  connection.Drain();
  EXPECT_EQ(finished, 2 * kChanges);
  EXPECT_TRUE(connection.Delete("key").ok());
  EXPECT_TRUE(connection.status().ok()) << connection.status().ToString();
}

struct Case {
  const char* name;
  LoweredLimits limits;
  net::QueueOptions queues = {};
};
std::ostream& operator<<(std::ostream& out, const Case& test) { return out << test.name; }

class DeviceLimits : public ::testing::TestWithParam<Case> {};

// The device of the server, of the client, of both.
TEST_P(DeviceLimits, AreLivedWith) {
  for (const bool at_server : {true, false}) {
    for (const bool at_client : {true, false}) {
      if (!at_server && !at_client) continue;
      SCOPED_TRACE(absl::StrCat("server ", at_server, ", client ", at_client));
      LimitedVerbs limited_server(softverbs::SoftVerbs(), GetParam().limits);
      LimitedVerbs limited_client(softverbs::SoftVerbs(), GetParam().limits);
      verbs::VerbsApi& server_api = at_server ? limited_server : softverbs::SoftVerbs();
      verbs::VerbsApi& client_api = at_client ? limited_client : softverbs::SoftVerbs();
      auto server = Server::Start(Config(server_api, GetParam().queues));
      ASSERT_TRUE(server.ok()) << server.status().ToString();
      const auto adapters = (*server)->network().adapters();
      ASSERT_EQ(adapters.size(), 1u);
      std::vector<std::unique_ptr<Connection>> connections;
      for (int i = 0; i < 2; ++i) {
        auto connection = Connect(client_api, **server);
        ASSERT_TRUE(connection.ok()) << connection.status().ToString();
        Work(**connection);
        connections.push_back(*std::move(connection));
      }
      // Again while the other has done its work, with credits given back and taken anew.
      for (const auto& connection : connections) Work(*connection);
      connections.clear();
      EXPECT_TRUE((*server)->Stop(absl::Seconds(30)));
      // A sender that found no receive would have been held back, unnoticed on this device.
      EXPECT_EQ((*server)->network().adapters().at(0).srq_limit_events, 0u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    EachLimit, DeviceLimits,
    ::testing::Values(Case{"no_srq", {.max_srq = 0}},
                      Case{"fewer_srqs_than_workers", {.max_srq = 1}, {.workers = 2}},
                      Case{"srq_unsupported", {.srq_unsupported = true}, {.workers = 2}},
                      Case{"srq_off", {}, {.use_srq = false}},
                      Case{"max_srq_wr_20", {.max_srq_wr = 20}},
                      Case{"max_srq_sge_1", {.max_srq_sge = 1}},
                      Case{"max_cqe_64", {.max_cqe = 64}}, Case{"max_qp_4", {.max_qp = 4}},
                      Case{"max_cq_2", {.max_cq = 2}}, Case{"max_qp_wr_16", {.max_qp_wr = 16}},
                      Case{"max_sge_1", {.max_sge = 1}},
                      Case{"max_qp_rd_atom_1", {.max_qp_rd_atom = 1, .max_qp_init_rd_atom = 1}},
                      Case{"max_mr_7", {.max_mr = 7}, {.workers = 3}},
                      Case{"max_pd_2", {.max_pd = 2}}, Case{"no_inline", {.max_inline_data = 0}},
                      Case{"all_at_once",
                           {.max_qp = 4,
                            .max_qp_wr = 16,
                            .max_sge = 1,
                            .max_cq = 2,
                            .max_cqe = 64,
                            .max_srq = 0,
                            .max_mr = 7,
                            .max_pd = 2,
                            .max_qp_rd_atom = 1,
                            .max_qp_init_rd_atom = 1,
                            .max_inline_data = 0}}),
    [](const ::testing::TestParamInfo<Case>& test) { return test.param.name; });

// The index is READ with more places than READs may be in flight.
TEST(DeviceLimitsPreload, FewReadsInFlight) {
  auto server = Server::Start(Config(softverbs::SoftVerbs(), {}));
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  auto writer = Connect(softverbs::SoftVerbs(), **server);
  ASSERT_TRUE(writer.ok()) << writer.status().ToString();
  std::vector<std::string> keys(30'000);
  std::vector<KeyValue> items;
  for (std::string& key : keys) {
    key = absl::StrCat("key", items.size());
    items.push_back({key, "value"});
  }
  std::vector<absl::StatusOr<ChangeResult>> results;
  ASSERT_TRUE((*writer)->MultiPut(items, {}, &results).ok());
  for (const int reads : {1, 2, 3}) {
    SCOPED_TRACE(reads);
    LimitedVerbs limited(softverbs::SoftVerbs(),
                         {.max_qp_rd_atom = reads, .max_qp_init_rd_atom = reads});
    const client::ScopedFabric scoped(limited);
    Options options;
    options.preload = true;
    auto connection = Connection::Connect((*server)->address(), options);
    ASSERT_TRUE(connection.ok()) << connection.status().ToString();
    EXPECT_GT((*connection)->stats().reads, 8u) << "so that the test says something";
    std::string value;
    ASSERT_TRUE((*connection)->Get("key29999", &value).ok());
    EXPECT_EQ(value, "value");
  }
}

struct RefusedCase {
  const char* name;
  LoweredLimits limits;
  net::QueueOptions queues;
  std::vector<std::string> says;
};
std::ostream& operator<<(std::ostream& out, const RefusedCase& test) { return out << test.name; }

class RefusedFlags : public ::testing::TestWithParam<RefusedCase> {};

// What the user asked for and the device cannot do: the flag, the value, the limit and its value.
TEST_P(RefusedFlags, NameTheLimit) {
  LimitedVerbs limited(softverbs::SoftVerbs(), GetParam().limits);
  const auto server = Server::Start(Config(limited, GetParam().queues));
  ASSERT_FALSE(server.ok());
  EXPECT_TRUE(absl::IsInvalidArgument(server.status())) << server.status().ToString();
  for (const std::string& part : GetParam().says) {
    EXPECT_THAT(Text(server.status()), HasSubstr(part));
  }
  EXPECT_EQ(limited.refused(), 0u) << "found out by trying";
}

INSTANTIATE_TEST_SUITE_P(
    EachFlag, RefusedFlags,
    ::testing::Values(RefusedCase{"window_cqe",
                                  {.max_cqe = 64},
                                  {.window = 32},
                                  {"--window=32", "vsoft0", "80", "max_cqe = 64"}},
                      RefusedCase{"window_qp_wr",
                                  {.max_qp_wr = 16},
                                  {.window = 32},
                                  {"--window=32", "vsoft0", "40", "max_qp_wr = 16"}},
                      RefusedCase{"connections_qp",
                                  {.max_qp = 4},
                                  {.max_connections = 3},
                                  {"--max_connections=3", "vsoft0", "max_qp = 4"}},
                      RefusedCase{"srq_depth",
                                  {.max_srq_wr = 100},
                                  {.srq_depth = 101},
                                  {"--srq_depth=101", "vsoft0", "max_srq_wr = 100"}},
                      RefusedCase{"workers_cq",
                                  {.max_cq = 3},
                                  {.workers = 2},
                                  {"--workers=2", "vsoft0", "max_cq = 3"}},
                      RefusedCase{"workers_mr",
                                  {.max_mr = 4},
                                  {.workers = 2},
                                  {"--workers=2", "5", "vsoft0", "max_mr = 4"}},
                      RefusedCase{"region",
                                  {.max_mr_size = kRegion - 1},
                                  {},
                                  {"--memory", "16MiB", "vsoft0", "max_mr_size"}}),
    [](const ::testing::TestParamInfo<RefusedCase>& test) { return test.param.name; });

struct RefusedClient {
  const char* name;
  LoweredLimits limits;
  absl::StatusCode code;
  std::vector<std::string> says;
};
std::ostream& operator<<(std::ostream& out, const RefusedClient& test) { return out << test.name; }

class RefusedClients : public ::testing::TestWithParam<RefusedClient> {};

TEST_P(RefusedClients, NameTheLimit) {
  auto server = Server::Start(Config(softverbs::SoftVerbs(), {}));
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  LimitedVerbs limited(softverbs::SoftVerbs(), GetParam().limits);
  const auto connection = Connect(limited, **server);
  EXPECT_EQ(connection.status().code(), GetParam().code) << connection.status();
  for (const std::string& part : GetParam().says) {
    EXPECT_THAT(Text(connection.status()), HasSubstr(part));
  }
  EXPECT_EQ((*server)->network().connections(), 0u);
}

INSTANTIATE_TEST_SUITE_P(
    EachLimit, RefusedClients,
    ::testing::Values(RefusedClient{"max_cqe",
                                    {.max_cqe = 15},
                                    absl::StatusCode::kFailedPrecondition,
                                    {"vsoft0", "max_cqe", "15", "16"}},
                      RefusedClient{"max_qp_wr",
                                    {.max_qp_wr = 3},
                                    absl::StatusCode::kFailedPrecondition,
                                    {"vsoft0", "max_qp_wr", "3", "4"}},
                      RefusedClient{"max_mr_size",
                                    {.max_mr_size = 1 << 20},
                                    absl::StatusCode::kResourceExhausted,
                                    {"vsoft0", "takes 1.52MiB (1594112 bytes)", "at most 1MiB",
                                     "max_mr_size = 1048576", "depth"}},
                      RefusedClient{"max_qp",
                                    {.max_qp = 0},
                                    absl::StatusCode::kResourceExhausted,
                                    {"vsoft0", "takes 1 of each", "max_qp 0", "rdma_create_qp"}},
                      RefusedClient{"max_pd",
                                    {.max_pd = 0},
                                    absl::StatusCode::kResourceExhausted,
                                    {"vsoft0", "takes 1 of each", "max_pd 0", "ibv_alloc_pd"}}),
    [](const ::testing::TestParamInfo<RefusedClient>& test) { return test.param.name; });

// A value that the client's device cannot register in one piece is refused, either way, and the
// connection goes on.
TEST(ClientLimits, ValuesOverMaxMrSize) {
  auto server = Server::Start(Config(softverbs::SoftVerbs(), {}));
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  LimitedVerbs limited(softverbs::SoftVerbs(), {.max_mr_size = 3 << 20});
  auto small = Connect(limited, **server);
  ASSERT_TRUE(small.ok()) << small.status();
  auto large = Connect(softverbs::SoftVerbs(), **server);
  ASSERT_TRUE(large.ok()) << large.status();
  // Rounded up to a power of two, its buffer would be too large; it is not.
  std::string value((3 << 20) - 1000, 'v');
  std::string got;
  ASSERT_TRUE((*small)->Put("key", value).ok());
  ASSERT_TRUE((*small)->Get("key", &got).ok());
  EXPECT_EQ(got, value);
  value.resize((3 << 20) + 1, 'w');
  const absl::Status put = (*small)->Put("key", value).status();
  EXPECT_TRUE(absl::IsResourceExhausted(put)) << put;
  EXPECT_THAT(Text(put), AllOf(HasSubstr("(3145729 bytes)"), HasSubstr("max_mr_size = 3145728")));
  ASSERT_TRUE((*large)->Put("key", value).ok());
  const absl::Status get = (*small)->Get("key", &got);
  EXPECT_TRUE(absl::IsResourceExhausted(get)) << get;
  // With what the item has before its value.
  EXPECT_THAT(Text(get), AllOf(HasSubstr("(3145756 bytes)"), HasSubstr("max_mr_size = 3145728")));
  ASSERT_TRUE((*small)->Put("key", "small").ok());
  ASSERT_TRUE((*small)->Get("key", &got).ok());
  EXPECT_EQ(got, "small");
}

// A dead connection holds nothing of its device, which may be about to be removed.
TEST(ClientLimits, DeadConnectionsLetGoOfTheDevice) {
  verbs::FaultVerbs counted(softverbs::SoftVerbs());
  auto server = Server::Start(Config(softverbs::SoftVerbs(), {}));
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  auto connection = Connect(counted, **server, /*depth=*/64, /*reconnect=*/false);
  ASSERT_TRUE(connection.ok()) << connection.status();
  const std::string value(1 << 20, 'v');
  ASSERT_TRUE((*connection)->Put("key", value).ok());
  EXPECT_GT(counted.live_count(), 5);
  EXPECT_TRUE((*server)->Stop(absl::Seconds(30)));
  // With nothing in flight, polling notices.
  ASSERT_TRUE(Eventually([&] {
    (*connection)->Poll();
    return !(*connection)->status().ok();
  }));
  (*connection)->Poll();
  EXPECT_TRUE(absl::IsUnavailable((*connection)->status())) << (*connection)->status();
  auto live = counted.live();
  live.erase("rdma_create_event_channel");  // of no device
  EXPECT_TRUE(live.empty()) << ::testing::PrintToString(live);
  EXPECT_TRUE(absl::IsUnavailable((*connection)->Ping()));
  EXPECT_EQ((*connection)->device(), "vsoft0");
  connection->reset();
  EXPECT_EQ(counted.live_count(), 0);
}

// Without shared receive queues: as many clients as the plan admits, each with its whole window
// used at once, come and go; the credits are exact, so not one message finds no receive.
TEST(OwnReceiveQueues, ManyClientsTakeAndGiveCredits) {
  LimitedVerbs limited(softverbs::SoftVerbs(), {.max_srq = 0});
  auto server = Server::Start(
      Config(limited, {.workers = 2, .max_connections = 12, .srq_depth = 64, .window = 16}));
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  const net::QueuePlan plan = (*server)->network().adapters().at(0).plan;
  EXPECT_EQ(plan.receive_depth, 17u);
  for (int round = 0; round < 5; ++round) {
    std::vector<std::unique_ptr<RawClient>> clients;
    for (uint32_t i = 0; i < plan.max_connections; ++i) {
      auto client = RawClient::ConnectAndGreet(softverbs::SoftVerbs(), (*server)->address());
      ASSERT_TRUE(client.ok()) << client.status().ToString();
      clients.push_back(*std::move(client));
    }
    EXPECT_FALSE(RawClient::Connect(softverbs::SoftVerbs(), (*server)->address()).ok());
    std::vector<uint32_t> grants(clients.size(), 1);
    uint32_t most = 0;
    for (int burst = 0; burst < 20; ++burst) {
      for (size_t i = 0; i < clients.size(); ++i) {
        const uint16_t wanted = (burst + static_cast<int>(i)) % 3 == 0 ? 0 : 16;
        for (uint32_t n = 0; n < grants[i]; ++n) {
          const auto request = clients[i]->Request(OpCode::kPing, "", "x", wanted);
          ASSERT_TRUE(clients[i]->Send(request).ok());
        }
      }
      for (size_t i = 0; i < clients.size(); ++i) {
        for (uint32_t n = grants[i]; n > 0; --n) {
          const auto response = clients[i]->Receive();
          ASSERT_TRUE(response.ok()) << response.status().ToString();
          grants[i] = response->header.grant;
        }
        most = std::max(most, grants[i]);
      }
    }
    EXPECT_EQ(most, 16u);
    clients.clear();
    ASSERT_TRUE(Eventually([&] { return (*server)->network().connections() == 0; }));
  }
  EXPECT_TRUE((*server)->Stop(absl::Seconds(30)));
}

// One message too many is noticed, and costs its sender the connection and nobody else.
TEST(OwnReceiveQueues, WhoSendsMoreThanGrantedIsDisconnected) {
  LimitedVerbs limited(softverbs::SoftVerbs(), {.max_srq = 0});
  auto server = Server::Start(Config(limited, {.workers = 1, .max_connections = 4}));
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  auto witness = RawClient::ConnectAndGreet(softverbs::SoftVerbs(), (*server)->address());
  ASSERT_TRUE(witness.ok()) << witness.status().ToString();
  for (int i = 0; i < 20; ++i) {
    auto rude = RawClient::ConnectAndGreet(softverbs::SoftVerbs(), (*server)->address());
    ASSERT_TRUE(rude.ok()) << rude.status().ToString();
    // The server answers one at a time; some of these arrive before it has.
    absl::Status sent;
    for (int n = 0; n < 2000 && sent.ok(); ++n) {
      sent = (*rude)->Send((*rude)->Request(OpCode::kPing, "", "x"));
    }
    EXPECT_TRUE((*rude)->WaitClosed().ok());
    ASSERT_TRUE(Eventually([&] { return (*server)->network().connections() == 1; }));
    EXPECT_EQ((*witness)->Call(OpCode::kPing, "", "x")->code(), ResultCode::kOk);
  }
}

// Server and client may open no more files, in a process that has few left: whichever of them meets
// that, connecting says so, and long before its time is over.
TEST(DescriptorLimit, IsToldInWords) {
  auto server = Server::Start(Config(softverbs::SoftVerbs(), {}));
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  // What the process keeps open once it has connected is there.
  ASSERT_TRUE(Connect(softverbs::SoftVerbs(), **server).ok());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  int refused = 0;
  absl::Status last = absl::UnknownError("not tried");
  for (rlim_t allowed = 0; allowed < 200 && !last.ok(); ++allowed) {
    const UniqueFd next(dup(STDIN_FILENO));
    ASSERT_TRUE(next.valid());
    rlimit few = before;
    few.rlim_cur = static_cast<rlim_t>(next.get()) + 1 + allowed;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    const auto start = std::chrono::steady_clock::now();
    const client::ScopedFabric scoped(softverbs::SoftVerbs());
    Options options;
    options.connect_timeout = std::chrono::seconds(60);
    last = Connection::Connect((*server)->address(), options).status();
    const auto taken = std::chrono::steady_clock::now() - start;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    if (last.ok()) break;
    ++refused;
    // The server's words are cut to what a refusal has room for.
    EXPECT_THAT(Text(last), AnyOf(HasSubstr("ulimit -n"), HasSubstr("Too many open files")))
        << allowed << " are left";
    EXPECT_LT(taken, Soon()) << allowed << " are left: " << last.ToString();
  }
  EXPECT_TRUE(last.ok()) << last.ToString();
  EXPECT_GT(refused, 3);
  EXPECT_TRUE((*server)->Stop(absl::Seconds(30)));
}

}  // namespace
}  // namespace verbena::testing
