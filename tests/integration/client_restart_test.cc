// Servers that are killed, restarted or frozen, and forked clients: what goes on, and what is said
// of changes that nobody can know the outcome of.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/src/connection_test_peer.h"
#include "tests/integration/eventually.h"
#include "tests/integration/fabric_under_test.h"
#include "tests/integration/patient_options.h"
#include "tests/integration/process.h"
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
    // Over the software device not even a new one can be made, and that is said.
    if (testing::FabricName() == "soft") {
      const absl::Status anew = Connection::Connect(address_, PatientOptions()).status();
      for (const absl::Status& status : {anew, connection.status(), (*client)->Ping()}) {
        const bool says = status.message().find("software device") != absl::string_view::npos &&
                          status.message().find("exec") != absl::string_view::npos;
        if (!absl::IsFailedPrecondition(status) || !says) code = 4;
      }
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

// What else is in flight, and ready, when a callback forks is the parent's: none of its callbacks
// runs in the child, whose call comes back.
TEST_F(Restart, AForkInACallbackLeavesTheOthersToTheParent) {
  ASSERT_NO_FATAL_FAILURE(StartServer());
  const auto client = testing::MustConnect(address_, PatientOptions());
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(client->Put("key", "value").ok());
  // Each takes a buffer of its own, which the child must not give back.
  ASSERT_TRUE(client->Put("large", std::string(1 << 20, 'l')).ok());
  const pid_t parent = getpid();
  pid_t child = -1;
  int here = 0;
  const auto callback = [&](const absl::Status& status, const GetResult&) {
    EXPECT_TRUE(status.ok()) << status;
    ++here;
    if (child < 0) {
      here = 0;
      child = fork();
    }
  };
  constexpr int kEach = 6;
  for (int i = 0; i < kEach; ++i) {
    for (const char* key : {"key", "large"}) ASSERT_TRUE(client->SubmitGet(key, callback).ok());
  }
  client->Drain();
  if (getpid() != parent) {
    const bool dead = absl::IsFailedPrecondition(client->status());
    _exit(dead ? here : 100);
  }
  ASSERT_GT(child, 0);
  EXPECT_EQ(here, 2 * kEach - 1);
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 0) << state;
  EXPECT_TRUE(client->Ping().ok());
}

// A call that sleeps at once, and whose time is over while nothing else can wake it.
TEST_F(Restart, CallsWithoutPollingEndInTimeWithAFrozenServer) {
  ASSERT_NO_FATAL_FAILURE(StartServer());
  Options options = PatientOptions();
  options.poll_time = std::chrono::microseconds(0);
  const auto client = testing::MustConnect(address_, options);
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(client->Put("key", "value").ok());
  ASSERT_TRUE(server_->process().Freeze().ok());
  const auto start = steady_clock::now();
  PutOptions put;
  put.timeout = milliseconds(300);
  EXPECT_TRUE(absl::IsDeadlineExceeded(client->Put("key", "other", put).status()));
  bool called = false;
  CallOptions call;
  call.timeout = milliseconds(300);
  ASSERT_TRUE(client
                  ->SubmitGet(
                      "key", [&](const absl::Status&, const GetResult&) { called = true; }, call)
                  .ok());
  client->Drain();
  EXPECT_TRUE(called);
  EXPECT_LT(steady_clock::now() - start, milliseconds(600) + testing::Soon());
  server_->process().Signal(SIGCONT);
}

}  // namespace
}  // namespace verbena
