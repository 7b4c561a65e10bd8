// Every verb fails once, at the server and at the client: both ends in this process, each behind a
// table that fails the n-th call, for every n until a run has no failure. Whatever fails: nobody
// crashes or waits for ever, the one who sees it is told the verb, its errno and what was being
// done, the server serves the next client, and nothing is left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/src/fabric.h"
#include "common/softverbs/softverbs.h"
#include "common/verbs/fault_verbs.h"
#include "server/server.h"
#include "tests/integration/captured_log.h"
#include "tests/integration/eventually.h"
#include "verbena/connection.h"

namespace verbena::testing {
namespace {

using server::Server;
using server::ServerConfig;
using ::testing::HasSubstr;
using verbs::FaultVerbs;

enum class End { kServer, kClient };

// Which call fails: the n-th of all, or the n-th of one name.
struct Fault {
  End end = End::kServer;
  std::string call{};  // "": of all
  uint64_t n = 1;
  int error = ENOMEM;
  bool own_receives = false;
};

// What a run showed.
struct Outcome {
  bool fired = false;
  std::string call;     // that failed
  absl::Status server;  // of its start
  absl::Status client;  // the first error of an unlucky client
  std::string log;      // warnings and errors
  uint64_t leaked = 0;  // objects whose destruction failed
  // Connecting took so long on a busy machine that the client tried again beside it.
  bool second_attempt = false;
};

ServerConfig Config(verbs::VerbsApi& api, bool own_receives) {
  ServerConfig config;
  config.listen = *NetAddress::Parse("127.0.0.1:0");
  config.memory = 8 << 20;
  config.huge_pages = false;
  config.poll_us = 0;
  config.queues = {
      .workers = 1, .max_connections = 8, .srq_depth = 64, .window = 8, .use_srq = !own_receives};
  config.fabrics = {{.api = &api, .required = true}};
  return config;
}

// Connects, works and disconnects; the first error.
absl::Status Visit(verbs::VerbsApi& api, const std::string& address) {
  std::unique_ptr<Connection> connection;
  {
    const client::ScopedFabric scoped(api);
    Options options;
    options.depth = 4;
    options.poll_time = std::chrono::microseconds(0);
    options.reconnect = false;  // so that it is told
    absl::StatusOr<std::unique_ptr<Connection>> made = Connection::Connect(address, options);
    if (!made.ok()) return made.status();
    connection = *std::move(made);
  }
  const std::string large(size_t{3} << 19, 'L');
  for (const std::string& value : {std::string("small"), large}) {
    if (const auto put = connection->Put("key", value); !put.ok()) return put.status();
    std::string got;
    if (const absl::Status get = connection->Get("key", &got); !get.ok()) return get;
    if (got != value) return absl::DataLossError("another value");
  }
  return connection->Delete("key").status();
}

void Arm(const Fault& fault, FaultVerbs& server, FaultVerbs& client) {
  FaultVerbs& table = fault.end == End::kServer ? server : client;
  if (fault.call.empty()) {
    table.FailNth(fault.n, fault.error);
  } else {
    table.FailNamed(fault.call, fault.n, fault.error);
  }
}

// Start, an unlucky client, a lucky one, stop.
Outcome RunOnce(const Fault& fault) {
  Outcome outcome;
  const CapturedLog log;
  FaultVerbs at_server(softverbs::SoftVerbs());
  FaultVerbs at_client(softverbs::SoftVerbs());
  at_server.InterceptPosts();
  at_client.InterceptPosts();
  FaultVerbs& faulty = fault.end == End::kServer ? at_server : at_client;
  Arm(fault, at_server, at_client);
  auto server = Server::Start(Config(at_server, fault.own_receives));
  outcome.server = server.status();
  if (server.ok()) {
    outcome.client = Visit(at_client, (*server)->address());
    EXPECT_TRUE(Eventually([&] { return (*server)->network().connections() == 0; }))
        << faulty.failed_call();
    // A failure that is still to come is for stopping.
    if (faulty.fired()) {
      const absl::Status next = Visit(at_client, (*server)->address());
      EXPECT_TRUE(next.ok()) << faulty.failed_call() << ": " << next.ToString();
    }
    EXPECT_TRUE((*server)->Stop(absl::Seconds(30))) << faulty.failed_call();
  }
  server = absl::UnknownError("destroyed");
  outcome.fired = faulty.fired();
  outcome.call = faulty.failed_call();
  // Both visits have a channel.
  outcome.second_attempt = at_client.calls_of("rdma_create_event_channel") > 2;
  faulty.Clear();
  outcome.leaked = at_server.failed_destroys() + at_client.failed_destroys();
  at_server.DestroyLeaked();
  at_client.DestroyLeaked();
  outcome.log = log.text();
  EXPECT_EQ(at_server.live_count(), 0)
      << outcome.call << ": " << ::testing::PrintToString(at_server.live());
  EXPECT_EQ(at_client.live_count(), 0)
      << outcome.call << ": " << ::testing::PrintToString(at_client.live());
  return outcome;
}

// The error names the verb, what it was about (in parentheses, or the text before it) and why.
void ExpectExplained(const absl::Status& status, const std::string& call, int error) {
  const std::string text(status.message());
  EXPECT_THAT(text, HasSubstr(call));
  EXPECT_THAT(text, HasSubstr(std::strerror(error)));
}

// Verbs whose failure nobody is told, since all works without them.
const std::set<std::string>& Survivable(End end) {
  // For the log: where packets are never lost, timers do not matter. The index of GIDs is for
  // people.
  static const auto* const server = new std::set<std::string>{
      "ibv_query_gid_ex",     // shown to people
      "ibv_modify_srq",       // an alarm that honest clients never ring
      "rdma_set_option",      // the ack timeout: the connection manager's own serves
      "ibv_modify_qp",        // RNR timer and a second wall of rights; ERR when it ends anyway
      "rdma_disconnect",      // the QP is in ERR or destroyed, which ends it as well
      "rdma_get_cm_event",    // comes again
      "ibv_get_cq_event",     // comes again
      "ibv_get_async_event",  // comes again
      "rdma_create_qp",       // tried again without inline data
      "ibv_post_srq_recv"};   // tried again
  static const auto* const client = new std::set<std::string>{
      "rdma_disconnect",    // the QP is in ERR, which ends the connection as well
      "ibv_modify_qp",      // when it ends: the disconnect does it
      "ibv_post_recv",      // behind the last answer
      "rdma_create_qp",     // tried again with less inline data
      "ibv_get_cq_event"};  // looked again
  return end == End::kServer ? *server : *client;
}

void Check(const Fault& fault, const Outcome& outcome) {
  SCOPED_TRACE(absl::StrCat(fault.end == End::kServer ? "server" : "client", ", call ", fault.n,
                            ": ", outcome.call, ", ", std::strerror(fault.error)));
  if (!outcome.server.ok()) {
    ExpectExplained(outcome.server, outcome.call, fault.error);
  } else if (!outcome.client.ok()) {
    // A deadline would mean that nobody noticed.
    EXPECT_FALSE(absl::IsDeadlineExceeded(outcome.client)) << outcome.client.ToString();
    if (fault.end == End::kClient) {
      ExpectExplained(outcome.client, outcome.call, fault.error);
    } else {
      // The server's administrator reads why a client was let down, whatever the client could be
      // told.
      ExpectExplained(absl::InternalError(outcome.log), outcome.call, fault.error);
      // Refused; the text is cut to what a reject carries.
      if (absl::IsFailedPrecondition(outcome.client)) {
        EXPECT_THAT(std::string(outcome.client.message()), HasSubstr(outcome.call));
      }
    }
  } else if (outcome.leaked == 0 && !outcome.second_attempt) {
    EXPECT_TRUE(Survivable(fault.end).contains(outcome.call)) << "nobody was told";
  }
}

// Fails the first, the second, ... call until a run has no failure. How many failed.
int FailEach(Fault fault) {
  for (;; ++fault.n) {
    const Outcome outcome = RunOnce(fault);
    if (::testing::Test::HasFatalFailure()) return 0;
    if (!outcome.fired) {
      EXPECT_TRUE(outcome.server.ok()) << outcome.server.ToString();
      EXPECT_TRUE(outcome.client.ok()) << outcome.client.ToString();
      EXPECT_EQ(outcome.leaked, 0u);
      return static_cast<int>(fault.n) - 1;
    }
    Check(fault, outcome);
  }
}

TEST(FailingVerbs, EachThatMakesOrChangesAtTheServer) {
  EXPECT_GT(FailEach({.end = End::kServer, .error = ENOMEM}), 20);
  EXPECT_GT(FailEach({.end = End::kServer, .error = EIO, .own_receives = true}), 20);
}

TEST(FailingVerbs, EachThatMakesOrChangesAtTheClient) {
  EXPECT_GT(FailEach({.end = End::kClient, .error = ENOMEM}), 12);
  EXPECT_GT(FailEach({.end = End::kClient, .error = EIO}), 12);
}

// Acknowledgements are not among these: they check their argument and cannot fail otherwise.
// What is not destroyed leaks, with what it depends on, and is logged.
TEST(FailingVerbs, EachThatDestroys) {
  for (const End end : {End::kServer, End::kClient}) {
    for (const char* call : {"ibv_dereg_mr", "ibv_dealloc_pd", "ibv_destroy_cq",
                             "ibv_destroy_comp_channel", "rdma_destroy_id"}) {
      EXPECT_GE(FailEach({.end = end, .call = call, .error = EIO}), 1) << call;
    }
  }
  EXPECT_EQ(FailEach({.end = End::kServer, .call = "ibv_destroy_srq", .error = EIO}), 1);
}

// How often events are taken depends on timing, so only the first ones are failed. There may even
// be none, where each completion has come before somebody would sleep: then all is done again.
TEST(FailingVerbs, EachThatTakesEvents) {
  const auto fires = [](const Fault& fault) {
    const Outcome outcome = RunOnce(fault);
    if (!outcome.fired) return false;
    Check(fault, outcome);
    // Nobody is let down, but it is not kept back either.
    if (fault.end == End::kServer && fault.call == "ibv_get_async_event") {
      ExpectExplained(absl::InternalError(outcome.log), fault.call, fault.error);
    }
    return true;
  };
  const auto fail = [&fires](End end, const char* call) {
    Fault fault = {.end = end, .call = call, .error = EIO};
    EXPECT_TRUE(Eventually([&] { return fires(fault); }))
        << call << " of the " << (end == End::kServer ? "server" : "client");
    for (fault.n = 2; fault.n <= 8; ++fault.n) fires(fault);
  };
  for (const End end : {End::kServer, End::kClient}) {
    fail(end, "rdma_get_cm_event");
    fail(end, "ibv_get_cq_event");
  }
  // A client does not look at them: what concerns it shows in its completions.
  fail(End::kServer, "ibv_get_async_event");
}

TEST(FailingVerbs, EachThatPosts) {
  for (const End end : {End::kServer, End::kClient}) {
    EXPECT_GT(FailEach({.end = end, .call = "ibv_post_send"}), 4);
  }
  EXPECT_GT(FailEach({.end = End::kClient, .call = "ibv_post_recv"}), 4);
  EXPECT_GT(FailEach({.end = End::kServer, .call = "ibv_post_srq_recv"}), 4);
  EXPECT_GT(FailEach({.end = End::kServer, .call = "ibv_post_recv", .own_receives = true}), 4);
}

}  // namespace
}  // namespace verbena::testing
