// A connection's operations in coroutines.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/integration/fabric_under_test.h"
#include "tests/integration/patient_options.h"
#include "tests/integration/process.h"
#include "verbena/coroutine.h"

namespace verbena {
namespace {

using std::chrono::milliseconds;
using testing::PatientOptions;
using testing::ServerProcess;

class ClientCoroutinesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = ServerProcess::Start();
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    Connect(PatientOptions());
  }
  void Connect(const Options& options) {
    auto client = Connection::Connect(server_->address(), options);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }

  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<Connection> client_;
};

Task<absl::Status> Copy(AsyncClient client, std::string from, std::string to) {
  absl::StatusOr<Value> got = co_await client.Get(from);
  if (!got.ok()) co_return got.status();
  co_return (co_await client.Put(to, got->bytes)).status();
}

TEST_F(ClientCoroutinesTest, OneAfterTheOther) {
  ASSERT_TRUE(client_->Put("from", "value").ok());
  EXPECT_TRUE(verbena::Run(*client_, Copy(AsyncClient(*client_), "from", "to")).ok());
  std::string value;
  ASSERT_TRUE(client_->Get("to", &value).ok());
  EXPECT_EQ(value, "value");
  EXPECT_TRUE(
      absl::IsNotFound(verbena::Run(*client_, Copy(AsyncClient(*client_), "absent", "to"))));
}

Task<bool> AllKinds(AsyncClient client) {
  bool good = (co_await client.Put("key", "1", Condition::IfAbsent())).ok();
  const auto refused = co_await client.Put("key", "2", Condition::IfAbsent());
  good = good && absl::IsAlreadyExists(refused.status());
  const auto sum = co_await client.Add("key", 41);
  good = good && sum.ok() && sum->number == 42;
  good = good && (co_await client.Append("key", "0")).ok();
  good = good && (co_await client.Expire("key", milliseconds(3'600'000))).ok();
  const auto left = co_await client.Ttl("key");
  good = good && left.ok() && left->has_value();
  good = good && (co_await client.Persist("key")).ok();
  const auto forever = co_await client.Ttl("key");
  good = good && forever.ok() && !forever->has_value();
  const auto items = co_await client.Scan({.prefix = "k"}, 10);
  good = good && items.ok() && items->size() == 1 && items->front().value == "420";
  const auto taken = co_await client.GetAndDelete("key");
  good = good && taken.ok() && taken->bytes == "420" && taken->version != 0;
  const auto gone = co_await client.Delete("key");
  co_return good&& absl::IsNotFound(gone.status());
}

Task<bool> SeveralAtOnce(AsyncClient client) {
  Batch batch;
  batch.Put("a", "1");
  batch.Add("number", 42);
  bool good = (co_await client.Execute(batch)).ok();
  good = good && batch.size() == 2 && batch.result(1).change.number == 42;
  const std::vector<KeyValue> items = {{"b", "2"}, {"c", "3"}};
  std::vector<absl::StatusOr<ChangeResult>> changes;
  good = good && (co_await client.MultiPut(items, {}, &changes)).ok() && changes.size() == 2;
  const std::vector<std::string_view> keys = {"a", "b", "absent"};
  std::vector<GetItem> got;
  good = good && (co_await client.MultiGet(keys, &got)).ok() && got.size() == 3;
  good = good && got[0].value == "1" && got[1].value == "2" && absl::IsNotFound(got[2].status);
  good = good && (co_await client.MultiDelete(keys)).ok();
  good = good && (co_await client.MultiDelete(keys, {}, &changes)).ok() && changes.size() == 3;
  good = good && absl::IsNotFound(changes[0].status());
  good = good && (co_await client.Ping()).ok();
  const absl::StatusOr<std::string> info = co_await client.Info();
  good = good && info.ok() && info->starts_with('{') && info->ends_with('}');
  // Refused: all is left as it was.
  const CallOptions wrong = {.timeout = milliseconds(0)};
  good = good && absl::IsInvalidArgument(co_await client.Execute(batch, wrong));
  good = good && absl::IsInvalidArgument(co_await client.MultiGet(keys, &got, wrong));
  good = good && absl::IsInvalidArgument((co_await client.Info(wrong)).status());
  co_return good&& batch.size() == 2 && got.size() == 3;
}

TEST_F(ClientCoroutinesTest, SeveralOperationsAtOnce) {
  EXPECT_TRUE(verbena::Run(*client_, SeveralAtOnce(AsyncClient(*client_))));
}

Task<bool> IntoBuffer(AsyncClient client, std::span<std::byte> target) {
  size_t size = 0;
  uint64_t version = 0;
  bool good = (co_await client.GetInto("key", target, &size, &version)).ok();
  good = good && size == 5 && version != 0 && std::memcmp(target.data(), "value", 5) == 0;
  good = good && absl::IsOutOfRange(co_await client.GetInto("key", target.first(4), &size));
  co_return good&& size == 5;
}

TEST_F(ClientCoroutinesTest, IntoABuffer) {
  ASSERT_TRUE(client_->Put("key", "value").ok());
  std::vector<std::byte> memory(4096);
  auto buffer = client_->RegisterBuffer(memory);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_TRUE(verbena::Run(*client_, IntoBuffer(AsyncClient(*client_), buffer->bytes())));
}

TEST_F(ClientCoroutinesTest, OperationsOfAllKinds) {
  EXPECT_TRUE(verbena::Run(*client_, AllKinds(AsyncClient(*client_))));
}

Task<> Count(AsyncClient client, int rounds, int* done) {
  for (int i = 0; i < rounds; ++i) {
    const auto sum = co_await client.Add("sum", 1);
    EXPECT_TRUE(sum.ok()) << sum.status();
  }
  ++*done;
}

// Each goes on by itself, all on one thread.
TEST_F(ClientCoroutinesTest, ManyAtOnce) {
  constexpr int kTasks = 20;
  const int rounds = testing::Scaled(50, 3);
  int done = 0;
  for (int i = 0; i < kTasks; ++i) Spawn(Count(AsyncClient(*client_), rounds, &done));
  EXPECT_EQ(client_->in_flight(), static_cast<size_t>(kTasks));
  client_->Drain();
  EXPECT_EQ(done, kTasks);
  std::string sum;
  ASSERT_TRUE(client_->Get("sum", &sum).ok());
  EXPECT_EQ(sum, std::to_string(kTasks * rounds));
}

Task<int> Deep(AsyncClient client, int depth) {
  if (depth == 0) {
    const auto got = co_await client.Get("key");
    co_return got.ok() ? 1 : 0;
  }
  co_return 1 + co_await Deep(client, depth - 1);
}

TEST_F(ClientCoroutinesTest, TasksAwaitTasks) {
  ASSERT_TRUE(client_->Put("key", "value").ok());
  EXPECT_EQ(verbena::Run(*client_, Deep(AsyncClient(*client_), 100)), 101);
}

Task<absl::Status> TooMany(AsyncClient client) {
  const auto got = co_await client.Get("key");
  co_return got.status();
}

TEST_F(ClientCoroutinesTest, TheDepthIsALimit) {
  Options options = PatientOptions();
  options.depth = 1;
  ASSERT_NO_FATAL_FAILURE(Connect(options));
  int done = 0;
  Spawn(Count(AsyncClient(*client_), 1, &done));
  const absl::Status status = verbena::Run(*client_, TooMany(AsyncClient(*client_)));
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  client_->Drain();
  EXPECT_EQ(done, 1);
}

Task<> Forgetful(AsyncClient client, std::shared_ptr<int> state) {
  const auto got = co_await client.Get("key");
  *state = got.ok() ? 1 : 2;
}
Task<> Outer(AsyncClient client, std::shared_ptr<int> state) {
  co_await Forgetful(client, std::move(state));
}

// An operation whose coroutine is gone ends by itself.
TEST_F(ClientCoroutinesTest, ATaskThatIsNotBegunDoesNothing) {
  const auto state = std::make_shared<int>(0);
  { Task<> task = Outer(AsyncClient(*client_), state); }
  EXPECT_EQ(client_->in_flight(), 0u);
  EXPECT_EQ(state.use_count(), 1);
}

// All that wait are told when the connection is closed.
TEST_F(ClientCoroutinesTest, CloseEndsThem) {
  const auto state = std::make_shared<int>(0);
  Spawn(Outer(AsyncClient(*client_), state));
  EXPECT_EQ(client_->in_flight(), 1u);
  client_->Close();
  EXPECT_EQ(*state, 2);
  EXPECT_EQ(state.use_count(), 1);
}

// Destroyed by hand while the operation is under way: its callback finds nobody.
struct Destroyer {
  struct promise_type {
    Destroyer get_return_object() {
      return {std::coroutine_handle<promise_type>::from_promise(*this)};
    }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_always final_suspend() const noexcept { return {}; }
    void unhandled_exception() const noexcept { std::terminate(); }
    void return_void() const noexcept {}
  };
  std::coroutine_handle<promise_type> handle;
};
Destroyer Waits(AsyncClient client, int* reached) {
  const auto got = co_await client.Get("key");
  *reached = got.ok() ? 1 : 2;
}

TEST_F(ClientCoroutinesTest, ACoroutineMayGoBeforeItsOperation) {
  ASSERT_TRUE(client_->Put("key", "value").ok());
  int reached = 0;
  const Destroyer gone = Waits(AsyncClient(*client_), &reached);
  EXPECT_EQ(client_->in_flight(), 1u);
  gone.handle.destroy();
  client_->Drain();
  EXPECT_EQ(reached, 0);
  // And one that stays.
  const Destroyer stays = Waits(AsyncClient(*client_), &reached);
  client_->Drain();
  EXPECT_EQ(reached, 1);
  EXPECT_TRUE(stays.handle.done());
  stays.handle.destroy();
}

// The places for results are the coroutine's, and gone when the operations end.
Destroyer WaitsForSeveral(AsyncClient client, int* reached) {
  Batch batch;
  batch.Get("key");
  (co_await client.Execute(batch)).IgnoreError();
  *reached = static_cast<int>(batch.size());
}
Destroyer WaitsForBuffer(AsyncClient client, std::span<std::byte> target, int* reached) {
  size_t size = 0;
  (co_await client.GetInto("key", target, &size)).IgnoreError();
  *reached = static_cast<int>(size);
}

TEST_F(ClientCoroutinesTest, ACoroutineMayGoBeforeItsResults) {
  ASSERT_TRUE(client_->Put("key", "value").ok());
  std::vector<std::byte> memory(4096);
  auto buffer = client_->RegisterBuffer(memory);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  int reached = 0;
  WaitsForSeveral(AsyncClient(*client_), &reached).handle.destroy();
  WaitsForBuffer(AsyncClient(*client_), buffer->bytes(), &reached).handle.destroy();
  EXPECT_EQ(client_->in_flight(), 2u);
  client_->Drain();
  EXPECT_EQ(reached, 0);
}

}  // namespace
}  // namespace verbena
