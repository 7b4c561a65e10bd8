// One client for many threads.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tests/integration/fabric_under_test.h"
#include "tests/integration/patient_options.h"
#include "tests/integration/process.h"
#include "verbena/buffer.h"
#include "verbena/client.h"
#include "verbena/connection.h"

namespace verbena {
namespace {

using std::chrono::milliseconds;
using testing::PatientOptions;
using testing::ServerProcess;

class ClientThreadsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = ServerProcess::Start({"--memory=64MiB"});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::unique_ptr<Client> Connect(uint32_t slots) {
    auto client = Client::Connect(server_->address(), {PatientOptions(), slots});
    EXPECT_TRUE(client.ok()) << client.status();
    return client.ok() ? *std::move(client) : nullptr;
  }

  std::unique_ptr<ServerProcess> server_;
};

// With more threads than slots, too.
TEST_F(ClientThreadsTest, ManyThreadsUseIt) {
  for (const uint32_t slots : {1u, 2u, 4u}) {
    auto client = Connect(slots);
    ASSERT_NE(client, nullptr);
    EXPECT_EQ(client->slots(), slots);
    constexpr int kThreads = 4;
    const int rounds = testing::Scaled(200, 5);
    std::atomic<int> failures{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        const std::string prefix = std::to_string(slots) + "-" + std::to_string(t) + "-";
        std::string value;
        for (int i = 0; i < rounds; ++i) {
          const std::string key = prefix + std::to_string(i);
          const bool good = client->Put(key, key).ok() && client->Get(key, &value).ok() &&
                            value == key && client->Add("sum-" + std::to_string(slots), 1).ok();
          if (!good) ++failures;
        }
        const std::string first = prefix + "0";
        const std::vector<std::string_view> keys = {first, "absent"};
        std::vector<GetItem> items;
        if (!client->MultiGet(keys, &items).ok() || items[0].value != first) ++failures;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(failures, 0);
    std::string sum;
    ASSERT_TRUE(client->Get("sum-" + std::to_string(slots), &sum).ok());
    EXPECT_EQ(sum, std::to_string(kThreads * rounds));
    // Whichever connections they used.
    const ConnectionStats stats = client->stats();
    EXPECT_EQ(stats.gets, static_cast<uint64_t>(kThreads * (rounds + 2) + 1));
    EXPECT_EQ(stats.changes, static_cast<uint64_t>(kThreads * rounds * 2));
  }
}

TEST_F(ClientThreadsTest, EveryCall) {
  auto client = Connect(2);
  ASSERT_NE(client, nullptr);
  std::string value;
  uint64_t version = 0;
  ASSERT_TRUE(client->PutIfAbsent("key", "1").ok());
  EXPECT_TRUE(absl::IsAlreadyExists(client->PutIfAbsent("key", "2", &version).status()));
  EXPECT_TRUE(client->CompareAndSwap("key", version, "3").ok());
  EXPECT_TRUE(client->Replace("key", "4").ok());
  EXPECT_TRUE(client->Get("key", &value, &version, {.timeout = milliseconds(60'000)}).ok());
  EXPECT_EQ(value, "4");
  EXPECT_EQ(client->Add("key", 5)->number, 9);
  EXPECT_TRUE(client->Append("key", "0").ok());
  EXPECT_TRUE(client->Expire("key", milliseconds(3'600'000)).ok());
  EXPECT_TRUE(client->Ttl("key")->has_value());
  EXPECT_TRUE(client->Persist("key").ok());
  std::vector<ScanItem> items;
  ASSERT_TRUE(client->Scan({}, 10, &items).ok());
  ASSERT_EQ(items.size(), 1u);
  EXPECT_EQ(items[0].value, "90");
  EXPECT_TRUE(absl::IsAborted(client->DeleteIf("key", version).status()));
  EXPECT_TRUE(client->GetAndDelete("key", &value).ok());
  EXPECT_EQ(value, "90");
  EXPECT_TRUE(absl::IsNotFound(client->Delete("key").status()));
  const std::vector<KeyValue> puts = {{"a", "1"}, {"b", "2"}};
  EXPECT_TRUE(client->MultiPut(puts).ok());
  const std::vector<std::string_view> keys = {"a", "b"};
  EXPECT_TRUE(client->MultiDelete(keys).ok());
  Batch batch;
  const size_t got = batch.Get("a");
  EXPECT_TRUE(client->Execute(batch).ok());
  EXPECT_TRUE(absl::IsNotFound(batch.result(got).status));
  EXPECT_TRUE(client->Ping().ok());
  EXPECT_TRUE(client->Info().ok());
  EXPECT_GT(client->limits().max_key_size, 0u);
}

TEST_F(ClientThreadsTest, CloseWhileOthersUseIt) {
  auto client = Connect(2);
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(client->Put("key", "value").ok());
  // The threads may come too late for one.
  std::string first;
  ASSERT_TRUE(client->Get("key", &first).ok());
  std::vector<std::thread> threads;
  std::atomic<int> others{0};
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      std::string value;
      absl::Status status;
      while (status.ok()) status = client->Get("key", &value);
      if (!absl::IsFailedPrecondition(status)) ++others;
    });
  }
  client->Close();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(others, 0);
  client->Close();
  EXPECT_TRUE(absl::IsFailedPrecondition(client->Put("key", "value").status()));
  EXPECT_EQ(client->limits().max_key_size, 0u);
  EXPECT_GT(client->stats().gets, 0u);  // what was counted stays
}

// While the only slot is taken by a call that waits for a server which does not answer.
TEST_F(ClientThreadsTest, LimitsAreToldWithoutWaiting) {
  auto client = Connect(1);
  ASSERT_NE(client, nullptr);
  const uint32_t most = client->limits().max_key_size;
  EXPECT_GT(most, 0u);
  ASSERT_TRUE(server_->process().Freeze().ok());
  std::atomic<bool> begun{false};
  std::atomic<bool> done{false};
  std::thread other([&] {
    begun = true;
    EXPECT_TRUE(client->Put("key", "value").ok());
    done = true;
  });
  while (!begun) std::this_thread::yield();
  // The first of them may come before the call has its slot.
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(client->limits().max_key_size, most);
  EXPECT_FALSE(done);
  server_->process().Signal(SIGCONT);
  other.join();
  EXPECT_TRUE(done);
}

// Not for the thread's own slot, whose call may take much longer.
TEST_F(ClientThreadsTest, AnySlotThatIsFreeIsTaken) {
  auto client = Connect(2);
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(server_->process().Freeze().ok());
  std::atomic<bool> begun{false};
  std::atomic<bool> done{false};
  std::thread slow([&] {
    begun = true;
    EXPECT_TRUE(client->Put("key", "value").ok());
    done = true;
  });
  while (!begun) std::this_thread::yield();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 3; ++i) {
        const auto late = client->Put("key", "value", {.timeout = milliseconds(50)});
        EXPECT_TRUE(absl::IsDeadlineExceeded(late.status()) || absl::IsUnavailable(late.status()))
            << late.status();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(done);
  server_->process().Signal(SIGCONT);
  slow.join();
}

// What is lent is nobody else's until it is given back, with nothing left of what was done with it.
TEST_F(ClientThreadsTest, AConnectionIsLent) {
  auto client = Connect(1);
  ASSERT_NE(client, nullptr);
  std::vector<std::byte> memory(4096);
  Buffer buffer;
  int called = 0;
  {
    absl::StatusOr<Client::Lease> lease = client->Borrow();
    ASSERT_TRUE(lease.ok()) << lease.status();
    ASSERT_TRUE(static_cast<bool>(*lease));
    ASSERT_TRUE((*lease)->Put("key", "value").ok());
    auto registered = (*lease)->RegisterBuffer(memory);
    ASSERT_TRUE(registered.ok()) << registered.status();
    buffer = *std::move(registered);
    size_t size = 0;
    EXPECT_TRUE((*lease)->GetInto("key", memory, &size).ok());
    EXPECT_EQ(size, 5u);
    ASSERT_TRUE(
        (*lease)
            ->SubmitGet("key", [&](const absl::Status& s, const auto&) { called += s.ok(); })
            .ok());
    EXPECT_EQ(called, 0);
  }
  EXPECT_EQ(called, 1);
  EXPECT_TRUE(client->Ping().ok());

  // A call of another thread waits for it; the lease goes on in a third one.
  absl::StatusOr<Client::Lease> lease = client->Borrow();
  ASSERT_TRUE(lease.ok()) << lease.status();
  size_t size = 7;
  EXPECT_TRUE(absl::IsInvalidArgument((*lease)->GetInto("key", memory, &size)));
  std::atomic<bool> done{false};
  std::thread other([&] {
    EXPECT_TRUE(client->Put("key", "other").ok());
    done = true;
  });
  std::thread third([&, mine = std::move(*lease)]() mutable {
    std::string value;
    EXPECT_TRUE(mine->Get("key", &value).ok());
    EXPECT_EQ(value, "value");
    EXPECT_FALSE(done);
    mine.Return();
    mine.Return();
    EXPECT_FALSE(static_cast<bool>(mine));
  });
  third.join();
  other.join();
  EXPECT_TRUE(done);
}

TEST_F(ClientThreadsTest, ALeaseMayEndInACallbackAndAfterItsClient) {
  auto client = Connect(1);
  ASSERT_NE(client, nullptr);
  absl::StatusOr<Client::Lease> lease = client->Borrow();
  ASSERT_TRUE(lease.ok()) << lease.status();
  Connection& connection = **lease;
  int cancelled = 0;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(connection
                    .SubmitPut("key", "value",
                               [&](const absl::Status& status, const ChangeResult&) {
                                 cancelled += absl::IsCancelled(status);
                                 lease->Return();
                               })
                    .ok());
  }
  EXPECT_GE(connection.Wait(testing::kPatience), 1);
  EXPECT_EQ(cancelled, 1);
  // The slot has another connection then.
  lease = client->Borrow();
  ASSERT_TRUE(lease.ok()) << lease.status();
  EXPECT_TRUE((*lease)->Ping().ok());
  client.reset();
  EXPECT_TRUE((*lease)->Ping().ok());
  lease->Return();

  client = Connect(1);
  ASSERT_NE(client, nullptr);
  client->Close();
  EXPECT_TRUE(absl::IsFailedPrecondition(client->Borrow().status()));
}

// Close waits for what is lent, and ends it then.
TEST_F(ClientThreadsTest, CloseWaitsForLeases) {
  auto client = Connect(2);
  ASSERT_NE(client, nullptr);
  absl::StatusOr<Client::Lease> lease = client->Borrow();
  ASSERT_TRUE(lease.ok()) << lease.status();
  std::atomic<bool> begun{false};
  std::atomic<bool> closed{false};
  std::thread closing([&] {
    begun = true;
    client->Close();
    closed = true;
  });
  while (!begun) std::this_thread::yield();
  EXPECT_TRUE((*lease)->Put("key", "value").ok());
  EXPECT_FALSE(closed);
  lease->Return();
  closing.join();
  EXPECT_TRUE(absl::IsFailedPrecondition(client->Ping()));
}

// Where a call comes to no connection its results say so, and nothing of an earlier one is left.
void ExpectResultsOfRefusedCalls(Client& client, absl::StatusCode code) {
  const std::vector<std::string_view> keys = {"a", "b"};
  const std::vector<KeyValue> puts = {{"a", "1"}, {"b", "2"}};
  std::vector<GetItem> gets(3, GetItem{absl::OkStatus(), "old", 7});
  EXPECT_EQ(client.MultiGet(keys, &gets).code(), code);
  ASSERT_EQ(gets.size(), 2u);
  for (const GetItem& got : gets) {
    EXPECT_EQ(got.status.code(), code);
    EXPECT_EQ(got.version, 0u);
  }
  for (const bool put : {true, false}) {
    std::vector<absl::StatusOr<ChangeResult>> results(1, ChangeResult());
    EXPECT_EQ(
        (put ? client.MultiPut(puts, {}, &results) : client.MultiDelete(keys, {}, &results)).code(),
        code);
    ASSERT_EQ(results.size(), 2u);
    for (const auto& result : results) EXPECT_EQ(result.status().code(), code);
  }
  std::vector<ScanItem> items(3);
  EXPECT_EQ(client.Scan({}, 10, &items).code(), code);
  EXPECT_TRUE(items.empty());
  uint64_t version = 7;
  uint64_t present = 7;
  std::string value;
  EXPECT_EQ(client.Get("a", &value, &version).code(), code);
  EXPECT_EQ(version, 0u);
  version = 7;
  EXPECT_EQ(client.GetAndDelete("a", &value, &version).code(), code);
  EXPECT_EQ(version, 0u);
  EXPECT_EQ(client.PutIfAbsent("a", "1", &present).status().code(), code);
  EXPECT_EQ(present, 0u);
  present = 7;
  EXPECT_EQ(client.DeleteIf("a", 1, &present).status().code(), code);
  EXPECT_EQ(present, 0u);
}

TEST_F(ClientThreadsTest, ResultsOfCallsThatComeToNoConnection) {
  ClientOptions options = {PatientOptions(), 1};
  options.connection.operation_timeout = milliseconds(2000);
  options.connection.connect_timeout = milliseconds(2000);
  options.connection.reconnect = false;
  auto connected = Client::Connect(server_->address(), options);
  ASSERT_TRUE(connected.ok()) << connected.status();
  Client& client = **connected;
  Batch batch;
  const size_t put = batch.Put("a", "1");
  ASSERT_TRUE(client.Execute(batch).ok());
  ASSERT_TRUE(batch.result(put).status.ok());

  server_->process().Signal(SIGKILL);
  ASSERT_TRUE(server_->process().WaitForExit().ok());
  // Until the connection is known to be dead: the next call finds no server to make another with.
  while (!absl::IsUnavailable(client.Ping())) {
  }
  ASSERT_TRUE(absl::IsUnavailable(client.Execute(batch)));
  EXPECT_TRUE(absl::IsUnavailable(batch.result(put).status));
  ExpectResultsOfRefusedCalls(client, absl::StatusCode::kUnavailable);

  client.Close();
  ASSERT_TRUE(absl::IsFailedPrecondition(client.Execute(batch)));
  EXPECT_TRUE(absl::IsFailedPrecondition(batch.result(put).status));
  ExpectResultsOfRefusedCalls(client, absl::StatusCode::kFailedPrecondition);
}

TEST_F(ClientThreadsTest, BadOptions) {
  EXPECT_TRUE(absl::IsInvalidArgument(Client::Connect(server_->address(), {{}, 0}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Client::Connect(server_->address(), {{}, 1025}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Client::Connect("nonsense", {}).status()));
}

TEST_F(ClientThreadsTest, ADeadServerIsAnErrorInEveryThread) {
  ClientOptions options = {PatientOptions(), 2};
  options.connection.operation_timeout = milliseconds(2000);
  options.connection.connect_timeout = milliseconds(2000);
  auto client = Client::Connect(server_->address(), options);
  ASSERT_TRUE(client.ok()) << client.status();
  ASSERT_TRUE((*client)->Put("key", "value").ok());
  server_->process().Signal(SIGKILL);
  ASSERT_TRUE(server_->process().WaitForExit().ok());
  std::vector<std::thread> threads;
  std::atomic<int> others{0};
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      const absl::Status status = (*client)->Put("key", "value").status();
      if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) ++others;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(others, 0);
}

}  // namespace
}  // namespace verbena
