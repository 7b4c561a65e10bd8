// Large values on devices whose READ sinks must allow REMOTE_WRITE: they go through staging memory,
// and the region keeps out writers. The software device is made one of these, and enforces it;
// where the fabric under test is another, the same must work with or without staging memory,
// whichever its device needs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/src/fabric.h"
#include "common/base/shared_memory.h"
#include "common/softverbs/softverbs.h"
#include "common/verbs/forwarding_verbs.h"
#include "server/server.h"
#include "tests/integration/eventually.h"
#include "tests/integration/fabric_under_test.h"
#include "tests/integration/process.h"
#include "tests/integration/raw_client.h"
#include "verbena/connection.h"

namespace verbena::testing {
namespace {

using net::kStagingPiece;
using server::Server;
using server::ServerConfig;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using wire::OpCode;
using wire::ResultCode;

// Before the software device is used, here and in programs that the tests start.
class IwarpEnvironment : public ::testing::Environment {
 public:
  void SetUp() override { ASSERT_EQ(setenv("VERBENA_SOFT_TRANSPORT", "iwarp", 1), 0); }
};
[[maybe_unused]] ::testing::Environment* const g_environment =
    ::testing::AddGlobalTestEnvironment(new IwarpEnvironment);

// Whether the device that carries the tests needs staging memory.
bool Staged() { return DeviceCapabilities().read_sink_needs_remote_write(); }

constexpr uint64_t kMaxValue = 4 << 20;

// One worker, so that all clients share its pieces.
net::QueueOptions Queues(uint32_t pieces) {
  return {.workers = 1, .max_connections = 16, .srq_depth = 128, .staging_pieces = pieces};
}

ServerConfig Config(verbs::VerbsApi& api, uint32_t pieces) {
  ServerConfig config;
  config.listen = *NetAddress::Parse(LocalAddress());
  config.memory = 64 << 20;
  config.max_value_size = kMaxValue;
  config.huge_pages = false;
  config.queues = Queues(pieces);
  config.fabrics = {{.api = &api, .required = true}};
  return config;
}

// Bytes that are the same nowhere else, so that a piece in the wrong place is found.
std::string RandomValue(size_t size) {
  static std::mt19937_64 random(7);
  std::string value(size, ' ');
  for (char& byte : value) byte = static_cast<char>(random());
  return value;
}

const net::WorkerCounters& CountersOf(const net::Network& network) {
  return network.workers().front()->counters();
}

std::unique_ptr<RawClient> NewClient(const std::string& address, uint64_t value_memory) {
  RawClientOptions options;
  options.value_memory = value_memory;
  auto client = RawClient::ConnectAndGreet(Fabric(), address, options);
  EXPECT_TRUE(client.ok()) << client.status().ToString();
  return client.ok() ? *std::move(client) : nullptr;
}

// Sends a request to put `value` and leaves the answer for later.
void SendPut(RawClient& client, std::string_view key, std::string_view value) {
  std::memcpy(client.value_memory().data(), value.data(), value.size());
  const absl::Status sent =
      client.Send(client.ReferenceRequest(key, static_cast<uint32_t>(value.size()), 0));
  ASSERT_TRUE(sent.ok()) << sent;
}

void ExpectStored(RawClient& client) {
  const auto response = client.Receive();
  ASSERT_TRUE(response.ok()) << response.status().ToString();
  ASSERT_EQ(response->results.size(), 1u);
  EXPECT_EQ(response->results[0].code(), ResultCode::kOk) << response->results[0].value;
}

absl::StatusOr<std::unique_ptr<Connection>> Connect(const Server& server) {
  const client::ScopedFabric scoped(Fabric());
  return Connection::Connect(server.address(), Options());
}

void ExpectValue(Connection& connection, const std::string& key, const std::string& value) {
  std::string got;
  const absl::Status get = connection.Get(key, &got);
  ASSERT_TRUE(get.ok()) << key << ": " << get.ToString();
  // Not EXPECT_EQ, which would print them.
  EXPECT_TRUE(got == value) << key << ": another value";
}

// Notes what is registered, and with which rights.
class RegistrationVerbs : public verbs::ForwardingVerbs {
 public:
  using ForwardingVerbs::ForwardingVerbs;
  struct Registration {
    size_t size;
    int access;
  };
  ibv_mr* RegMr(ibv_pd* pd, void* address, size_t length, int access) override {
    registrations.push_back({length, access});
    return ForwardingVerbs::RegMr(pd, address, length, access);
  }
  std::vector<Registration> registrations;
};

TEST(ReadStaging, OnlyStagingMemoryCanBeWrittenAndOnlyTheRegionRead) {
  RegistrationVerbs noted(Fabric());
  auto server = Server::Start(Config(noted, 3));
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  int readable = 0;
  int writable = 0;
  for (const auto& [size, access] : noted.registrations) {
    if ((access & IBV_ACCESS_REMOTE_READ) != 0) {
      ++readable;
      EXPECT_EQ(access, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
      EXPECT_EQ(size, 64u << 20);
    } else if ((access & IBV_ACCESS_REMOTE_WRITE) != 0) {
      ++writable;
      EXPECT_EQ(access, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
      EXPECT_EQ(size, 3 * kStagingPiece);
    } else {
      EXPECT_EQ(access, IBV_ACCESS_LOCAL_WRITE);
    }
  }
  EXPECT_EQ(readable, 1);
  EXPECT_EQ(writable, Staged() ? 1 : 0);
}

// Registers nothing with REMOTE_WRITE.
class StrippingVerbs : public verbs::ForwardingVerbs {
 public:
  using ForwardingVerbs::ForwardingVerbs;
  ibv_mr* RegMr(ibv_pd* pd, void* address, size_t length, int access) override {
    return ForwardingVerbs::RegMr(pd, address, length, access & ~IBV_ACCESS_REMOTE_WRITE);
  }
};

// What the other tests rest on where they run on the software device: it wants the right.
TEST(ReadStaging, TheSoftwareDeviceHoldsToIt) {
  StrippingVerbs stripping(softverbs::SoftVerbs());
  ServerConfig config = Config(stripping, 2);
  config.listen = *NetAddress::Parse("127.0.0.1:0");
  auto server = Server::Start(config);
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  RawClientOptions options;
  options.value_memory = kMaxValue;
  auto client = RawClient::ConnectAndGreet(softverbs::SoftVerbs(), (*server)->address(), options);
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  SendPut(**client, "key", RandomValue(kStagingPiece));
  EXPECT_TRUE((*client)->WaitClosed().ok());
  const auto& closed = CountersOf((*server)->network()).closed;
  EXPECT_EQ(closed[static_cast<size_t>(net::CloseReason::kReadFailed)].Get(), 1u);
}

// What a server without a wish of its user's takes, and tells.
TEST(ReadStaging, IsSaid) {
  auto server = Server::Start(Config(Fabric(), 0));
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  const uint32_t pieces = Staged() ? net::kDefaultStagingPieces : 0;
  EXPECT_EQ((*server)->network().adapters().at(0).plan.staging_pieces, pieces);
  EXPECT_THAT((*server)->Info(),
              HasSubstr(absl::StrCat("\"staging_pieces\":", pieces,
                                     ",\"staging_bytes\":", pieces * kStagingPiece)));
  std::string banner;
  for (const std::string& line : (*server)->Banner()) absl::StrAppend(&banner, line, "\n");
  if (Staged()) {
    EXPECT_THAT(banner, HasSubstr("staging memory, 32 x 256KiB per worker"));
  } else {
    EXPECT_THAT(banner, Not(HasSubstr("staging")));
  }
}

TEST(ReadStaging, ValuesOfAllSizes) {
  for (const uint32_t pieces : {1U, 3U, 32U}) {
    SCOPED_TRACE(absl::StrCat(pieces, " pieces"));
    auto server = Server::Start(Config(Fabric(), pieces));
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    auto connection = Connect(**server);
    ASSERT_TRUE(connection.ok()) << connection.status().ToString();
    for (const uint64_t size :
         {uint64_t{net::kEagerLimit} + 1, uint64_t{10'007}, kStagingPiece - 1, kStagingPiece,
          kStagingPiece + 1, 2 * kStagingPiece - 1, 2 * kStagingPiece + 1, 7 * kStagingPiece + 13,
          kMaxValue - 1, kMaxValue}) {
      SCOPED_TRACE(size);
      const std::string value = RandomValue(size);
      const auto put = (*connection)->Put("key", value);
      ASSERT_TRUE(put.ok()) << put.status().ToString();
      ExpectValue(**connection, "key", value);
    }
    EXPECT_FALSE((*connection)->Put("key", std::string(kMaxValue + 1, 'v')).ok());
    EXPECT_TRUE((*connection)->Put("key", std::string(kStagingPiece, 'v')).ok());
    EXPECT_EQ(CountersOf((*server)->network()).staging_in_use.Get(), 0u);
  }
}

// More transfers at once than there are pieces: all get on, each has its own bytes.
TEST(ReadStaging, FewerPiecesThanTransfers) {
  for (const uint32_t pieces : {1U, 2U, 3U}) {
    SCOPED_TRACE(absl::StrCat(pieces, " pieces"));
    auto server = Server::Start(Config(Fabric(), pieces));
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    const net::WorkerCounters& counters = CountersOf((*server)->network());
    std::vector<std::unique_ptr<RawClient>> clients;
    std::vector<std::string> values;
    for (int i = 0; i < Scaled(12, 6); ++i) {
      clients.push_back(NewClient((*server)->address(), kMaxValue));
      ASSERT_NE(clients.back(), nullptr);
      values.emplace_back();
    }
    for (int round = 0; round < Scaled(10, 2); ++round) {
      for (size_t i = 0; i < clients.size(); ++i) {
        values[i] = RandomValue((1 + i % 4) * kStagingPiece + 8 * i + 1);
        SendPut(*clients[i], absl::StrCat("key", i), values[i]);
      }
      for (const auto& client : clients) ExpectStored(*client);
    }
    EXPECT_EQ(counters.staging_in_use.Get(), 0u);
    EXPECT_EQ(counters.waits_for_staging.Get() > 0, Staged());
    auto connection = Connect(**server);
    ASSERT_TRUE(connection.ok()) << connection.status().ToString();
    for (size_t i = 0; i < values.size(); ++i) {
      ExpectValue(**connection, absl::StrCat("key", i), values[i]);
    }
  }
}

// Keeps READs that queue pairs of this table post: the device never hears of them, and they never
// complete, until their queue pair is destroyed; then, before that is done, they write to their
// sinks, as late as an adapter possibly could.
class HoldingVerbs : public verbs::ForwardingVerbs {
 public:
  using ForwardingVerbs::ForwardingVerbs;
  ~HoldingVerbs() override { current_ = nullptr; }

  std::atomic<bool> hold = false;
  std::atomic<int> held = 0;           // READs
  std::atomic<int> destroyed = 0;      // queue pairs that had such
  std::function<void()> before_write;  // called when such a queue pair is to be destroyed

  ibv_pd* AllocPd(ibv_context* context) override {
    current_ = this;
    if (context->ops.post_send != PostSendHook) {
      original_ = context->ops.post_send;
      context->ops.post_send = PostSendHook;
    }
    return ForwardingVerbs::AllocPd(context);
  }
  int CmCreateQp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attr) override {
    const int result = ForwardingVerbs::CmCreateQp(id, pd, attr);
    const std::lock_guard lock(mutex_);
    if (result == 0) sinks_[id->qp];
    return result;
  }
  void CmDestroyQp(rdma_cm_id* id) override {
    WriteLate(id->qp);
    ForwardingVerbs::CmDestroyQp(id);
  }

 private:
  static int PostSendHook(ibv_qp* qp, ibv_send_wr* list, ibv_send_wr** bad) {
    HoldingVerbs* const current = current_;
    if (current != nullptr && list->opcode == IBV_WR_RDMA_READ && current->Hold(qp, list)) return 0;
    return original_(qp, list, bad);
  }
  bool Hold(const ibv_qp* qp, const ibv_send_wr* list) {
    const std::lock_guard lock(mutex_);
    const auto found = sinks_.find(qp);
    if (found == sinks_.end() || !hold) return false;
    for (; list != nullptr; list = list->next) {
      found->second.push_back(list->sg_list[0]);
      ++held;
    }
    return true;
  }
  void WriteLate(const ibv_qp* qp) {
    std::vector<ibv_sge> sinks;
    {
      const std::lock_guard lock(mutex_);
      sinks = std::exchange(sinks_[qp], {});
      sinks_.erase(qp);
    }
    if (sinks.empty()) return;
    before_write();
    for (const ibv_sge& sink : sinks) {
      std::memset(reinterpret_cast<void*>(sink.addr), 0xee, sink.length);
    }
    ++destroyed;
  }

  static inline std::atomic<HoldingVerbs*> current_ = nullptr;
  static inline decltype(ibv_context_ops::post_send) original_ = nullptr;
  std::mutex mutex_;
  std::map<const ibv_qp*, std::vector<ibv_sge>> sinks_;
};

// A client dies while READs of its value are under way and never seem to end. Its pieces go to the
// next in the line, but only when nothing can be written there any more.
TEST(ReadStaging, PiecesOfADeadClientComeBackWithItsQueuePair) {
  constexpr uint32_t kPieces = 3;
  HoldingVerbs holding(Fabric());
  auto server = Server::Start(Config(holding, kPieces));
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  const net::WorkerCounters& counters = CountersOf((*server)->network());
  const uint32_t taken = Staged() ? kPieces : 0;
  holding.before_write = [&] { EXPECT_EQ(counters.staging_in_use.Get(), taken); };
  for (int round = 0; round < 3; ++round) {
    auto victim = NewClient((*server)->address(), kMaxValue);
    auto late = NewClient((*server)->address(), kMaxValue);
    auto another = NewClient((*server)->address(), kMaxValue);
    ASSERT_TRUE(victim != nullptr && late != nullptr && another != nullptr);
    const int held = holding.held;
    const uint64_t waits = counters.waits_for_staging.Get();
    holding.hold = true;
    SendPut(*victim, "victim", RandomValue(kMaxValue));
    ASSERT_TRUE(Eventually([&] { return holding.held - held >= (Staged() ? 3 : 4); }));
    holding.hold = false;
    EXPECT_EQ(counters.staging_in_use.Get(), taken);
    // Two more stand in the line behind it; one of them dies there.
    const std::string value = RandomValue(kMaxValue);
    SendPut(*another, "another", RandomValue(kMaxValue));
    SendPut(*late, "late", value);
    if (Staged()) {
      ASSERT_TRUE(Eventually([&] { return counters.waits_for_staging.Get() == waits + 3; }));
      another.reset();
      ASSERT_TRUE(Eventually([&] { return (*server)->network().connections() == 2; }));
    }
    victim.reset();
    ExpectStored(*late);
    ASSERT_TRUE(Eventually([&] { return holding.destroyed == round + 1; }));
    auto connection = Connect(**server);
    ASSERT_TRUE(connection.ok()) << connection.status().ToString();
    ExpectValue(**connection, "late", value);
    std::string none;
    EXPECT_TRUE(absl::IsNotFound((*connection)->Get("victim", &none)));
    connection->reset();
    late.reset();
    another.reset();
    ASSERT_TRUE(Eventually([&] { return (*server)->network().connections() == 0; }));
    ASSERT_TRUE(Eventually([&] { return counters.staging_in_use.Get() == 0; }));
  }
}

// Processes killed while they put large values, again and again: no piece is lost.
TEST(ReadStaging, PiecesOfKilledClientsComeBack) {
  constexpr uint32_t kPieces = 2;
  ServerConfig config = Config(Fabric(), kPieces);
  config.memory = 128 << 20;
  config.max_value_size = 8 << 20;  // that of server_test_client
  auto server = Server::Start(config);
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  const net::WorkerCounters& counters = CountersOf((*server)->network());
  for (int round = 0; round < Scaled(8, 2); ++round) {
    std::vector<std::unique_ptr<Process>> clients;
    for (int i = 0; i < 3; ++i) {
      auto client = Process::Start(
          {.program = ProgramPath("server_test_client"), .args = {(*server)->address(), "large"}});
      ASSERT_TRUE(client.ok()) << client.status().ToString();
      clients.push_back(*std::move(client));
    }
    for (const auto& client : clients) {
      const absl::Status running = client->WaitForOutput("running");
      ASSERT_TRUE(running.ok()) << running.ToString();
    }
    for (const auto& client : clients) client->Signal(SIGKILL);
    ASSERT_TRUE(Eventually([&] { return (*server)->network().connections() == 0; }));
    ASSERT_TRUE(Eventually([&] { return counters.staging_in_use.Get() == 0; }));
  }
  EXPECT_EQ(counters.waits_for_staging.Get() > 0, Staged());
  auto connection = Connect(**server);
  ASSERT_TRUE(connection.ok()) << connection.status().ToString();
  const std::string value = RandomValue(kMaxValue);
  ASSERT_TRUE((*connection)->Put("key", value).ok());
  ExpectValue(**connection, "key", value);
}

// A READ that is refused ends its connection, and its pieces come back too.
TEST(ReadStaging, PiecesOfRefusedReadsComeBack) {
  auto server = Server::Start(Config(Fabric(), 2));
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  const net::WorkerCounters& counters = CountersOf((*server)->network());
  for (int round = 0; round < 3; ++round) {
    auto wrong = NewClient((*server)->address(), kMaxValue);
    ASSERT_NE(wrong, nullptr);
    ASSERT_TRUE(
        wrong->Send(wrong->ReferenceRequest("wrong", kMaxValue, 0, /*rkey_change=*/1 << 20)).ok());
    EXPECT_TRUE(wrong->WaitClosed().ok());
    auto right = NewClient((*server)->address(), kMaxValue);
    ASSERT_NE(right, nullptr);
    SendPut(*right, "right", RandomValue(kMaxValue));
    ExpectStored(*right);
    wrong.reset();
    right.reset();
    ASSERT_TRUE(Eventually([&] { return (*server)->network().connections() == 0; }));
    ASSERT_TRUE(Eventually([&] { return counters.staging_in_use.Get() == 0; }));
  }
}

// Keeps the order in which values are complete, and lets the worker wait in its first change, while
// requests gather.
class OrderHandler : public net::RequestHandler {
 public:
  explicit OrderHandler(std::span<uint8_t> memory) : memory_(memory) {}

  void Expect(std::span<const std::string_view>) override {}
  net::Lookup Get(int, std::string_view, std::span<uint8_t>, bool) override { return {}; }
  void Release(int, uint64_t) override {}
  net::Change Put(int, const wire::Operation&) override { return {}; }
  net::Change Delete(int, const wire::Operation&) override { return {}; }
  net::Lookup Take(int, const wire::Operation&, std::span<uint8_t>) override { return {}; }
  net::Change Add(int, const wire::Operation&) override { return {}; }
  net::Change Append(int, const wire::Operation&) override { return {}; }
  net::Change Expire(int, const wire::Operation&) override { return {}; }
  net::TimeLeft Ttl(int, std::string_view) override { return {}; }
  net::ScanPage Scan(const wire::Operation&, std::span<uint8_t>) override { return {}; }
  void Touch(std::string_view) override {}
  net::Change Prepare(int, const wire::Operation& operation,
                      std::unique_ptr<net::PendingChange>* pending) override {
    const uint32_t value_len = operation.header.value_len;
    std::unique_lock lock(mutex_);
    blocked_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, kPatience, [this] { return open_; });
    *pending = std::make_unique<Pending>(std::string(operation.key), memory_.first(value_len));
    memory_ = memory_.subspan(value_len);
    return {};
  }
  net::Change Publish(int, std::unique_ptr<net::PendingChange> pending) override {
    const std::lock_guard lock(mutex_);
    order_.push_back(static_cast<Pending&>(*pending).key);
    return {};
  }
  void ReturnSpare(int) override {}
  std::string Info() override { return "{}"; }

  bool WaitBlocked() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [this] { return blocked_; });
  }
  void LetGo() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  std::vector<std::string> order() const {
    const std::lock_guard lock(mutex_);
    return order_;
  }

 private:
  struct Pending : net::PendingChange {
    Pending(std::string name, std::span<uint8_t> place) : key(std::move(name)), block(place) {}
    std::span<uint8_t> value() const override { return block; }
    void Filled(uint64_t) override {}
    const std::string key;
    const std::span<uint8_t> block;
  };

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool blocked_ = false;
  bool open_ = false;
  std::span<uint8_t> memory_;
  std::vector<std::string> order_;
};

// One piece for all: smaller values that come last are not kept waiting by the large ones before
// them, and among equals the first is done first.
TEST(ReadStaging, PiecesGoRoundInTheOrderOfTheLine) {
  auto memory = SharedMemory::Create("read-staging-test", 32 << 20, /*want_huge=*/false);
  ASSERT_TRUE(memory.ok()) << memory.status().ToString();
  net::NetworkOptions options;
  options.listen = *NetAddress::Parse(LocalAddress());
  options.fabrics = {{.api = &Fabric(), .required = true}};
  options.queues = Queues(1);
  auto network = net::Network::Create(options, {.memory = memory->bytes(),
                                                .epoch = 1,
                                                .max_value_size = kMaxValue,
                                                .max_key_size = 100,
                                                .layout_version = 1});
  ASSERT_TRUE(network.ok()) << network.status().ToString();
  OrderHandler handler(memory->bytes());
  ASSERT_TRUE((*network)->Start(handler).ok());
  constexpr std::array kSizes = {kMaxValue,         kMaxValue,     kMaxValue,
                                 2 * kStagingPiece, kStagingPiece, kStagingPiece - 1};
  std::vector<std::unique_ptr<RawClient>> clients;
  for (const uint64_t size : kSizes) {
    clients.push_back(NewClient((*network)->address().ToString(), size));
    ASSERT_NE(clients.back(), nullptr);
  }
  for (size_t i = 0; i < kSizes.size(); ++i) {
    SendPut(*clients[i], std::to_string(i), RandomValue(kSizes[i]));
    if (i == 0) {
      ASSERT_TRUE(handler.WaitBlocked());
    }
  }
  handler.LetGo();
  for (const auto& client : clients) ExpectStored(*client);
  if (Staged()) {
    // Of the equals the first to come is the first to go; of the others, who needs fewer pieces.
    EXPECT_THAT(handler.order(), ElementsAre("4", "5", "3", "0", "1", "2"));
  } else {
    EXPECT_EQ(handler.order().size(), kSizes.size());
  }
  clients.clear();
  EXPECT_TRUE((*network)->Stop(absl::Seconds(30)));
}

}  // namespace
}  // namespace verbena::testing
