// A GET that nothing else is under way with takes a way of its own (client/src/connection_gets.cc).
// What makes it an operation like any other is brought about here: completions that come late,
// fail, or cannot be polled for, posts that fail, items that have changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "client/src/fabric.h"
#include "common/softverbs/softverbs.h"
#include "common/verbs/fault_verbs.h"
#include "common/verbs/forwarding_verbs.h"
#include "server/server.h"
#include "verbena/connection.h"

namespace verbena::testing {
namespace {

using server::Server;
using server::ServerConfig;

// What the polls of the client's completion queue say.
struct Polls {
  std::atomic<const ibv_cq*> queue{nullptr};
  std::atomic<int> in_vain{0};    // so many find nothing
  std::atomic<bool> fail{false};  // the next one fails
  std::atomic<int> status{0};     // of the next completion, if not 0
  decltype(ibv_context_ops::poll_cq) original = nullptr;
};

Polls& ThePolls() {
  static Polls polls;
  return polls;
}

int PollHook(ibv_cq* cq, int entries, ibv_wc* wc) {
  Polls& polls = ThePolls();
  if (cq != polls.queue.load()) return polls.original(cq, entries, wc);
  if (polls.fail.exchange(false)) return -1;
  if (polls.in_vain.load() > 0) {
    --polls.in_vain;
    return 0;
  }
  const int count = polls.original(cq, entries, wc);
  if (count > 0) {
    if (const int status = polls.status.exchange(0); status != 0) {
      wc->status = static_cast<ibv_wc_status>(status);
    }
  }
  return count;
}

// The device's polls go through PollHook as soon as it has a queue: so the server has such a table
// too, since its workers poll the same device. The client's queue is the one whose polls change.
class HookedVerbs : public verbs::ForwardingVerbs {
 public:
  HookedVerbs(verbs::VerbsApi& base, bool of_client) : ForwardingVerbs(base), client_(of_client) {}
  ibv_cq* CreateCq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                   int vector) override {
    ibv_cq* const cq = ForwardingVerbs::CreateCq(context, cqe, cq_context, channel, vector);
    if (context->ops.poll_cq != PollHook) {
      ThePolls().original = context->ops.poll_cq;
      context->ops.poll_cq = PollHook;
    }
    if (client_) ThePolls().queue = cq;
    return cq;
  }

 private:
  const bool client_;
};

class LoneGet : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    ServerConfig config;
    config.listen = *NetAddress::Parse("127.0.0.1:0");
    config.memory = 16 << 20;
    config.huge_pages = false;
    config.fabrics = {{.api = &server_verbs_, .required = true}};
    auto server = Server::Start(config);
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
  }
  void TearDown() override {
    connection_.reset();
    Polls& polls = ThePolls();
    polls.queue = nullptr;
    polls.in_vain = polls.status = 0;
    polls.fail = false;
  }

  // With the slot of "key" in its cache.
  void Connect(bool reconnect) {
    const client::ScopedFabric scoped(verbs_);
    Options options;
    options.reconnect = reconnect;
    // A completion that is there, and hidden, wakes nobody who sleeps.
    options.poll_time = std::chrono::seconds(1);
    auto connection = Connection::Connect(server_->address(), options);
    ASSERT_TRUE(connection.ok()) << connection.status().ToString();
    connection_ = *std::move(connection);
    ASSERT_TRUE(connection_->Put("key", "value").ok());
    for (int i = 0; i < 2; ++i) {
      std::string value;
      ASSERT_TRUE(connection_->Get("key", &value).ok());
    }
  }

  // By the call that waits, or submitted and polled for; both begin alone.
  absl::Status Get(std::string* value) {
    if (GetParam()) return connection_->Get("key", value);
    std::optional<absl::Status> got;
    const absl::Status submitted =
        connection_->SubmitGet("key", [&](const absl::Status& status, const GetResult& result) {
          EXPECT_FALSE(got.has_value()) << "a callback is called once";
          got = status;
          value->assign(result.value);
        });
    if (!submitted.ok()) return submitted;
    while (!got.has_value()) connection_->Poll();
    return *got;
  }

  void ExpectValue(const std::string& wanted) {
    std::string value;
    const absl::Status status = Get(&value);
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(value, wanted);
  }

  HookedVerbs server_verbs_{softverbs::SoftVerbs(), /*of_client=*/false};
  std::unique_ptr<Server> server_;
  verbs::FaultVerbs faults_{softverbs::SoftVerbs()};
  HookedVerbs verbs_{faults_, /*of_client=*/true};
  std::unique_ptr<Connection> connection_;
};

TEST_P(LoneGet, ComesAfterAnyNumberOfPollsInVain) {
  ASSERT_NO_FATAL_FAILURE(Connect(true));
  for (const int polls : {0, 1, 2, 15, 16, 17, 31, 32, 1022, 1023, 1024, 1025, 3000}) {
    SCOPED_TRACE(polls);
    const auto before = connection_->stats();
    ThePolls().in_vain = polls;
    ASSERT_NO_FATAL_FAILURE(ExpectValue("value"));
    ThePolls().in_vain = 0;
    const auto after = connection_->stats();
    EXPECT_EQ(after.gets - before.gets, 1u);
    EXPECT_EQ(after.reads - before.reads, 1u);
    EXPECT_EQ(after.doorbells - before.doorbells, 1u);
    EXPECT_EQ(after.completions - before.completions, 1u);
    EXPECT_EQ(after.cache_hits - before.cache_hits, 1u);
  }
}

TEST_P(LoneGet, FindsWhatHasBeenPutMeanwhile) {
  ASSERT_NO_FATAL_FAILURE(Connect(true));
  auto other = Connection::Connect(server_->address(), Options());
  ASSERT_TRUE(other.ok()) << other.status().ToString();
  for (const size_t size : {size_t{5}, size_t{500}, size_t{50'000}, size_t{1}}) {
    const std::string value(size, 'w');
    ASSERT_TRUE((*other)->Put("key", value).ok());
    ASSERT_NO_FATAL_FAILURE(ExpectValue(value));
    ASSERT_NO_FATAL_FAILURE(ExpectValue(value));
  }
  ASSERT_TRUE((*other)->Delete("key").ok());
  std::string value;
  EXPECT_TRUE(absl::IsNotFound(Get(&value)));
}

TEST_P(LoneGet, GoesOnOverTheNextConnection) {
  ASSERT_NO_FATAL_FAILURE(Connect(true));
  for (uint64_t lost = 1; lost <= 2; ++lost) {
    ThePolls().status = IBV_WC_RETRY_EXC_ERR;
    ASSERT_NO_FATAL_FAILURE(ExpectValue("value"));
    EXPECT_EQ(connection_->stats().reconnects, lost);
    ASSERT_NO_FATAL_FAILURE(ExpectValue("value"));
  }
}

TEST_P(LoneGet, EndsWithTheConnectionWhereThereIsNoOther) {
  ASSERT_NO_FATAL_FAILURE(Connect(false));
  ThePolls().status = IBV_WC_RETRY_EXC_ERR;
  std::string value;
  EXPECT_TRUE(absl::IsUnavailable(Get(&value)));
  EXPECT_TRUE(absl::IsUnavailable(connection_->status()));
}

// Completions may have been lost with the queue: that is for nobody to repair in silence.
TEST_P(LoneGet, AQueueThatFailsIsADefect) {
  ASSERT_NO_FATAL_FAILURE(Connect(true));
  ThePolls().fail = true;
  std::string value;
  EXPECT_TRUE(absl::IsInternal(Get(&value)));
  EXPECT_TRUE(absl::IsInternal(connection_->status()));
}

TEST_P(LoneGet, APostThatFailsIsNotLost) {
  faults_.InterceptPosts();
  ASSERT_NO_FATAL_FAILURE(Connect(true));
  faults_.FailNamed("ibv_post_send", 1, ENOMEM);
  ASSERT_NO_FATAL_FAILURE(ExpectValue("value"));
  EXPECT_TRUE(faults_.fired());
  EXPECT_EQ(connection_->stats().reconnects, 1u);
}

// Callbacks of a poll that had nothing but this GET to do.
TEST_P(LoneGet, CallbacksMaySubmitCloseAndDestroy) {
  ASSERT_NO_FATAL_FAILURE(Connect(true));
  int called = 0;
  ASSERT_TRUE(connection_
                  ->SubmitGet("key",
                              [&](const absl::Status& status, const GetResult&) {
                                EXPECT_TRUE(status.ok());
                                ++called;
                                const auto again = [&](const absl::Status&, const GetResult&) {
                                  ++called;
                                };
                                EXPECT_TRUE(connection_->SubmitGet("key", again).ok());
                              })
                  .ok());
  while (called < 2) connection_->Poll();
  ASSERT_TRUE(connection_
                  ->SubmitGet("key",
                              [&](const absl::Status& status, const GetResult& result) {
                                EXPECT_TRUE(status.ok());
                                if (GetParam()) {
                                  connection_->Close();
                                } else {
                                  connection_.reset();
                                }
                                EXPECT_EQ(result.value, "value") << "until the callback ends";
                                ++called;
                              })
                  .ok());
  Connection& connection = *connection_;
  connection.Poll();
  EXPECT_EQ(called, 3);
}

INSTANTIATE_TEST_SUITE_P(Ways, LoneGet, ::testing::Bool(), [](const auto& instance) {
  return instance.param ? "Get" : "SubmitGetAndPoll";
});

}  // namespace
}  // namespace verbena::testing
