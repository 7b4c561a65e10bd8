// Connections that are lost while operations are in flight: what is made again, and that every
// change is made once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/src/connection_test_peer.h"
#include "common/verbs/forwarding_verbs.h"
#include "common/wire/handshake.h"
#include "server/server.h"
#include "tests/integration/eventually.h"
#include "tests/integration/fabric_under_test.h"
#include "tests/integration/patient_options.h"
#include "tests/integration/process.h"
#include "tests/integration/raw_client.h"
#include "verbena/client.h"
#include "verbena/connection.h"

namespace verbena {
namespace {

using client::ConnectionTestPeer;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using testing::PatientOptions;
using testing::ServerProcess;

// A server's table of calls through which its connections can be broken from outside, at any
// instant, as an error of the network does; and answers to clients be changed.
class BreakableVerbs : public verbs::ForwardingVerbs {
 public:
  using ForwardingVerbs::ForwardingVerbs;

  // Moves one of the queue pairs, by chance, to ERR. False if there is none that has not been.
  bool BreakOne(std::minstd_rand& random) {
    const std::lock_guard lock(mutex_);
    if (queue_pairs_.empty()) return false;
    auto it = queue_pairs_.begin();
    std::advance(it, static_cast<std::ptrdiff_t>(random() % queue_pairs_.size()));
    rdma_cm_id* const id = *it;
    queue_pairs_.erase(it);
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    return base().ModifyQp(id->qp, &attributes, IBV_QP_STATE) == 0;
  }
  // The server has another protocol version for everybody who comes from now on; or its own.
  void set_protocol(std::optional<uint16_t> version) {
    const std::lock_guard lock(mutex_);
    protocol_ = version;
  }

  int CmAccept(rdma_cm_id* id, rdma_conn_param* param) override {
    const std::lock_guard lock(mutex_);
    if (protocol_.has_value()) {
      wire::RejectData refusal;
      refusal.protocol = *protocol_;
      refusal.reason = wire::RejectReason::kOtherProtocol;
      refusal.text = "another version";
      const auto bytes = wire::Encode(refusal);
      return base().CmReject(id, bytes.data(), static_cast<uint8_t>(bytes.size()));
    }
    const int result = base().CmAccept(id, param);
    if (result == 0) queue_pairs_.insert(id);
    return result;
  }
  void CmDestroyQp(rdma_cm_id* id) override {
    const std::lock_guard lock(mutex_);
    queue_pairs_.erase(id);
    base().CmDestroyQp(id);
  }

 private:
  std::mutex mutex_;
  std::set<rdma_cm_id*> queue_pairs_;
  std::optional<uint16_t> protocol_;
};

class Recovery : public ::testing::Test {
 protected:
  void SetUp() override { StartServer({}); }
  void StartServer(const net::SessionLimits& sessions) {
    server_.reset();
    server::ServerConfig config;
    config.sessions = sessions;
    config.listen = *NetAddress::Parse(testing::LocalAddress());
    config.memory = 64 << 20;
    config.huge_pages = false;
    config.queues = {.workers = 2, .max_connections = 32, .srq_depth = 256};
    config.fabrics = {{.api = &verbs_, .required = true}};
    auto server = server::Server::Start(config);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  std::unique_ptr<Connection> Connect(const Options& options = PatientOptions()) {
    auto connection = Connection::Connect(server_->address(), options);
    EXPECT_TRUE(connection.ok()) << connection.status();
    return connection.ok() ? *std::move(connection) : nullptr;
  }
  nlohmann::json Info() { return nlohmann::json::parse(server_->Info(), nullptr, false); }

  BreakableVerbs verbs_{testing::Fabric()};
  std::unique_ptr<server::Server> server_;
};

TEST_F(Recovery, SynchronousCallsGoOn) {
  const auto connection = Connect();
  ASSERT_NE(connection, nullptr);
  ConnectionTestPeer peer(*connection);
  ASSERT_TRUE(connection->Put("key", "value").ok());
  const uint64_t epoch = connection->server_epoch();
  std::string value;
  for (int64_t i = 1; i <= 20; ++i) {
    peer.Break();
    const auto sum = connection->Add("count", 1);
    ASSERT_TRUE(sum.ok()) << sum.status();
    EXPECT_EQ(sum->number, i);
    peer.Break();
    ASSERT_TRUE(connection->Get("key", &value).ok());
    EXPECT_EQ(value, "value");
    peer.Break();
    EXPECT_TRUE(absl::IsNotFound(connection->Get("none", &value)));
    peer.Break();
    std::vector<ScanItem> items;
    ASSERT_TRUE(connection->Scan({}, 10, &items).ok());
    EXPECT_EQ(items.size(), 2u);
    peer.Break();
    ASSERT_TRUE(connection->Ping().ok());
  }
  EXPECT_TRUE(connection->status().ok());
  EXPECT_GE(connection->stats().reconnects, 50u);
  EXPECT_EQ(connection->server_epoch(), epoch);
  EXPECT_EQ(Info()["operations"]["add"]["ok"], 20);
  EXPECT_EQ(Info()["sessions"]["dropped"], 0);
}

// A session that the server has forgotten is made anew by the client's hello. If that hello comes
// to nothing the next one finds the new session, which knows nothing of the changes before: they
// are not repeated.
TEST_F(Recovery, ASessionMadeAnewIsNotTakenForTheOneBefore) {
  ASSERT_NO_FATAL_FAILURE(StartServer({.linger_ns = 0}));
  const auto connection = Connect();
  ASSERT_NE(connection, nullptr);
  ConnectionTestPeer peer(*connection);
  std::optional<absl::Status> outcome;
  ASSERT_TRUE(connection
                  ->SubmitAdd("count", 1,
                              [&](const absl::Status& status, const ChangeResult& result) {
                                EXPECT_EQ(result.number, 0);
                                outcome = status;
                              })
                  .ok());
  peer.Flush();
  ASSERT_TRUE(testing::Eventually([&] { return Info()["operations"]["add"]["ok"] == 1; }));
  ASSERT_FALSE(outcome.has_value());
  peer.Lose();
  ASSERT_TRUE(testing::Eventually([&] { return Info()["sessions"]["dropped"] == 1; }));
  // The hello of which the client does not hear.
  testing::RawClientOptions options;
  options.session = peer.session();
  options.operations = 64;
  const auto unheard =
      testing::RawClient::ConnectAndGreet(testing::Fabric(), server_->address(), options);
  ASSERT_TRUE(unheard.ok()) << unheard.status();
  connection->Drain();
  ASSERT_TRUE(outcome.has_value());
  EXPECT_TRUE(absl::IsUnavailable(*outcome) && OutcomeUnknown(*outcome)) << *outcome;
  EXPECT_EQ(Info()["sessions"]["superseded"], 1);
  const auto sum = connection->Add("count", 1);
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_EQ(sum->number, 2);
}

// Where sessions take more memory than they should a new one has few numbers, but enough for each
// message that there may be.
TEST_F(Recovery, ASessionOfFewNumbersGoesOn) {
  ASSERT_NO_FATAL_FAILURE(StartServer({.most_bytes = 0}));
  const auto first = Connect();
  ASSERT_NE(first, nullptr);
  Options options = PatientOptions();
  options.depth = 1024;
  const auto connection = Connect(options);
  ASSERT_NE(connection, nullptr);
  int64_t sum = 0;
  for (uint32_t i = 0; i < options.depth; ++i) {
    ASSERT_TRUE(connection
                    ->SubmitAdd("count", 1,
                                [&](const absl::Status& status, const ChangeResult& result) {
                                  EXPECT_TRUE(status.ok()) << status;
                                  EXPECT_EQ(result.number, ++sum);
                                })
                    .ok());
  }
  connection->Drain();
  EXPECT_EQ(sum, options.depth);
}

// A callback may free the memory that its operation has used: so by then no device may write to it,
// however the connection ends.
TEST_F(Recovery, NoCallbackRunsBesideTheQueuePairOfADeadConnection) {
  enum class End { kClose, kCloseInACallback, kDestroy, kLoss };
  for (const End end : {End::kClose, End::kCloseInACallback, End::kDestroy, End::kLoss}) {
    SCOPED_TRACE(static_cast<int>(end));
    Options options = PatientOptions();
    options.reconnect = false;
    std::vector<std::byte> memory(256 << 10);
    auto connection = Connect(options);
    ASSERT_NE(connection, nullptr);
    ASSERT_TRUE(connection->Put("key", "value").ok());
    auto buffer = connection->RegisterBuffer(memory);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    ConnectionTestPeer peer(*connection);
    if (end == End::kCloseInACallback) {
      const auto close = [&](const absl::Status&, const GetResult&) { connection->Close(); };
      ASSERT_TRUE(connection->SubmitGetInto("none", buffer->bytes(), close).ok());
    }
    int failed = 0;
    for (size_t i = 0; i < 8; ++i) {
      const auto count = [&](const absl::Status& status, const GetResult&) {
        EXPECT_FALSE(status.ok());
        EXPECT_FALSE(peer.has_queue_pair());
        ++failed;
      };
      const auto target = buffer->bytes().subspan(i * 100, 100);
      ASSERT_TRUE(connection->SubmitGetInto("none", target, count).ok());
    }
    switch (end) {
      case End::kClose:
        connection->Close();
        break;
      case End::kDestroy:
        connection.reset();
        break;
      case End::kLoss:
        peer.Break();
        [[fallthrough]];
      case End::kCloseInACallback:
        connection->Drain();
    }
    EXPECT_EQ(failed, 8);
  }
}

// With an idle connection, a loss shows with the next Poll, or operation.
TEST_F(Recovery, AnIdleConnectionIsMadeAgain) {
  Options options = PatientOptions();
  const auto connection = Connect(options);
  ASSERT_NE(connection, nullptr);
  ConnectionTestPeer peer(*connection);
  peer.Break();
  ASSERT_TRUE(testing::Eventually([&] {
    connection->Poll();
    return connection->stats().reconnects == 1 && peer.up();
  }));
  EXPECT_TRUE(connection->Put("key", "value").ok());
}

// All sizes and kinds, in flight while connections break at random instants: by the client's queue
// pair between two polls, and by the server's at any time. Nothing fails, nothing is lost, and
// nothing is made twice.
class Worker {
 public:
  Worker(std::unique_ptr<Connection> connection, unsigned number)
      : connection_(std::move(connection)), peer_(*connection_), number_(number), random_(number) {
    for (int i = 0; i < kKeys; ++i) keys_.emplace_back();
  }

  void Step() {
    while (connection_->in_flight() < 16) {
      Key& key = keys_[random_() % keys_.size()];
      if (key.busy) break;
      key.busy = true;
      Submit(key, static_cast<size_t>(&key - keys_.data()));
    }
    connection_->Poll();
  }
  // False if there is no connection at the moment.
  bool Break() {
    if (!peer_.up()) return false;
    peer_.Break();
    return true;
  }
  Connection& connection() { return *connection_; }
  int64_t adds() const { return adds_; }
  int64_t appends() const { return appends_; }
  int64_t puts() const { return puts_; }

  // Everything has been answered: what is there must be what was.
  void Check() {
    connection_->Drain();
    std::string value;
    for (size_t i = 0; i < keys_.size(); ++i) {
      const Key& key = keys_[i];
      const auto got = [&](const char* kind) {
        const absl::Status status = connection_->Get(Name(kind, i), &value);
        if (!status.ok()) value.clear();
        EXPECT_TRUE(status.ok() || absl::IsNotFound(status)) << status;
        return value;
      };
      EXPECT_EQ(got("count"), key.count == 0 ? "" : absl::StrCat(key.count));
      EXPECT_TRUE(got("list") == key.list) << number_ << " " << i;
      EXPECT_TRUE(got("value") == key.value) << number_ << " " << i;
    }
  }

 private:
  static constexpr int kKeys = 24;
  struct Key {
    int64_t count = 0;
    std::string list;
    std::string value;  // empty: none
    std::string next;
    bool busy = false;
  };

  std::string Name(const char* kind, size_t i) const {
    return absl::StrCat(kind, "-", number_, "-", i);
  }

  void Submit(Key& key, size_t i) {
    absl::Status submitted;
    switch (random_() % 8) {
      case 0:
      case 1:
      case 2:
        ++adds_;
        submitted = connection_->SubmitAdd(
            Name("count", i), 1, [&key](const absl::Status& status, const ChangeResult& result) {
              EXPECT_TRUE(status.ok()) << status;
              EXPECT_EQ(result.number, ++key.count);
              key.busy = false;
            });
        break;
      case 3:
      case 4: {
        ++appends_;
        key.next = absl::StrCat(appends_, ";");
        submitted = connection_->SubmitAppend(
            Name("list", i), key.next, [&key](const absl::Status& status, const ChangeResult&) {
              EXPECT_TRUE(status.ok()) << status;
              key.list += key.next;
              key.busy = false;
            });
        break;
      }
      case 5: {
        ++puts_;
        const std::string stamp = absl::StrCat(puts_, ".");
        const size_t size = puts_ % 20 == 0 ? 100'000 : 1 + random_() % 500;
        key.next.clear();
        do key.next += stamp;
        while (key.next.size() < size);
        submitted =
            connection_->SubmitPut(Name("value", i), key.next,
                                   [&key](const absl::Status& status, const ChangeResult& result) {
                                     EXPECT_TRUE(status.ok()) << status;
                                     EXPECT_EQ(result.existed, !key.value.empty());
                                     key.value = key.next;
                                     key.busy = false;
                                   });
        break;
      }
      case 6:
        submitted = connection_->SubmitGetAndDelete(
            Name("value", i), [&key](const absl::Status& status, const GetResult& result) {
              EXPECT_EQ(status.ok(), !key.value.empty()) << status;
              EXPECT_TRUE(status.ok() || absl::IsNotFound(status)) << status;
              EXPECT_TRUE(!status.ok() || result.value == key.value);
              key.value.clear();
              key.busy = false;
            });
        break;
      default:
        submitted = connection_->SubmitGet(
            Name("value", i), [&key](const absl::Status& status, const GetResult& result) {
              EXPECT_EQ(status.ok(), !key.value.empty()) << status;
              EXPECT_TRUE(status.ok() || absl::IsNotFound(status)) << status;
              EXPECT_TRUE(!status.ok() || result.value == key.value);
              key.busy = false;
            });
    }
    EXPECT_TRUE(submitted.ok()) << submitted;
  }

  std::unique_ptr<Connection> connection_;
  ConnectionTestPeer peer_;
  const unsigned number_;
  std::minstd_rand random_;
  std::vector<Key> keys_;
  int64_t adds_ = 0;
  int64_t appends_ = 0;
  int64_t puts_ = 0;
};

// 10,000 with VERBENA_KILLS=10000, or in the full tests.
int Kills() {
  if (const char* kills = std::getenv("VERBENA_KILLS"); kills != nullptr) return std::atoi(kills);
#ifdef VERBENA_FULL_TESTS
  return 10'000;
#else
  return testing::Scaled(200, 20);
#endif
}

TEST_F(Recovery, KilledAtRandomInstants) {
  constexpr unsigned kWorkers = 3;
  std::vector<std::unique_ptr<Worker>> workers;
  for (unsigned i = 0; i < kWorkers; ++i) {
    auto connection = Connect();
    ASSERT_NE(connection, nullptr);
    workers.push_back(std::make_unique<Worker>(std::move(connection), i + 1));
  }
  const int kills = Kills();
  std::minstd_rand random(7);
  // From the side of the server, in a thread of its own: at any instant.
  std::atomic<int> killed{0};
  std::atomic<bool> stop{false};
  std::thread killer([&] {
    std::minstd_rand dice(11);
    while (!stop) {
      std::this_thread::sleep_for(std::chrono::microseconds(200 + dice() % 3000));
      if (verbs_.BreakOne(dice)) ++killed;
    }
  });
  while (killed < kills && !HasFailure()) {
    for (const std::unique_ptr<Worker>& worker : workers) {
      worker->Step();
      if (random() % 400 == 0 && worker->Break()) ++killed;
    }
  }
  stop = true;
  killer.join();
  int64_t adds = 0;
  int64_t appends = 0;
  uint64_t reconnects = 0;
  for (const std::unique_ptr<Worker>& worker : workers) {
    worker->Check();
    adds += worker->adds();
    appends += worker->appends();
    reconnects += worker->connection().stats().reconnects;
  }
  const auto info = Info();
  EXPECT_EQ(info["operations"]["add"]["ok"], adds);
  EXPECT_EQ(info["operations"]["append"]["ok"], appends);
  EXPECT_EQ(info["counters"]["malformed"], 0);
  EXPECT_EQ(info["sessions"]["open"], kWorkers);
  // Kills that come while there is no connection count, and how many do depends on the machine.
  EXPECT_GT(reconnects, static_cast<uint64_t>(kills) / 20);
  std::cout << "kills " << killed << ", connections made again " << reconnects << ", additions "
            << adds << ", appendices " << appends << ", repeated changes that had been made "
            << info["counters"]["repeated"] << "\n";
}

// Other versions, older and newer: final, and both are named.
TEST_F(Recovery, AServerOfAnotherVersionIsRefusedForGood) {
  for (const uint16_t version : {uint16_t{2}, uint16_t{4}}) {
    const auto connection = Connect();
    ASSERT_NE(connection, nullptr);
    verbs_.set_protocol(version);
    const absl::Status refused = Connection::Connect(server_->address(), PatientOptions()).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_THAT(
        std::string(refused.message()),
        ::testing::AllOf(
            ::testing::HasSubstr(absl::StrCat("it speaks protocol version ", version)),
            ::testing::HasSubstr(absl::StrCat("this client version ", wire::kProtocolVersion))));
    ConnectionTestPeer(*connection).Break();
    const absl::Status again = connection->Add("count", 1).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(again)) << again;
    EXPECT_THAT(std::string(again.message()), ::testing::HasSubstr("this client version"));
    EXPECT_THAT(std::string(connection->status().message()),
                ::testing::HasSubstr("this client version"))
        << "dead, and says why";
    EXPECT_FALSE(connection->Ping().ok());
    verbs_.set_protocol(std::nullopt);
  }
}

TEST_F(Recovery, NotIfItIsNotWanted) {
  Options options = PatientOptions();
  options.reconnect = false;
  const auto connection = Connect(options);
  ASSERT_NE(connection, nullptr);
  EXPECT_EQ(Info()["sessions"]["open"], 0);
  ConnectionTestPeer(*connection).Break();
  const absl::Status lost = connection->Put("key", "value").status();
  EXPECT_TRUE(absl::IsUnavailable(lost)) << lost;
  EXPECT_TRUE(absl::IsUnavailable(connection->status()));
  std::string value;
  EXPECT_TRUE(absl::IsUnavailable(connection->Get("key", &value)));
}

// A server process that is killed and started again at the same address.
class Restart : public ::testing::Test {
 protected:
  void StartServer() {
    std::vector<std::string> flags = {"--workers=2"};
    if (!address_.empty()) flags.push_back("--listen=" + address_);
    // Its port may be held for a moment by what is left of the one before.
    ASSERT_TRUE(testing::Eventually([&] {
      auto server = ServerProcess::Start(flags);
      if (server.ok()) server_ = *std::move(server);
      return server.ok();
    }));
    address_ = server_->address();
  }

  std::unique_ptr<ServerProcess> server_;
  std::string address_;
};

// Unanswered changes that were sent have an unknown outcome, and are not made by the new server.
TEST_F(Restart, UnansweredChangesAreNeverMadeTwice) {
  ASSERT_NO_FATAL_FAILURE(StartServer());
  auto connected = Connection::Connect(address_, PatientOptions());
  ASSERT_TRUE(connected.ok()) << connected.status();
  Connection& connection = **connected;
  const int rounds = testing::Scaled(5, 1);
  int64_t unknown = 0;
  for (int round = 0; round < rounds; ++round) {
    const uint64_t epoch = connection.server_epoch();
    int64_t answered_by_new = 0;
    int64_t unknown_now = 0;
    bool killed = false;
    int64_t submitted = 0;
    int64_t finished = 0;
    const auto submit = [&] {
      while (connection.in_flight() < 32) {
        ++submitted;
        ASSERT_TRUE(connection
                        .SubmitAdd("count", 1,
                                   [&](const absl::Status& status, const ChangeResult& result) {
                                     ++finished;
                                     if (status.ok()) {
                                       if (connection.server_epoch() == epoch) return;
                                       EXPECT_EQ(result.number, ++answered_by_new);
                                       return;
                                     }
                                     EXPECT_TRUE(killed);
                                     EXPECT_TRUE(OutcomeUnknown(status)) << status;
                                     EXPECT_TRUE(absl::IsUnavailable(status)) << status;
                                     ++unknown_now;
                                   })
                        .ok());
      }
    };
    for (int i = 0; i < 200; ++i) {
      ASSERT_NO_FATAL_FAILURE(submit());
      connection.Poll();
    }
    // Frozen first, so that something is surely unanswered: what comes after all answers that the
    // server has sent.
    ASSERT_TRUE(server_->process().Freeze().ok());
    for (int quiet = 0; quiet < 100;) quiet = connection.Poll() == 0 ? quiet + 1 : 0;
    ASSERT_NO_FATAL_FAILURE(submit());
    connection.Poll();
    server_->process().Signal(SIGKILL);
    ASSERT_TRUE(server_->process().WaitForExit().ok());
    killed = true;
    ASSERT_NO_FATAL_FAILURE(StartServer());
    const auto deadline = steady_clock::now() + testing::kPatience;
    while (answered_by_new < 100 && steady_clock::now() < deadline) {
      ASSERT_NO_FATAL_FAILURE(submit());
      connection.Wait(seconds(1));
    }
    connection.Drain();
    EXPECT_NE(connection.server_epoch(), epoch);
    EXPECT_GT(unknown_now, 0);
    EXPECT_EQ(finished, submitted);
    std::string value;
    ASSERT_TRUE(connection.Get("count", &value).ok());
    EXPECT_EQ(value, absl::StrCat(answered_by_new));
    unknown += unknown_now;
  }
  EXPECT_GE(connection.stats().reconnects, static_cast<uint64_t>(rounds));
  std::cout << "unknown outcomes " << unknown << "\n";
}

// Reads go on with the new server's data, and nothing of the old one's is served from caches.
TEST_F(Restart, ReadsGoOnWithOtherData) {
  ASSERT_NO_FATAL_FAILURE(StartServer());
  auto connected = Connection::Connect(address_, PatientOptions());
  ASSERT_TRUE(connected.ok()) << connected.status();
  Connection& connection = **connected;
  std::string value;
  for (int i = 0; i < 500; ++i) {
    const std::string key = absl::StrCat("key-", i);
    ASSERT_TRUE(connection.Put(key, "old").ok());
    ASSERT_TRUE(connection.Get(key, &value).ok());
  }
  server_->process().Signal(SIGKILL);
  ASSERT_TRUE(server_->process().WaitForExit().ok());
  ASSERT_NO_FATAL_FAILURE(StartServer());
  auto other = Connection::Connect(address_, PatientOptions());
  ASSERT_TRUE(other.ok()) << other.status();
  for (int i = 0; i < 500; i += 2) {
    ASSERT_TRUE((*other)->Put(absl::StrCat("key-", i), "new").ok());
  }
  for (int i = 0; i < 500; ++i) {
    const absl::Status got = connection.Get(absl::StrCat("key-", i), &value);
    if (i % 2 == 0) {
      ASSERT_TRUE(got.ok()) << got;
      EXPECT_EQ(value, "new");
    } else {
      ASSERT_TRUE(absl::IsNotFound(got)) << got;
    }
  }
}

// Deadlines hold without a server, and say the last cause.
TEST_F(Restart, DeadlinesHoldWithoutAServer) {
  ASSERT_NO_FATAL_FAILURE(StartServer());
  Options options = PatientOptions();
  options.operation_timeout = milliseconds(500);
  auto connected = Connection::Connect(address_, options);
  ASSERT_TRUE(connected.ok()) << connected.status();
  Connection& connection = **connected;
  ASSERT_TRUE(connection.Put("key", "value").ok());
  server_->process().Signal(SIGKILL);
  ASSERT_TRUE(server_->process().WaitForExit().ok());
  // On the software device the memory of a server that is gone can be READ until the client has
  // heard of it.
  const ConnectionTestPeer peer(connection);
  ASSERT_TRUE(testing::Eventually([&] {
    connection.Poll();
    return !peer.up();
  }));
  std::string value;
  for (int i = 0; i < 2; ++i) {
    const auto start = steady_clock::now();
    const absl::Status got = connection.Get("key", &value);
    const auto taken = steady_clock::now() - start;
    EXPECT_TRUE(absl::IsDeadlineExceeded(got)) << got;
    EXPECT_FALSE(OutcomeUnknown(got));
    EXPECT_GE(taken, milliseconds(400));
    EXPECT_LT(taken, milliseconds(500) + testing::Soon());
    EXPECT_THAT(std::string(got.message()),
                ::testing::AllOf(::testing::HasSubstr(address_), ::testing::HasSubstr("500 ms"),
                                 ::testing::HasSubstr("the connection was lost (")));
  }
  // One that was never sent was surely not made.
  const absl::Status put = connection.Put("key", "other").status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(put)) << put;
  EXPECT_FALSE(OutcomeUnknown(put)) << put;
  EXPECT_TRUE(connection.status().ok()) << "it would go on with a server";
  ASSERT_NO_FATAL_FAILURE(StartServer());
  EXPECT_TRUE(testing::Eventually([&] { return connection.Put("key", "value").ok(); }));
}

// A frozen server: changes miss their deadlines, and the connection goes on with the server. A late
// change is made once at most.
TEST_F(Restart, AFrozenServerIsWaitedFor) {
  ASSERT_NO_FATAL_FAILURE(StartServer());
  Options options = PatientOptions();
  options.operation_timeout = milliseconds(400);
  auto connected = Connection::Connect(address_, options);
  ASSERT_TRUE(connected.ok()) << connected.status();
  Connection& connection = **connected;
  ASSERT_TRUE(testing::Eventually([&] { return connection.Add("count", 1).ok(); }));
  std::string value;
  ASSERT_TRUE(connection.Get("count", &value).ok());
  const int64_t before = std::stoll(value);
  ASSERT_TRUE(server_->process().Freeze().ok());
  int64_t late = 0;
  for (int i = 0; i < 3; ++i) {
    const auto start = steady_clock::now();
    const absl::Status status = connection.Add("count", 1).status();
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
    EXPECT_LT(steady_clock::now() - start, milliseconds(400) + testing::Soon());
    EXPECT_EQ(OutcomeUnknown(status), i == 0) << "the others were never sent: " << status;
    ++late;
  }
  server_->process().Signal(SIGCONT);
  ASSERT_TRUE(testing::Eventually([&] { return connection.Get("count", &value).ok(); }));
  const int64_t after = std::stoll(value);
  EXPECT_GE(after, before);
  EXPECT_LE(after, before + 1);
  const auto sum = connection.Add("count", 1);
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_EQ(sum->number, after + 1);
}

// The child's connection is dead and says so; the parent's goes on, whatever the child does.
TEST_F(Restart, AForkedChildLeavesTheConnectionAlone) {
  ASSERT_NO_FATAL_FAILURE(StartServer());
  auto connected = Connection::Connect(address_, PatientOptions());
  ASSERT_TRUE(connected.ok()) << connected.status();
  ASSERT_TRUE((*connected)->Put("key", "value").ok());
  std::vector<std::byte> memory(64 << 10);
  auto buffer = (*connected)->RegisterBuffer(memory);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  ClientOptions client_options;
  client_options.slots = 1;
  client_options.connection = PatientOptions();
  auto client = Client::Connect(address_, client_options);
  ASSERT_TRUE(client.ok()) << client.status();
  int unfinished = 0;
  for (int i = 0; i < 8; ++i) {
    ++unfinished;
    ASSERT_TRUE((*connected)
                    ->SubmitAdd("count", 1,
                                [&](const absl::Status& status, const ChangeResult&) {
                                  EXPECT_TRUE(status.ok()) << status;
                                  --unfinished;
                                })
                    .ok());
  }
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Connection& connection = **connected;
    std::string value;
    const absl::Status statuses[] = {connection.status(),
                                     connection.Get("key", &value),
                                     connection.Put("key", "child's").status(),
                                     connection.SubmitGet("key", {}),
                                     connection.Ping(),
                                     (*client)->Ping()};
    int code = 0;
    for (const absl::Status& status : statuses) {
      const bool says = status.message().find("forked") != absl::string_view::npos;
      if (!absl::IsFailedPrecondition(status) || !says) code = 1;
    }
    if (connection.Poll() != 0 || connection.PollAndArm() != 0) code = 2;
    // What is in flight is the parent's: nobody waits for it here.
    if (connection.Wait(std::chrono::hours(1)) != 0) code = 3;
    connection.Drain();
    // Nor is the parent's registration given back.
    buffer->Reset();
    (*client)->Close();
    client = absl::UnknownError("destroyed");
    connected = absl::UnknownError("destroyed");
    _exit(code);
  }
  (*connected)->Drain();
  EXPECT_EQ(unfinished, 0);
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 0) << state;
  std::string value;
  ASSERT_TRUE((*connected)->Get("key", &value).ok());
  EXPECT_EQ(value, "value");
  ASSERT_TRUE((*connected)->Get("count", &value).ok());
  EXPECT_EQ(value, "8");
  EXPECT_TRUE((*client)->Ping().ok());
  size_t size = 0;
  ASSERT_TRUE((*connected)->GetInto("key", buffer->bytes(), &size).ok());
  EXPECT_EQ(size, 5u);
  EXPECT_EQ((*connected)->stats().reconnects, 0u);
}

// A call that sleeps at once, and whose time is over while nothing else can wake it.
TEST_F(Recovery, CallsWithoutPollingEndInTimeWithAFrozenServer) {
  absl::StatusOr<std::unique_ptr<ServerProcess>> server = ServerProcess::Start({"--memory=64MiB"});
  ASSERT_TRUE(server.ok()) << server.status();
  Options options = PatientOptions();
  options.poll_time = std::chrono::microseconds(0);
  auto client = Connection::Connect((*server)->address(), options);
  ASSERT_TRUE(client.ok()) << client.status();
  ASSERT_TRUE((*client)->Put("key", "value").ok());
  ASSERT_TRUE((*server)->process().Freeze().ok());
  const auto start = steady_clock::now();
  PutOptions put;
  put.timeout = milliseconds(300);
  EXPECT_TRUE(absl::IsDeadlineExceeded((*client)->Put("key", "other", put).status()));
  bool called = false;
  CallOptions call;
  call.timeout = milliseconds(300);
  ASSERT_TRUE((*client)
                  ->SubmitGet(
                      "key", [&](const absl::Status&, const GetResult&) { called = true; }, call)
                  .ok());
  (*client)->Drain();
  EXPECT_TRUE(called);
  EXPECT_LT(steady_clock::now() - start, milliseconds(600) + testing::Soon());
  (*server)->process().Signal(SIGCONT);
}

}  // namespace
}  // namespace verbena
