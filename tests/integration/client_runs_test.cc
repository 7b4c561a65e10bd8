// Several operations at once, asynchronously, and how long calls about several take.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/integration/fabric_under_test.h"
#include "tests/integration/patient_options.h"
#include "tests/integration/process.h"
#include "verbena/batch.h"
#include "verbena/connection.h"

namespace verbena {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::PatientOptions;
using testing::ServerProcess;

// A value that is borrowed until it has been put must not go with the call.
template <typename Value>
concept CanBePut = requires(Connection& to, Value&& value) {
  to.SubmitPut("key", std::forward<Value>(value), ChangeCallback());
};
static_assert(CanBePut<std::string&> && CanBePut<const std::string&>);
static_assert(CanBePut<std::string_view> && CanBePut<const char (&)[6]> && CanBePut<const char*>);
static_assert(!CanBePut<std::string> && !CanBePut<const std::string>);

class ClientRunsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = ServerProcess::Start({"--memory=64MiB", "--max_value_size=1MiB"});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    Connect(PatientOptions());
    ASSERT_NE(client_, nullptr);
  }
  void Connect(const Options& options) {
    client_ = testing::MustConnect(server_->address(), options);
  }
  // "key-0" and so on.
  static std::vector<std::string> Keys(int count) {
    std::vector<std::string> keys;
    for (int i = 0; i < count; ++i) keys.push_back("key-" + std::to_string(i));
    return keys;
  }
  static std::vector<std::string_view> Views(const std::vector<std::string>& keys) {
    return {keys.begin(), keys.end()};
  }
  // Each with itself as its value.
  static std::vector<KeyValue> Items(const std::vector<std::string>& keys) {
    std::vector<KeyValue> items;
    for (const std::string& key : keys) items.push_back({key, key});
    return items;
  }

  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<Connection> client_;
};

TEST_F(ClientRunsTest, OperationsOfAllKinds) {
  ASSERT_TRUE(client_->Put("number", "40").ok());
  ASSERT_TRUE(client_->Put("taken", "t").ok());
  const std::string large(300'000, 'l');
  Batch batch;
  const size_t got = batch.Get("number");
  const size_t absent = batch.Get("absent");
  const size_t empty = batch.Get("");
  const size_t put = batch.Put("large", large, {.ttl = milliseconds(3'600'000)});
  const size_t refused = batch.Put("number", "1", Condition::IfAbsent());
  const size_t appended = batch.Append("list", "x");
  const size_t taken = batch.GetAndDelete("taken");
  int called = 0;
  ASSERT_TRUE(client_
                  ->SubmitExecute(std::move(batch),
                                  [&](const absl::Status& status, Batch ended) {
                                    ++called;
                                    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
                                    batch = std::move(ended);
                                  })
                  .ok());
  EXPECT_EQ(client_->in_flight(), 6u);
  EXPECT_EQ(client_->Wait(testing::kPatience), 1);
  EXPECT_EQ(called, 1);
  EXPECT_EQ(client_->in_flight(), 0u);
  ASSERT_EQ(batch.size(), 7u);
  EXPECT_EQ(batch.result(got).value, "40");
  EXPECT_NE(batch.result(got).change.version, 0u);
  EXPECT_TRUE(absl::IsNotFound(batch.result(absent).status));
  EXPECT_TRUE(absl::IsInvalidArgument(batch.result(empty).status));
  EXPECT_TRUE(batch.result(put).status.ok()) << batch.result(put).status;
  EXPECT_TRUE(absl::IsAlreadyExists(batch.result(refused).status));
  EXPECT_TRUE(batch.result(appended).status.ok());
  EXPECT_EQ(batch.result(taken).value, "t");
  const auto ttl = client_->Ttl("large");
  EXPECT_TRUE(ttl.ok() && ttl->has_value());
}

// All are begun in turn, in as many places as there are, and the callback comes once.
TEST_F(ClientRunsTest, MoreThanTheDepth) {
  Options options = PatientOptions();
  options.depth = 3;
  Connect(options);
  ASSERT_NE(client_, nullptr);
  const std::vector<std::string> keys = Keys(testing::Scaled(300, 20));
  size_t done = 0;
  const auto all = [&](const absl::Status& status, const auto& results) {
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(results.size(), keys.size());
    for (const auto& result : results) EXPECT_TRUE(result.ok()) << result.status();
    ++done;
  };
  ASSERT_TRUE(client_->SubmitMultiPut(Items(keys), all).ok());
  EXPECT_EQ(client_->in_flight(), 3u);
  EXPECT_TRUE(absl::IsResourceExhausted(client_->SubmitMultiDelete(Views(keys), all)));
  EXPECT_EQ(client_->Wait(testing::kPatience), 1);
  EXPECT_EQ(done, 1u);

  // Two, each of which gets on.
  std::vector<std::string> found;
  const auto gets = [&](const absl::Status& status, const std::vector<GetItem>& items) {
    EXPECT_TRUE(status.ok()) << status;
    for (const GetItem& item : items) {
      EXPECT_TRUE(item.status.ok()) << item.status;
      EXPECT_NE(item.version, 0u);
      found.push_back(item.value);
    }
  };
  ASSERT_TRUE(client_->SubmitMultiGet(std::vector<std::string_view>(1, keys.back()), gets).ok());
  ASSERT_TRUE(client_->SubmitMultiGet(Views(keys), gets).ok());
  client_->Drain();
  ASSERT_EQ(found.size(), 1 + keys.size());
  EXPECT_EQ(found.front(), keys.back());
  for (size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(found[i + 1], keys[i]);

  ASSERT_TRUE(client_->SubmitMultiDelete(Views(keys), all).ok());
  client_->Drain();
  EXPECT_EQ(done, 2u);
  std::string value;
  EXPECT_TRUE(absl::IsNotFound(client_->Get(keys.front(), &value)));
}

TEST_F(ClientRunsTest, NothingToBeginCallsBackLaterToo) {
  std::vector<absl::Status> ended;
  const auto callback = [&](const absl::Status& status, const Batch&) { ended.push_back(status); };
  ASSERT_TRUE(client_->SubmitExecute(Batch(), callback).ok());
  EXPECT_TRUE(ended.empty());
  EXPECT_EQ(client_->in_flight(), 1u);
  client_->Drain();
  Batch wrong;
  wrong.Get("");
  wrong.Put("key", "value", {.timeout = milliseconds(0)});
  ASSERT_TRUE(client_->SubmitExecute(std::move(wrong), callback).ok());
  EXPECT_EQ(ended.size(), 1u);
  client_->Drain();
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_TRUE(ended[0].ok()) << ended[0];
  EXPECT_TRUE(absl::IsInvalidArgument(ended[1])) << ended[1];

  int pings = 0;
  ASSERT_TRUE(client_->SubmitPing([&](const absl::Status& status) { pings += status.ok(); }).ok());
  client_->Drain();
  EXPECT_EQ(pings, 1);
  std::string info;
  ASSERT_TRUE(client_
                  ->SubmitInfo([&](const absl::Status& status, std::string text) {
                    EXPECT_TRUE(status.ok()) << status;
                    info = std::move(text);
                  })
                  .ok());
  EXPECT_EQ(client_->in_flight(), 1u);
  client_->Drain();
  EXPECT_TRUE(nlohmann::json::accept(info)) << info;
  // Callbacks may be empty.
  EXPECT_TRUE(client_->SubmitPing({}).ok());
  EXPECT_TRUE(client_->SubmitInfo({}).ok());
  EXPECT_TRUE(client_->SubmitExecute(Batch(), {}).ok());
  EXPECT_TRUE(client_->SubmitMultiGet({}, {}).ok());
  EXPECT_TRUE(client_->SubmitMultiPut({}, {}).ok());
  client_->Drain();
}

TEST_F(ClientRunsTest, WhatIsRefusedIsLeftAsItWas) {
  Batch batch;
  batch.Put("key", "value");
  const auto never = [](const absl::Status&, const Batch&) { ADD_FAILURE() << "called"; };
  EXPECT_TRUE(absl::IsInvalidArgument(
      client_->SubmitExecute(std::move(batch), never, {.timeout = milliseconds(0)})));
  EXPECT_EQ(batch.size(), 1u);  // NOLINT(bugprone-use-after-move): it was not moved
  EXPECT_TRUE(absl::IsInvalidArgument(client_->SubmitMultiPut({}, {}, {.ttl = milliseconds(0)})));
  client_->Close();
  EXPECT_TRUE(absl::IsFailedPrecondition(client_->SubmitExecute(std::move(batch), never)));
  EXPECT_EQ(batch.size(), 1u);  // NOLINT(bugprone-use-after-move): the same
  EXPECT_TRUE(absl::IsFailedPrecondition(client_->SubmitPing({})));
  EXPECT_TRUE(absl::IsFailedPrecondition(client_->SubmitInfo({})));
}

// With operations in flight and others not yet begun.
TEST_F(ClientRunsTest, CloseCancelsTheWhole) {
  Options options = PatientOptions();
  options.depth = 4;
  for (const bool destroy : {false, true}) {
    Connect(options);
    ASSERT_NE(client_, nullptr);
    int called = 0;
    const std::vector<std::string> keys = Keys(20);
    ASSERT_TRUE(
        client_
            ->SubmitMultiGet(Views(keys),
                             [&](const absl::Status& status, const std::vector<GetItem>& items) {
                               ++called;
                               EXPECT_TRUE(absl::IsCancelled(status)) << status;
                               EXPECT_EQ(items.size(), keys.size());
                               for (const GetItem& item : items) {
                                 EXPECT_TRUE(absl::IsCancelled(item.status)) << item.status;
                               }
                             })
            .ok());
    if (destroy) {
      client_.reset();
    } else {
      client_->Close();
    }
    EXPECT_EQ(called, 1);
  }
}

TEST_F(ClientRunsTest, CallbacksMaySubmitMoreAndDestroyTheConnection) {
  Options options = PatientOptions();
  options.depth = 1;
  Connect(options);
  ASSERT_NE(client_, nullptr);
  int called = 0;
  ASSERT_TRUE(client_
                  ->SubmitMultiPut(Items(Keys(3)),
                                   [&](const absl::Status& status, const auto&) {
                                     EXPECT_TRUE(status.ok()) << status;
                                     ++called;
                                     EXPECT_TRUE(absl::IsFailedPrecondition(client_->Ping()));
                                     EXPECT_TRUE(client_
                                                     ->SubmitExecute(
                                                         Batch(),
                                                         [&](const absl::Status&, const Batch&) {
                                                           ++called;
                                                           client_.reset();
                                                         })
                                                     .ok());
                                   })
                  .ok());
  Connection* const raw = client_.get();
  while (client_ != nullptr && raw->Wait(testing::kPatience) > 0) {
  }
  EXPECT_EQ(called, 2);
  EXPECT_EQ(client_, nullptr);
}

// A call's time is the whole call's, however many operations it has: those that wait for room are
// not begun any more.
TEST_F(ClientRunsTest, ATimeOutBoundsTheCall) {
  constexpr milliseconds kTime(300);
  const std::vector<std::string> keys = Keys(200);
  for (const bool of_call : {true, false}) {
    Options options = PatientOptions();
    options.depth = 16;
    if (!of_call) options.operation_timeout = kTime;
    Connect(options);
    ASSERT_NE(client_, nullptr);
    const CallOptions call = of_call ? CallOptions{.timeout = kTime} : CallOptions{};
    ASSERT_TRUE(client_->Ping(call).ok());
    ASSERT_TRUE(server_->process().Freeze().ok());
    std::vector<absl::StatusOr<ChangeResult>> results;
    const auto start = steady_clock::now();
    const absl::Status status = client_->MultiPut(Items(keys), {.timeout = call.timeout}, &results);
    const auto taken = steady_clock::now() - start;
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
    EXPECT_GE(taken, kTime);
    EXPECT_LT(taken, kTime + testing::Soon());
    ASSERT_EQ(results.size(), keys.size());
    size_t unknown = 0;
    for (const auto& result : results) {
      EXPECT_TRUE(absl::IsDeadlineExceeded(result.status())) << result.status();
      if (OutcomeUnknown(result.status())) ++unknown;
    }
    EXPECT_GT(unknown, 0u);
    EXPECT_LE(unknown, 16u);  // the others were not begun
    EXPECT_FALSE(OutcomeUnknown(results.back().status()));
    server_->process().Signal(SIGCONT);
    EXPECT_TRUE(client_->Ping({.timeout = milliseconds(60'000)}).ok());
  }
}

TEST_F(ClientRunsTest, ATimeOutBoundsAsynchronousCallsAndPings) {
  constexpr milliseconds kTime(300);
  Options options = PatientOptions();
  options.depth = 4;
  Connect(options);
  ASSERT_NE(client_, nullptr);
  ASSERT_TRUE(server_->process().Freeze().ok());
  int late = 0;
  const auto start = steady_clock::now();
  ASSERT_TRUE(client_
                  ->SubmitMultiPut(Items(Keys(50)),
                                   [&](const absl::Status& status, const auto& results) {
                                     EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
                                     for (const auto& result : results) {
                                       late += absl::IsDeadlineExceeded(result.status());
                                     }
                                   },
                                   {.timeout = kTime})
                  .ok());
  client_->Drain();
  EXPECT_LT(steady_clock::now() - start, kTime + testing::Soon());
  EXPECT_EQ(late, 50);
  EXPECT_TRUE(absl::IsDeadlineExceeded(client_->Ping({.timeout = kTime})));
  EXPECT_TRUE(absl::IsDeadlineExceeded(client_->Info({.timeout = kTime}).status()));
  absl::Status submitted;
  ASSERT_TRUE(client_
                  ->SubmitInfo(
                      [&](const absl::Status& status, const std::string& text) {
                        submitted = status;
                        EXPECT_EQ(text, "");
                      },
                      {.timeout = kTime})
                  .ok());
  client_->Drain();
  EXPECT_TRUE(absl::IsDeadlineExceeded(submitted)) << submitted;
  EXPECT_LT(steady_clock::now() - start, 4 * kTime + 4 * testing::Soon());
  EXPECT_TRUE(absl::IsInvalidArgument(client_->Ping({.timeout = milliseconds(0)})));
  EXPECT_TRUE(absl::IsInvalidArgument(client_->Info({.timeout = milliseconds(-1)}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(client_->SubmitInfo({}, {.timeout = milliseconds(0)})));
  server_->process().Signal(SIGCONT);
}

TEST_F(ClientRunsTest, GetsTellTheSize) {
  const std::string large(300'000, 'l');
  ASSERT_TRUE(client_->Put("small", "12345").ok());
  ASSERT_TRUE(client_->Put("large", large).ok());
  std::vector<uint64_t> sizes;
  const auto tell = [&](const absl::Status&, const GetResult& got) { sizes.push_back(got.size); };
  for (int round = 0; round < 2; ++round) {
    for (const char* key : {"small", "large", "absent"}) {
      ASSERT_TRUE(client_->SubmitGet(key, tell).ok());
      client_->Drain();
    }
  }
  // Together, which is another way through the connection.
  ASSERT_TRUE(client_->SubmitGet("small", tell).ok());
  ASSERT_TRUE(client_->SubmitGet("small", tell).ok());
  ASSERT_TRUE(client_->SubmitGetAndDelete("large", tell).ok());
  client_->Drain();
  std::sort(sizes.begin() + 6, sizes.end());
  EXPECT_EQ(sizes, (std::vector<uint64_t>{5, 300'000, 0, 5, 300'000, 0, 5, 5, 300'000}));
}

// Also where the GET was not begun.
TEST_F(ClientRunsTest, TheVersionIsZeroAfterEveryError) {
  std::string value;
  const auto version_after = [&](std::string_view key, const CallOptions* options) {
    uint64_t version = 7;
    const absl::Status status = options == nullptr ? client_->Get(key, &value, &version)
                                                   : client_->Get(key, &value, &version, *options);
    EXPECT_FALSE(status.ok());
    return version;
  };
  const CallOptions wrong = {.timeout = milliseconds(0)};
  const CallOptions right = {.timeout = milliseconds(60'000)};
  const std::string too_long(client_->limits().max_key_size + 1, 'k');
  for (const std::string_view key :
       {std::string_view("absent"), std::string_view(), std::string_view(too_long)}) {
    for (const CallOptions* options : {static_cast<const CallOptions*>(nullptr), &right, &wrong}) {
      EXPECT_EQ(version_after(key, options), 0u) << key.size();
    }
  }
  client_->Close();
  EXPECT_EQ(version_after("key", nullptr), 0u);
  EXPECT_EQ(version_after("key", &right), 0u);
}

}  // namespace
}  // namespace verbena
