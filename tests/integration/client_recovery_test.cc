// Connections that are lost while operations are in flight: what is made again, and that every
// change is made once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <map>
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
#include "tests/integration/raw_client.h"
#include "verbena/client.h"
#include "verbena/connection.h"

namespace verbena {
namespace {

using client::ConnectionTestPeer;
using testing::PatientOptions;

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
    ibv_qp* const queue_pair = created_.at(*it);
    queue_pairs_.erase(it);
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    return base().ModifyQp(queue_pair, &attributes, IBV_QP_STATE) == 0;
  }
  // The server has another protocol version for everybody who comes from now on; or its own.
  void set_protocol(std::optional<uint16_t> version) {
    const std::lock_guard lock(mutex_);
    protocol_ = version;
  }

  int CmCreateQp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attributes) override {
    const std::lock_guard lock(mutex_);
    const int result = base().CmCreateQp(id, pd, attributes);
    if (result == 0) created_[id] = id->qp;
    return result;
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
    created_.erase(id);
    base().CmDestroyQp(id);
  }

 private:
  std::mutex mutex_;
  std::set<rdma_cm_id*> queue_pairs_;  // accepted, and not broken yet
  // Of all ids: an id does not show its queue pair while it is accepted (verbs::Accept).
  std::map<rdma_cm_id*, ibv_qp*> created_;
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
    return testing::MustConnect(server_->address(), options);
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
  const int rounds = testing::Scaled(20, 4);
  std::string value;
  for (int64_t i = 1; i <= rounds; ++i) {
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
  EXPECT_GE(connection->stats().reconnects, 5u * static_cast<unsigned>(rounds) / 2);
  EXPECT_EQ(connection->server_epoch(), epoch);
  EXPECT_EQ(Info()["operations"]["add"]["ok"], rounds);
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

// While there is no connection there is no device; polling makes another.
TEST_F(Recovery, MemoryIsRegisteredWithTheNextConnection) {
  auto connection = Connect(PatientOptions());
  ASSERT_NE(connection, nullptr);
  ASSERT_TRUE(connection->Put("key", "value").ok());
  ConnectionTestPeer(*connection).Lose();
  std::vector<std::byte> memory(4096);
  absl::StatusOr<Buffer> buffer = absl::UnknownError("not yet");
  bool refused = false;
  ASSERT_TRUE(testing::Eventually([&] {
    connection->Poll();
    buffer = connection->RegisterBuffer(memory);
    if (!refused) {
      refused = absl::IsUnavailable(buffer.status());
      buffer = absl::UnknownError("not yet");
    }
    return buffer.ok();
  }));
  size_t size = 0;
  const absl::Status status = connection->GetInto("key", buffer->bytes(), &size);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(size, 5u);
}

// What the server tells about itself is asked for again with the next connection.
TEST_F(Recovery, AnInfoGoesOn) {
  auto connection = Connect();
  ASSERT_NE(connection, nullptr);
  absl::Status ended = absl::UnknownError("not yet");
  std::string info;
  ASSERT_TRUE(connection
                  ->SubmitInfo([&](const absl::Status& status, std::string text) {
                    ended = status;
                    info = std::move(text);
                  })
                  .ok());
  uint64_t lost = 0;
  while (lost < 3) {
    const uint64_t asked = connection->stats().sends + 1;
    ASSERT_TRUE(testing::Eventually([&] {
      connection->Poll();
      return connection->stats().sends >= asked;
    }));
    // The answer may have come in the same poll, seldom.
    if (connection->in_flight() == 0) break;
    ConnectionTestPeer(*connection).Lose();
    ++lost;
  }
  connection->Drain();
  EXPECT_TRUE(ended.ok()) << ended;
  EXPECT_TRUE(nlohmann::json::accept(info)) << info;
  EXPECT_EQ(connection->stats().reconnects, lost);
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
  for (const int distance : {-1, 1}) {
    const auto version = static_cast<uint16_t>(wire::kProtocolVersion + distance);
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

}  // namespace
}  // namespace verbena
