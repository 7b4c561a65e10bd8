// The client library in the hands of callers that do what they should not: each has a defined
// outcome, and none of them is a crash or a wait without end.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tests/integration/fabric_under_test.h"
#include "tests/integration/patient_options.h"
#include "tests/integration/process.h"
#include "verbena/batch.h"
#include "verbena/connection.h"
#include "verbena/verbena.h"

namespace verbena {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::PatientOptions;
using testing::ServerProcess;

class ClientMisuseTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto server = ServerProcess::Start({"--max_value_size=1MiB"});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = server->release();
  }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }
  void SetUp() override {
    ASSERT_NE(server_, nullptr);
    client_ = Connect();
    ASSERT_NE(client_, nullptr);
    ASSERT_TRUE(client_->Put("key", "value").ok());
  }
  static std::unique_ptr<Connection> Connect(const Options& options = PatientOptions()) {
    return testing::MustConnect(server_->address(), options);
  }

  static ServerProcess* server_;
  std::unique_ptr<Connection> client_;
};
ServerProcess* ClientMisuseTest::server_ = nullptr;

TEST_F(ClientMisuseTest, SynchronousCallsInACallbackAreRefused) {
  std::vector<absl::Status> outcomes;
  int polled = -1;
  int done = 0;
  ASSERT_TRUE(client_
                  ->SubmitGet("key",
                              [&](const absl::Status& status, const GetResult&) {
                                EXPECT_TRUE(status.ok()) << status;
                                std::string value;
                                outcomes.push_back(client_->Get("key", &value));
                                outcomes.push_back(client_->Put("other", "value").status());
                                outcomes.push_back(client_->Delete("key").status());
                                std::vector<ScanItem> items;
                                outcomes.push_back(client_->Scan({}, 1, &items));
                                outcomes.push_back(client_->Ttl("key").status());
                                outcomes.push_back(client_->Ping());
                                polled = client_->Poll() + client_->PollAndArm() +
                                         client_->Wait(seconds(10));
                                client_->Drain();
                                ++done;
                              })
                  .ok());
  client_->Drain();
  EXPECT_EQ(done, 1);
  EXPECT_EQ(polled, 0);
  ASSERT_EQ(outcomes.size(), 6u);
  for (const absl::Status& status : outcomes) {
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_NE(status.message().find("callback"), std::string::npos) << status;
  }
  // Nothing of it has been done, and the connection is as good as before.
  std::string value;
  EXPECT_TRUE(client_->Get("key", &value).ok());
  EXPECT_TRUE(absl::IsNotFound(client_->Get("other", &value)));
}

TEST_F(ClientMisuseTest, ACallbackMaySubmitAsManyAsAreAllowed) {
  Options options = PatientOptions();
  options.depth = 4;
  auto client = Connect(options);
  ASSERT_NE(client, nullptr);
  int submitted = 0;
  int got = 0;
  absl::Status last;
  const auto count = [&got](const absl::Status& status, const GetResult&) {
    EXPECT_TRUE(status.ok()) << status;
    ++got;
  };
  ASSERT_TRUE(client
                  ->SubmitGet("key",
                              [&](const absl::Status&, const GetResult&) {
                                while (last.ok()) {
                                  last = client->SubmitGet("key", count);
                                  if (last.ok()) ++submitted;
                                }
                              })
                  .ok());
  client->Drain();
  EXPECT_EQ(submitted, 4);
  EXPECT_EQ(got, 4);
  EXPECT_TRUE(absl::IsResourceExhausted(last)) << last;
}

TEST_F(ClientMisuseTest, DestructionCancelsEachOperationOnce) {
  constexpr int kOperations = 32;
  int called[kOperations] = {};
  int cancelled = 0;
  for (int i = 0; i < kOperations; ++i) {
    ChangeCallback callback = [&, i](const absl::Status& status, const ChangeResult&) {
      ++called[i];
      if (absl::IsCancelled(status)) ++cancelled;
    };
    ASSERT_TRUE(client_->SubmitPut("key-" + std::to_string(i), "value", std::move(callback)).ok());
  }
  client_.reset();
  EXPECT_EQ(cancelled, kOperations);
  for (const int times : called) EXPECT_EQ(times, 1);
}

TEST_F(ClientMisuseTest, AConnectionMayBeDestroyedInACallback) {
  for (const bool synchronous : {false, true}) {
    auto client = Connect();
    ASSERT_NE(client, nullptr);
    int called = 0;
    int destroyed = 0;
    const auto on_get = [&](const absl::Status& status, const GetResult&) {
      ++called;
      if (std::exchange(destroyed, 1) == 1) {
        EXPECT_TRUE(absl::IsCancelled(status)) << status;
        return;
      }
      client.reset();
      // All the others are over by now.
      EXPECT_EQ(called, 40);
    };
    const auto on_put = [&](const absl::Status& status, const ChangeResult&) {
      ++called;
      EXPECT_TRUE(status.ok() || (destroyed == 1 && absl::IsCancelled(status))) << status;
    };
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(client->SubmitGet("key", on_get).ok());
      ASSERT_TRUE(client->SubmitPut("key-" + std::to_string(i), "value", on_put).ok());
    }
    Connection* const raw = client.get();
    if (synchronous) {
      // Behind all of these in line, so it is cancelled as well.
      std::string value;
      EXPECT_TRUE(absl::IsCancelled(raw->Get("key", &value)));
    } else {
      while (destroyed == 0) raw->Wait(seconds(60));
    }
    EXPECT_EQ(client, nullptr);
    EXPECT_EQ(called, 40);
  }
}

// The answers to these come in one message.
TEST_F(ClientMisuseTest, AConnectionMayBeDestroyedInTheFirstCallbackOfAMessage) {
  int called = 0;
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(client_
                    ->SubmitPut("key-" + std::to_string(i), "value",
                                [&](const absl::Status&, const ChangeResult&) {
                                  if (++called == 1) client_.reset();
                                })
                    .ok());
  }
  client_->Wait(seconds(60));
  EXPECT_EQ(called, 8);
}

TEST_F(ClientMisuseTest, CloseInACallback) {
  int cancelled = 0;
  absl::Status first;
  ASSERT_TRUE(client_
                  ->SubmitPut("key", "value",
                              [&](const absl::Status& status, const ChangeResult&) {
                                first = status;
                                client_->Close();
                                EXPECT_EQ(cancelled, 1);
                              })
                  .ok());
  ASSERT_TRUE(client_
                  ->SubmitPut("other", "value",
                              [&](const absl::Status& status, const ChangeResult&) {
                                // The server has made it: the answer is in the message whose
                                // first one has closed the connection.
                                if (absl::IsCancelled(status) && OutcomeUnknown(status)) {
                                  ++cancelled;
                                }
                                // And once more, from a callback of Close itself.
                                client_->Close();
                              })
                  .ok());
  client_->Drain();
  EXPECT_TRUE(first.ok()) << first;
  EXPECT_EQ(cancelled, 1);
  EXPECT_TRUE(absl::IsFailedPrecondition(client_->status())) << client_->status();
}

// Each is refused, and with its callback goes the last owner of the connection that it was given
// to.
TEST_F(ClientMisuseTest, ACallbackThatIsRefusedMayOwnTheConnection) {
  const std::string_view keys[] = {"key"};
  const KeyValue items[] = {{"key", "value"}};
  const CallOptions wrong = {.timeout = milliseconds(0)};
  using Owner = std::shared_ptr<Connection>;
  const std::function<absl::Status(Connection&, Owner)> submits[] = {
      [&](Connection& to, Owner owner) {
        return to.SubmitGet(
            "key", [owner = std::move(owner)](auto&&...) {}, wrong);
      },
      [&](Connection& to, Owner owner) {
        return to.SubmitPut("key", "value", [owner = std::move(owner)](auto&&...) {},
                            {.timeout = wrong.timeout});
      },
      [&](Connection& to, Owner owner) {
        return to.SubmitPing([owner = std::move(owner)](auto&&...) {}, wrong);
      },
      [&](Connection& to, Owner owner) {
        return to.SubmitInfo([owner = std::move(owner)](auto&&...) {}, wrong);
      },
      [&](Connection& to, Owner owner) {
        return to.SubmitTtl(
            "key", [owner = std::move(owner)](auto&&...) {}, wrong);
      },
      [&](Connection& to, Owner owner) {
        return to.SubmitScan(
            {}, 1, [owner = std::move(owner)](auto&&...) {}, wrong);
      },
      [&](Connection& to, Owner owner) {
        return to.SubmitExecute(
            Batch(), [owner = std::move(owner)](auto&&...) {}, wrong);
      },
      [&](Connection& to, Owner owner) {
        return to.SubmitMultiGet(
            keys, [owner = std::move(owner)](auto&&...) {}, wrong);
      },
      [&](Connection& to, Owner owner) {
        return to.SubmitMultiPut(items, [owner = std::move(owner)](auto&&...) {},
                                 {.timeout = wrong.timeout});
      },
      [&](Connection& to, Owner owner) {
        return to.SubmitMultiDelete(
            keys, [owner = std::move(owner)](auto&&...) {}, wrong);
      },
  };
  for (const auto& submit : submits) {
    Owner owner = Connect();
    ASSERT_NE(owner, nullptr);
    const std::weak_ptr<Connection> connection = owner;
    Connection& to = *owner;
    const absl::Status refused = submit(to, std::move(owner));
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
    EXPECT_TRUE(connection.expired());
  }
}

TEST_F(ClientMisuseTest, UseAfterClose) {
  client_->Close();
  client_->Close();
  std::vector<absl::Status> outcomes;
  std::string value;
  outcomes.push_back(client_->Get("key", &value));
  outcomes.push_back(client_->Put("key", "value").status());
  outcomes.push_back(client_->Delete("key").status());
  outcomes.push_back(client_->Ping());
  outcomes.push_back(client_->Info().status());
  std::vector<ScanItem> items;
  outcomes.push_back(client_->Scan({}, 1, &items));
  const std::string_view keys[] = {"key"};
  const KeyValue puts[] = {{"key", "value"}};
  std::vector<GetItem> got;
  std::vector<std::byte> memory(64);
  Batch batch;
  batch.Get("key");
  outcomes.push_back(client_->Add("key", 1).status());
  outcomes.push_back(client_->Append("key", "more").status());
  outcomes.push_back(client_->GetAndDelete("key", &value));
  outcomes.push_back(client_->Expire("key", seconds(1)).status());
  outcomes.push_back(client_->Persist("key").status());
  outcomes.push_back(client_->Ttl("key").status());
  outcomes.push_back(client_->MultiGet(keys, &got));
  outcomes.push_back(client_->MultiPut(puts));
  outcomes.push_back(client_->MultiDelete(keys));
  outcomes.push_back(client_->Execute(batch));
  outcomes.push_back(batch.result(0).status);
  outcomes.push_back(client_->RegisterBuffer(memory).status());
  outcomes.push_back(client_->SubmitTtl("key", {}));
  outcomes.push_back(client_->SubmitGetAndDelete("key", {}));
  outcomes.push_back(client_->SubmitGet("key", {}));
  outcomes.push_back(client_->SubmitPut("key", "value", {}));
  outcomes.push_back(client_->SubmitScan({}, 1, {}));
  outcomes.push_back(client_->status());
  for (const absl::Status& status : outcomes) {
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_NE(status.message().find("closed"), std::string::npos) << status;
  }
  EXPECT_EQ(client_->Poll(), 0);
  EXPECT_EQ(client_->PollAndArm(), 0);
  EXPECT_EQ(client_->Wait(seconds(10)), 0);
  client_->Drain();
  EXPECT_EQ(client_->in_flight(), 0u);
}

TEST_F(ClientMisuseTest, KeysValuesAndOptionsOutOfRange) {
  const std::string long_key(client_->limits().max_key_size + 1, 'k');
  const std::string long_value(client_->limits().max_value_size + 1, 'v');
  std::string value;
  const std::vector<absl::Status> outcomes = {
      client_->Get("", &value),
      client_->Get(long_key, &value),
      client_->Get("key", &value, nullptr, {.timeout = milliseconds(0)}),
      client_->SubmitGet("", {}),
      client_->SubmitGet("key", {}, {.timeout = milliseconds(-1)}),
      client_->Put(long_key, "value").status(),
      client_->Put("key", long_value).status(),
      client_->Put("key", "value", {.ttl = milliseconds(0)}).status(),
      client_->Put("key", "value", {.timeout = milliseconds(0)}).status(),
      client_->Put("key", "value", {.timeout = milliseconds::max()}).status(),
      client_->SubmitPut("key", long_value, {}),
      client_->Delete("", {.timeout = milliseconds(5)}).status(),
      client_->Delete("key", Condition::IfPresent()).status(),
      client_->Append("key", std::string(client_->limits().eager_limit + 1, 'a')).status(),
      client_->Expire("key", milliseconds(-5)).status(),
      client_->SubmitTtl("", {}),
      client_->SubmitScan({.start = long_key}, 1, {}),
      client_->SubmitScan({.prefix = long_key}, 1, {}),
  };
  for (const absl::Status& status : outcomes) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_FALSE(status.message().empty());
  }
  EXPECT_EQ(client_->in_flight(), 0u);
  EXPECT_TRUE(client_->Get("key", &value).ok());
}

TEST_F(ClientMisuseTest, PlacesThatAreNull) {
  std::vector<std::byte> memory(64);
  auto buffer = client_->RegisterBuffer(memory);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  const std::string_view keys[] = {"key"};
  const std::vector<absl::Status> refused = {
      client_->MultiGet(keys, nullptr),
      client_->Scan({}, 1, nullptr),
      client_->GetInto("key", buffer->bytes(), nullptr),
  };
  for (const absl::Status& status : refused) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_NE(status.message().find("null"), std::string::npos) << status;
  }
  // Where a result may be left out.
  EXPECT_TRUE(client_->Get("key", nullptr).ok());
  EXPECT_TRUE(client_->Put("key", "value", {}, nullptr).ok());
  EXPECT_TRUE(client_->GetAndDelete("key", nullptr).ok());
  EXPECT_TRUE(absl::IsNotFound(client_->Get("key", nullptr)));
}

TEST_F(ClientMisuseTest, NothingAtAll) {
  std::vector<GetItem> got(3);
  std::vector<absl::StatusOr<ChangeResult>> changes(3, ChangeResult());
  std::vector<ScanItem> items(3);
  Batch batch;
  EXPECT_TRUE(client_->MultiGet({}, &got).ok());
  EXPECT_TRUE(client_->MultiPut({}, {}, &changes).ok());
  EXPECT_TRUE(client_->MultiDelete({}, {}, &changes).ok());
  EXPECT_TRUE(client_->Execute(batch).ok());
  EXPECT_TRUE(client_->Scan({.prefix = "none/"}, 1, &items).ok());
  EXPECT_TRUE(got.empty() && changes.empty() && items.empty());
  EXPECT_TRUE(absl::IsOutOfRange(batch.result(0).status)) << batch.result(0).status;
  // The results take the number of the keys, whatever they had.
  const std::string_view keys[] = {"key", "none"};
  got.resize(7);
  EXPECT_TRUE(client_->MultiGet(keys, &got).ok());
  ASSERT_EQ(got.size(), 2u);
  EXPECT_TRUE(got[0].status.ok() && absl::IsNotFound(got[1].status));
  EXPECT_TRUE(client_->Put("empty", {}).ok());
  std::string value = "x";
  EXPECT_TRUE(client_->Get("empty", &value).ok());
  EXPECT_EQ(value, "");
}

TEST_F(ClientMisuseTest, BuffersThatCannotBe) {
  std::vector<std::byte> memory(256);
  auto buffer = client_->RegisterBuffer(std::span(memory).first(128));
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  size_t size = 7;
  const std::vector<absl::Status> outcomes = {
      client_->RegisterBuffer({}).status(),
      client_->RegisterBuffer({static_cast<std::byte*>(nullptr), 8}).status(),
      client_->RegisterBuffer({memory.data() + 128, SIZE_MAX}).status(),
      client_->RegisterBuffer(std::span(memory).subspan(100)).status(),
      client_->GetInto("key", std::span(memory).subspan(128), &size),
      client_->GetInto("key", std::span(memory).subspan(120, 16), &size),
      client_->GetInto("", std::span(memory).first(8), &size),
      client_->SubmitGetInto("key", std::span(memory).subspan(128), {}),
      client_->SubmitGetInto("key", {}, {}),
  };
  for (const absl::Status& status : outcomes) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_FALSE(status.message().empty());
  }
  EXPECT_EQ(size, 0u);
  // What was unregistered is like any other memory.
  buffer->Reset();
  buffer->Reset();
  EXPECT_TRUE(absl::IsInvalidArgument(client_->GetInto("key", std::span(memory).first(8), &size)));
  EXPECT_TRUE(Buffer().bytes().empty());
}

TEST_F(ClientMisuseTest, CallbacksMayBeEmpty) {
  ASSERT_TRUE(client_->SubmitGet("key", {}).ok());
  ASSERT_TRUE(client_->SubmitPut("key", "value", {}).ok());
  ASSERT_TRUE(client_->SubmitTtl("key", {}).ok());
  ASSERT_TRUE(client_->SubmitScan({.prefix = "key"}, 1, {}).ok());
  client_->Drain();
  EXPECT_EQ(client_->in_flight(), 0u);
  EXPECT_TRUE(client_->status().ok());
}

TEST_F(ClientMisuseTest, TwoConnectionsInOneProcess) {
  auto other = Connect();
  ASSERT_NE(other, nullptr);
  // One is used in the other's callbacks, and destroyed before it.
  std::string value;
  absl::Status inner;
  ASSERT_TRUE(client_
                  ->SubmitGet("key",
                              [&](const absl::Status& status, const GetResult&) {
                                EXPECT_TRUE(status.ok()) << status;
                                inner = other->Get("key", &value);
                                other.reset();
                              })
                  .ok());
  client_->Drain();
  EXPECT_TRUE(inner.ok()) << inner;
  EXPECT_EQ(value, "value");
  EXPECT_TRUE(client_->Get("key", &value).ok());
}

TEST_F(ClientMisuseTest, AConnectionMayGoFromThreadToThread) {
  absl::Status outcome;
  std::thread other([&] {
    std::string value;
    outcome = client_->Get("key", &value);
  });
  other.join();
  EXPECT_TRUE(outcome.ok()) << outcome;
  std::string value;
  EXPECT_TRUE(client_->Get("key", &value).ok());
}

// Not even an exception comes out of the C API, where a callback of C++ has thrown one.
TEST_F(ClientMisuseTest, AScanOfTheCApiWhoseCallbackThrows) {
  verbena_connection* connection = nullptr;
  char error[256] = "";
  ASSERT_EQ(verbena_connect(server_->address().c_str(), nullptr, &connection, error, sizeof error),
            VERBENA_OK)
      << error;
  const auto throws = [](void*, const verbena_item*) -> int {
    throw std::runtime_error("thrown in a callback");
  };
  EXPECT_EQ(verbena_scan(connection, nullptr, 1, throws, nullptr), VERBENA_INTERNAL);
  EXPECT_NE(std::string(verbena_error_text(connection)).find("a callback has thrown"),
            std::string::npos)
      << verbena_error_text(connection);
  EXPECT_EQ(verbena_ping(connection), VERBENA_OK);
  verbena_close(connection);
}

using ClientMisuseDeathTest = ClientMisuseTest;

// Each dies in a process that has forked, with a connection of its own.
TEST_F(ClientMisuseDeathTest, ACallbackThatThrowsEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        auto client = Connect();
        client
            ->SubmitGet("key",
                        [](const absl::Status&, const GetResult&) {
                          throw std::runtime_error("thrown in a callback");
                        })
            .IgnoreError();
        client->Drain();
      },
      "thrown in a callback");
}

#ifndef NDEBUG
TEST_F(ClientMisuseDeathTest, TwoThreadsAtOnceAreNoticed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        auto client = Connect();
        client
            ->SubmitGet("key",
                        [&](const absl::Status&, const GetResult&) {
                          std::thread other([&] {
                            std::string value;
                            client->Get("key", &value).IgnoreError();
                          });
                          other.join();
                        })
            .IgnoreError();
        client->Drain();
      },
      "two threads use a Connection at once");
}

TEST_F(ClientMisuseDeathTest, DestructionBesideACallIsNoticed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        auto client = Connect();
        client
            ->SubmitGet("key",
                        [&](const absl::Status&, const GetResult&) {
                          std::thread other([&] { client.reset(); });
                          other.join();
                        })
            .IgnoreError();
        client->Drain();
      },
      "two threads use a Connection at once");
}
#endif

}  // namespace
}  // namespace verbena
