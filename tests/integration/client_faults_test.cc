// The client library when the server dies, freezes or runs out of memory, where each connection
// that is lost stays lost (client_recovery_test has the others).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/integration/eventually.h"
#include "tests/integration/fabric_under_test.h"
#include "tests/integration/process.h"
#include "verbena/connection.h"

namespace verbena {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ServerProcess;

Options TestOptions() {
  Options options;
  options.fabric = testing::FabricName();
  options.connect_timeout = seconds(60);
  options.operation_timeout = seconds(60);
  options.reconnect = false;
  return options;
}

struct Pair {
  std::unique_ptr<ServerProcess> server;
  std::unique_ptr<Connection> client;
};

Pair Start(const Options& options, std::vector<std::string> flags = {}) {
  Pair pair;
  auto server = ServerProcess::Start(std::move(flags));
  EXPECT_TRUE(server.ok()) << server.status();
  if (!server.ok()) return pair;
  pair.server = *std::move(server);
  auto client = Connection::Connect(pair.server->address(), options);
  EXPECT_TRUE(client.ok()) << client.status();
  if (client.ok()) pair.client = *std::move(client);
  return pair;
}

TEST(ClientFaultsTest, ServerKilledUnderReadsOnly) {
  const Pair pair = Start(TestOptions());
  ASSERT_NE(pair.client, nullptr);
  Connection& client = *pair.client;
  ASSERT_TRUE(client.Put("key", "value").ok());
  std::string value;
  for (int i = 0; i < 1000; ++i) {
    const absl::Status got = client.Get("key", &value);
    ASSERT_TRUE(got.ok()) << got;
  }
  pair.server->process().Signal(SIGKILL);
  const auto killed = steady_clock::now();
  absl::Status status;
  while (status.ok() && steady_clock::now() - killed < testing::Soon())
    status = client.Get("key", &value);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_TRUE(absl::IsUnavailable(client.status()));
  EXPECT_THAT(std::string(client.status().message()),
              AllOf(HasSubstr("the server at"), Not(HasSubstr("flushed"))));
  // Dead it stays, and says so at once.
  EXPECT_TRUE(absl::IsUnavailable(client.Get("key", &value)));
  EXPECT_TRUE(absl::IsUnavailable(client.Put("key", "v").status()));
  EXPECT_TRUE(absl::IsUnavailable(client.Ping()));
  EXPECT_TRUE(absl::IsUnavailable(client.SubmitGet("key", {})));
  EXPECT_EQ(client.Poll(), 0);
  EXPECT_EQ(client.Wait(seconds(1)), 0);
}

TEST(ClientFaultsTest, ServerKilledWithOperationsInFlight) {
  const Pair pair = Start(TestOptions());
  ASSERT_NE(pair.client, nullptr);
  Connection& client = *pair.client;
  const std::string large(1 << 20, 'l');
  int submitted = 0;
  int finished = 0;
  int failed = 0;
  const auto count = [&](const absl::Status& status) {
    ++finished;
    if (status.ok() || absl::IsNotFound(status)) return;
    ++failed;
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  };
  const auto fill = [&] {
    while (client.in_flight() < 32) {
      const std::string key = "key-" + std::to_string(submitted % 50);
      absl::Status status;
      if (submitted % 3 == 0) {
        status = client.SubmitGet(
            key, [&](const absl::Status& result, const GetResult&) { count(result); });
      } else {
        status = client.SubmitPut(
            key, submitted % 30 == 1 ? std::string_view(large) : "value",
            [&](const absl::Status& result, const ChangeResult&) { count(result); });
      }
      if (!status.ok()) return;
      ++submitted;
    }
  };
  for (int i = 0; i < 100; ++i) {
    fill();
    client.Wait(seconds(10));
  }
  ASSERT_EQ(failed, 0);
  pair.server->process().Signal(SIGKILL);
  const auto killed = steady_clock::now();
  while (client.status().ok() && steady_clock::now() - killed < testing::Soon()) {
    fill();
    client.Wait(milliseconds(100));
  }
  EXPECT_TRUE(absl::IsUnavailable(client.status())) << client.status();
  EXPECT_THAT(std::string(client.status().message()),
              AllOf(HasSubstr("the server at"), Not(HasSubstr("flushed"))));
  client.Drain();
  EXPECT_EQ(client.in_flight(), 0u);
  EXPECT_EQ(finished, submitted);
  EXPECT_GT(failed, 0);
}

// A sleeping wait is woken by the server's death, long before the operation's deadline.
TEST(ClientFaultsTest, ServerKilledUnderAWait) {
  Options options = TestOptions();
  options.poll_time = std::chrono::microseconds(0);
  const Pair pair = Start(options);
  ASSERT_NE(pair.client, nullptr);
  ASSERT_TRUE(pair.client->Ping().ok());
  ASSERT_TRUE(pair.server->process().Freeze().ok());
  absl::Status outcome;
  ASSERT_TRUE(
      pair.client
          ->SubmitPut("key", "value",
                      [&](const absl::Status& status, const ChangeResult&) { outcome = status; })
          .ok());
  pair.client->Poll();
  pair.server->process().Signal(SIGKILL);
  const auto killed = steady_clock::now();
  EXPECT_EQ(pair.client->Wait(seconds(60)), 1);
  EXPECT_LT(steady_clock::now() - killed, testing::Soon());
  EXPECT_TRUE(absl::IsUnavailable(outcome)) << outcome;
}

// While an answer is awaited nothing is under way that could fail if the server had gone, so its
// epoch is READ. A frozen server's can be: the connection stays, and the change is made in the end.
TEST(ClientFaultsTest, ASilentServerIsLookedFor) {
  const Pair pair = Start(TestOptions());
  ASSERT_NE(pair.client, nullptr);
  Connection& client = *pair.client;
  ASSERT_TRUE(client.Put("key", "value").ok());
  ASSERT_TRUE(pair.server->process().Freeze().ok());
  absl::Status outcome = absl::UnknownError("not called");
  ASSERT_TRUE(
      client
          .SubmitPut("key", "other",
                     [&](const absl::Status& status, const ChangeResult&) { outcome = status; })
          .ok());
  const uint64_t reads = client.stats().reads;
  EXPECT_TRUE(testing::Eventually([&] {
    client.Poll();
    return client.stats().reads >= reads + 1;
  }));
  EXPECT_EQ(client.in_flight(), 1U);
  pair.server->process().Signal(SIGCONT);
  client.Drain();
  EXPECT_TRUE(outcome.ok()) << outcome;
  EXPECT_TRUE(client.status().ok()) << client.status();
}

TEST(ClientFaultsTest, FrozenServerMissesTheDeadlineOfChanges) {
  Options options = TestOptions();
  options.operation_timeout = milliseconds(300);
  const Pair pair = Start(options);
  ASSERT_NE(pair.client, nullptr);
  Connection& client = *pair.client;
  ASSERT_TRUE(client.Put("key", "value").ok());
  ASSERT_TRUE(pair.server->process().Freeze().ok());
  // READs need no CPU of the server.
  std::string value;
  EXPECT_TRUE(client.Get("key", &value).ok());
  EXPECT_EQ(value, "value");
  const auto start = steady_clock::now();
  const absl::Status status = client.Put("key", "other").status();
  const auto taken = steady_clock::now() - start;
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_GE(taken, milliseconds(300));
  EXPECT_LT(taken, milliseconds(300) + testing::Soon());
  EXPECT_FALSE(client.status().ok());
  pair.server->process().Signal(SIGCONT);
}

// One operation is late; those that are not learn why they end.
TEST(ClientFaultsTest, TheOthersLearnWhyTheConnectionWasGivenUp) {
  Options options = TestOptions();
  options.operation_timeout = milliseconds(1000);
  const Pair pair = Start(options);
  ASSERT_NE(pair.client, nullptr);
  Connection& client = *pair.client;
  ASSERT_TRUE(client.Ping().ok());
  ASSERT_TRUE(pair.server->process().Freeze().ok());
  absl::Status first;
  absl::Status second;
  ASSERT_TRUE(
      client.SubmitPut("a", "1", [&](const absl::Status& s, const ChangeResult&) { first = s; })
          .ok());
  EXPECT_EQ(client.Wait(milliseconds(500)), 0);
  ASSERT_TRUE(
      client.SubmitPut("b", "2", [&](const absl::Status& s, const ChangeResult&) { second = s; })
          .ok());
  client.Drain();
  EXPECT_TRUE(absl::IsDeadlineExceeded(first)) << first;
  // On a machine so slow that the second one is late as well, both are.
  EXPECT_TRUE(absl::IsUnavailable(second) || absl::IsDeadlineExceeded(second)) << second;
  pair.server->process().Signal(SIGCONT);
}

TEST(ClientFaultsTest, ConnectingToAFrozenServerEndsWithTheTimeout) {
  auto server = ServerProcess::Start();
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_TRUE((*server)->process().Freeze().ok());
  Options options = TestOptions();
  options.connect_timeout = milliseconds(500);
  const auto start = steady_clock::now();
  const absl::Status status = Connection::Connect((*server)->address(), options).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status) || absl::IsUnavailable(status)) << status;
  EXPECT_LT(steady_clock::now() - start, milliseconds(500) + testing::Soon());
  (*server)->process().Signal(SIGCONT);
}

TEST(ClientFaultsTest, ServerStoppedInOrder) {
  const Pair pair = Start(TestOptions());
  ASSERT_NE(pair.client, nullptr);
  ASSERT_TRUE(pair.client->Put("key", "value").ok());
  const auto stopped = pair.server->Stop();
  ASSERT_TRUE(stopped.ok()) << stopped.status();
  EXPECT_TRUE(stopped->exited && stopped->code == 0);
  const absl::Status status = pair.client->Put("key", "other").status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

TEST(ClientFaultsTest, OutOfMemoryIsAnErrorAndNothingIsLost) {
  const Pair pair = Start(TestOptions(), {"--memory=8MiB"});
  ASSERT_NE(pair.client, nullptr);
  Connection& client = *pair.client;
  const std::string value(1000, 'v');
  int stored = 0;
  absl::Status status;
  while (stored < 100000) {
    status = client.Put("key-" + std::to_string(stored), value).status();
    if (!status.ok()) break;
    ++stored;
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_FALSE(status.message().empty());
  EXPECT_GT(stored, 1000);
  // Also where one answer has no room for so many texts.
  int refused = 0;
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(client
                    .SubmitPut("one more " + std::to_string(i), value,
                               [&](const absl::Status& put, const ChangeResult&) {
                                 EXPECT_TRUE(absl::IsResourceExhausted(put)) << put;
                                 EXPECT_FALSE(put.message().empty());
                                 ++refused;
                               })
                    .ok());
  }
  client.Drain();
  EXPECT_EQ(refused, 60);
  std::string got;
  for (int i = 0; i < stored; ++i) {
    const absl::Status outcome = client.Get("key-" + std::to_string(i), &got);
    ASSERT_TRUE(outcome.ok()) << i << ": " << outcome;
    ASSERT_EQ(got, value);
  }
  // A large value that does not fit either is refused, and the connection goes on. Under a
  // condition that does not hold that is the answer, which memory has no part in.
  const std::string large(4 << 20, 'l');
  EXPECT_TRUE(absl::IsResourceExhausted(client.Put("large", large).status()));
  uint64_t present = 0;
  const absl::Status swapped = client.CompareAndSwap("key-1", ~0ULL, large, &present).status();
  EXPECT_TRUE(absl::IsAborted(swapped)) << swapped;
  EXPECT_NE(present, 0U);
  // Nor does it in place of another: the old value stays, with its version and its time. What
  // needs no memory goes on.
  EXPECT_FALSE(client.Expire("key-1", std::chrono::hours(1))->existed);
  EXPECT_TRUE(absl::IsResourceExhausted(client.Put("key-1", large).status()));
  uint64_t version = 0;
  ASSERT_TRUE(client.Get("key-1", &got, &version).ok());
  EXPECT_EQ(got, value);
  EXPECT_EQ(version, present);
  const auto persisted = client.Persist("key-1");
  ASSERT_TRUE(persisted.ok()) << persisted.status();
  EXPECT_TRUE(persisted->existed);
  EXPECT_EQ(persisted->version, present);
  ASSERT_TRUE(client.GetAndDelete("key-1", &got, &version).ok());
  EXPECT_EQ(got, value);
  EXPECT_EQ(version, present);
  EXPECT_TRUE(absl::IsNotFound(client.Get("key-1", &got)));
  EXPECT_TRUE(client.Put("key-1", value).ok());
  EXPECT_TRUE(client.Delete("key-0").ok());
  EXPECT_TRUE(client.Put("key-0", value).ok());
}

}  // namespace
}  // namespace verbena
