// The client's changes that depend on what is there, against a real server process: conditions,
// Add, Append, GetAndDelete; and that none is lost or made twice, whoever else makes them.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/integration/fabric_under_test.h"
#include "tests/integration/process.h"
#include "verbena/connection.h"

namespace verbena {
namespace {

using testing::ServerProcess;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

// One server for all tests of the suite; each test uses keys of its own.
class ClientChangesTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto server = ServerProcess::Start({"--memory=128MiB", "--max_value_size=4MiB"});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  static void TearDownTestSuite() {
    if (server_ == nullptr) return;
    const auto stopped = server_->Stop();
    EXPECT_TRUE(stopped.ok() && stopped->exited && stopped->code == 0);
    server_.reset();
  }
  void SetUp() override {
    ASSERT_NE(server_, nullptr);
    client_ = Connect();
    ASSERT_NE(client_, nullptr);
  }

  static std::unique_ptr<Connection> Connect(uint32_t depth = 64) {
    Options options;
    options.fabric = testing::FabricName();
    options.depth = depth;
    // Sanitizers and busy machines are slow; nothing here is about deadlines.
    options.connect_timeout = std::chrono::seconds(60);
    options.operation_timeout = std::chrono::seconds(60);
    auto connection = Connection::Connect(server_->address(), options);
    EXPECT_TRUE(connection.ok()) << connection.status();
    return connection.ok() ? *std::move(connection) : nullptr;
  }
  std::string MustGet(std::string_view key) {
    std::string value;
    const absl::Status status = client_->Get(key, &value);
    EXPECT_TRUE(status.ok()) << status;
    return value;
  }

  static std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<Connection> client_;
};
std::unique_ptr<ServerProcess> ClientChangesTest::server_;

// With values that travel in the request, and with those that the server READs.
TEST_F(ClientChangesTest, Conditions) {
  for (const size_t size : {size_t{10}, size_t{100'000}}) {
    const std::string key = "conditions" + std::to_string(size);
    const std::string one(size, '1');
    const std::string two(size, '2');
    uint64_t present = 99;
    EXPECT_TRUE(absl::IsNotFound(client_->Replace(key, one).status()));
    EXPECT_TRUE(absl::IsNotFound(client_->CompareAndSwap(key, 5, one, &present).status()));
    EXPECT_EQ(present, 0u);
    const auto created = client_->PutIfAbsent(key, one);
    ASSERT_TRUE(created.ok()) << created.status();
    EXPECT_FALSE(created->existed);
    EXPECT_TRUE(absl::IsAlreadyExists(client_->PutIfAbsent(key, two, &present).status()));
    EXPECT_EQ(present, created->version);
    present = 0;
    const absl::Status other =
        client_->CompareAndSwap(key, created->version + 1, two, &present).status();
    EXPECT_TRUE(absl::IsAborted(other)) << other;
    EXPECT_EQ(present, created->version);
    EXPECT_EQ(MustGet(key), one);
    const auto swapped = client_->CompareAndSwap(key, present, two);
    ASSERT_TRUE(swapped.ok()) << swapped.status();
    EXPECT_TRUE(swapped->existed);
    EXPECT_GT(swapped->version, created->version);
    EXPECT_EQ(MustGet(key), two);
    EXPECT_TRUE(client_->Replace(key, one).ok());
    present = 0;
    EXPECT_TRUE(absl::IsAborted(client_->DeleteIf(key, swapped->version, &present).status()));
    EXPECT_GT(present, swapped->version);
    EXPECT_TRUE(client_->DeleteIf(key, present).ok());
    EXPECT_TRUE(absl::IsNotFound(client_->DeleteIf(key, present).status()));
  }
}

TEST_F(ClientChangesTest, Add) {
  EXPECT_TRUE(absl::IsNotFound(client_->Add("n", 1, Condition::IfPresent()).status()));
  const auto first = client_->Add("n", -7);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->number, -7);
  EXPECT_FALSE(first->existed);
  const auto second = client_->Add("n", 49, Condition::IfVersion(first->version));
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->number, 42);
  EXPECT_EQ(MustGet("n"), "42");
  EXPECT_TRUE(absl::IsAborted(client_->Add("n", 1, Condition::IfVersion(1)).status()));
  EXPECT_TRUE(absl::IsOutOfRange(client_->Add("n", kMost).status()));
  EXPECT_EQ(client_->Add("n", kMost - 42)->number, kMost);
  ASSERT_TRUE(client_->Put("n", "many").ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(client_->Add("n", 1).status()));
  EXPECT_EQ(MustGet("n"), "many");
  EXPECT_TRUE(absl::IsInvalidArgument(client_->Add("", 1).status()));
}

TEST_F(ClientChangesTest, Append) {
  EXPECT_FALSE(client_->Append("log", "one")->existed);
  const auto second = client_->Append("log", ", two", Condition::IfPresent());
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_TRUE(second->existed);
  EXPECT_EQ(MustGet("log"), "one, two");
  // Up to the largest value, piece by piece.
  const std::string piece(client_->limits().eager_limit, 'p');
  std::string expected = "one, two";
  while (expected.size() + piece.size() <= client_->limits().max_value_size) {
    ASSERT_TRUE(client_->Append("log", piece).ok());
    expected += piece;
  }
  const absl::Status full = client_->Append("log", piece).status();
  EXPECT_TRUE(absl::IsInvalidArgument(full)) << full;
  EXPECT_TRUE(MustGet("log") == expected);
  const absl::Status large = client_->Append("log", piece + "p").status();
  EXPECT_TRUE(absl::IsInvalidArgument(large)) << large;
  EXPECT_NE(large.message().find(std::to_string(piece.size())), absl::string_view::npos) << large;
}

TEST_F(ClientChangesTest, ConditionsThatAnOperationDoesNotKnow) {
  const Condition absent = Condition::IfAbsent();
  EXPECT_TRUE(absl::IsInvalidArgument(client_->Add("k", 1, absent).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(client_->Append("k", "v", absent).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(client_->Delete("k", absent).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(client_->Delete("k", Condition::IfPresent()).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(client_->SubmitDelete("k", {}, absent)));
  EXPECT_TRUE(absl::IsInvalidArgument(client_->SubmitAdd("k", 1, {}, absent)));
  EXPECT_TRUE(absl::IsInvalidArgument(client_->SubmitAppend("k", "v", {}, absent)));
  EXPECT_EQ(client_->in_flight(), 0u);
  EXPECT_TRUE(client_->Ping().ok());
}

TEST_F(ClientChangesTest, GetAndDeleteOfAllSizes) {
  std::string value;
  uint64_t version = 0;
  EXPECT_TRUE(absl::IsNotFound(client_->GetAndDelete("taken", &value)));
  for (const size_t size :
       {size_t{0}, size_t{100}, size_t{8192}, size_t{12'000}, size_t{20'000}, size_t{3'000'000}}) {
    const std::string expected(size, 't');
    const auto put = client_->Put("taken", expected);
    ASSERT_TRUE(put.ok());
    const absl::Status status = client_->GetAndDelete("taken", &value, &version);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(value == expected) << size;
    EXPECT_EQ(version, put->version);
    EXPECT_TRUE(absl::IsNotFound(client_->Get("taken", &value)));
  }
  // Where GETs go through the server, too.
  Options options;
  options.fabric = testing::FabricName();
  options.one_sided_reads = false;
  auto other = Connection::Connect(server_->address(), options);
  ASSERT_TRUE(other.ok()) << other.status();
  ASSERT_TRUE(client_->Put("taken", std::string(500'000, 'u')).ok());
  ASSERT_TRUE((*other)->GetAndDelete("taken", &value).ok());
  EXPECT_TRUE(value == std::string(500'000, 'u'));
}

// More in flight than an answer has room for, of all kinds and mixed.
TEST_F(ClientChangesTest, ManyInFlight) {
  constexpr int kCount = 900;
  auto client = Connect(1000);
  ASSERT_NE(client, nullptr);
  // The longest sums.
  ASSERT_TRUE(client->Put("many", "-1000000000000000000").ok());
  const std::string value(700, 'v');
  std::vector<int64_t> sums;
  int others = 0;
  for (int i = 0; i < kCount; ++i) {
    ASSERT_TRUE(client
                    ->SubmitAdd("many", 1,
                                [&](const absl::Status& status, const ChangeResult& result) {
                                  EXPECT_TRUE(status.ok()) << status;
                                  sums.push_back(result.number);
                                })
                    .ok());
    if (i % 10 == 0) {
      ASSERT_TRUE(client
                      ->SubmitPut("mixed" + std::to_string(i), value,
                                  [&](const absl::Status& status, const ChangeResult& result) {
                                    EXPECT_TRUE(status.ok()) << status;
                                    EXPECT_FALSE(result.existed);
                                    ++others;
                                  },
                                  {.condition = Condition::IfAbsent()})
                      .ok());
    }
  }
  client->Drain();
  EXPECT_EQ(others, kCount / 10);
  std::sort(sums.begin(), sums.end());
  for (int i = 0; i < kCount; ++i) {
    ASSERT_EQ(sums[static_cast<size_t>(i)], -1'000'000'000'000'000'000 + 1 + i);
  }
  // All of them taken at once: their values do not fit one answer.
  int taken = 0;
  for (int i = 0; i < kCount; i += 10) {
    ASSERT_TRUE(client
                    ->SubmitGetAndDelete("mixed" + std::to_string(i),
                                         [&](const absl::Status& status, const GetResult& result) {
                                           EXPECT_TRUE(status.ok()) << status;
                                           EXPECT_EQ(result.value, value);
                                           ++taken;
                                         })
                    .ok());
  }
  client->Drain();
  EXPECT_EQ(taken, kCount / 10);
  std::string ignored;
  EXPECT_TRUE(absl::IsNotFound(client->Get("mixed0", &ignored)));
}

TEST_F(ClientChangesTest, CallbacksSayWhatIsThere) {
  const uint64_t version = client_->Put("there", "7")->version;
  int called = 0;
  const auto expect = [&](absl::StatusCode code) {
    return [&called, code, version](const absl::Status& status, const ChangeResult& result) {
      EXPECT_EQ(status.code(), code) << status;
      EXPECT_EQ(result.version, version);
      EXPECT_TRUE(result.existed);
      ++called;
    };
  };
  const Condition other = Condition::IfVersion(version + 1);
  using absl::StatusCode;
  ASSERT_TRUE(client_
                  ->SubmitPut("there", "8", expect(StatusCode::kAlreadyExists),
                              {.condition = Condition::IfAbsent()})
                  .ok());
  ASSERT_TRUE(
      client_->SubmitPut("there", "8", expect(StatusCode::kAborted), {.condition = other}).ok());
  ASSERT_TRUE(client_->SubmitDelete("there", expect(StatusCode::kAborted), other).ok());
  ASSERT_TRUE(client_->SubmitAdd("there", 1, expect(StatusCode::kAborted), other).ok());
  ASSERT_TRUE(client_->SubmitAppend("there", "1", expect(StatusCode::kAborted), other).ok());
  ASSERT_TRUE(client_->SubmitAdd("there", kMost, expect(StatusCode::kOutOfRange)).ok());
  client_->Drain();
  EXPECT_EQ(called, 6);
  EXPECT_EQ(MustGet("there"), "7");
}

// Several connections at once, each with changes in flight.
TEST_F(ClientChangesTest, NoChangeIsLost) {
  constexpr int kClients = 4;
  const int rounds = testing::Scaled(300, 30);
  const std::string filler(20'000, 'f');  // so that purses do not fit an answer
  ASSERT_TRUE(client_->Put("swapped", "0").ok());
  std::vector<std::thread> threads;
  std::vector<int> taken(kClients, 0);
  for (int c = 0; c < kClients; ++c) {
    threads.emplace_back([&, c] {
      auto client = Connect();
      ASSERT_NE(client, nullptr);
      for (int i = 0; i < rounds; ++i) {
        ASSERT_TRUE(client->SubmitAdd("counter", 2, {}).ok());
        ASSERT_TRUE(client->SubmitAdd("counter", -1, {}).ok());
        ASSERT_TRUE(
            client->SubmitAppend("letters", std::string(1, static_cast<char>('a' + c)), {}).ok());
        // A turn of a compare-and-swap, until it is this client's.
        std::string value;
        uint64_t version = 0;
        absl::Status swapped;
        do {
          ASSERT_TRUE(client->Get("swapped", &value, &version).ok());
          value = std::to_string(std::stoi(value) + 1);
          swapped = client->CompareAndSwap("swapped", version, value).status();
          ASSERT_TRUE(swapped.ok() || absl::IsAborted(swapped)) << swapped;
        } while (!swapped.ok());
        // One key that all put if it is absent, and take.
        const auto put = client->PutIfAbsent("purse", filler);
        ASSERT_TRUE(put.ok() || absl::IsAlreadyExists(put.status())) << put.status();
        if (put.ok()) --taken[static_cast<size_t>(c)];
        const absl::Status take = client->GetAndDelete("purse", &value);
        ASSERT_TRUE(take.ok() || absl::IsNotFound(take) || absl::IsAborted(take)) << take;
        if (take.ok()) ++taken[static_cast<size_t>(c)];
      }
      client->Drain();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(MustGet("counter"), std::to_string(kClients * rounds));
  EXPECT_EQ(MustGet("swapped"), std::to_string(kClients * rounds));
  const std::string letters = MustGet("letters");
  EXPECT_EQ(letters.size(), size_t{kClients} * static_cast<size_t>(rounds));
  for (int c = 0; c < kClients; ++c) {
    EXPECT_EQ(std::count(letters.begin(), letters.end(), 'a' + c), rounds);
  }
  // As many takes as puts, but for the last put.
  std::string value;
  const int left = client_->Get("purse", &value).ok() ? 1 : 0;
  int balance = left;
  for (const int t : taken) balance += t;
  EXPECT_EQ(balance, 0);
}

}  // namespace
}  // namespace verbena
