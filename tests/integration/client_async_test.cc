// A connection in an event loop of the application's: one descriptor to wait on, whatever comes.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/unique_fd.h"
#include "tests/integration/fabric_under_test.h"
#include "tests/integration/patient_options.h"
#include "tests/integration/process.h"
#include "verbena/connection.h"

namespace verbena {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::PatientOptions;
using testing::ServerProcess;

bool IsReadable(int fd) {
  pollfd entry = {fd, POLLIN, 0};
  return poll(&entry, 1, 0) == 1;
}

// An application's loop: waits on an epoll descriptor, and on nothing else.
class Loop {
 public:
  explicit Loop(Connection& connection)
      : connection_(connection), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    epoll_event event{};
    event.events = EPOLLIN;
    EXPECT_EQ(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, connection.event_fd(), &event), 0);
  }

  // Runs until `done()`; false if nothing comes for a long time.
  template <typename Done>
  bool RunUntil(Done&& done) {
    connection_.PollAndArm();
    while (!done()) {
      epoll_event event{};
      if (epoll_wait(epoll_.get(), &event, 1, 120'000) != 1) return false;
      ++turns_;
      connection_.PollAndArm();
    }
    return true;
  }
  int turns() const { return turns_; }

 private:
  Connection& connection_;
  UniqueFd epoll_;
  int turns_ = 0;
};

class ClientAsyncTest : public ::testing::Test {
 protected:
  void Start(const Options& options, std::vector<std::string> flags = {}) {
    auto server = ServerProcess::Start(std::move(flags));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    auto client = Connection::Connect(server_->address(), options);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }

  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<Connection> client_;
};

TEST_F(ClientAsyncTest, AnEventLoopNeedsNothingElse) {
  ASSERT_NO_FATAL_FAILURE(Start(PatientOptions()));
  Loop loop(*client_);
  const int fd = client_->event_fd();
  const int count = testing::Scaled(2000, 20);
  int put = 0;
  int got = 0;
  // Each change's callback submits a GET, and that one's the next change.
  Callback<void()> next;
  next = [&] {
    if (put == count) return;
    std::string key = "key-" + std::to_string(put);
    ++put;
    ASSERT_TRUE(client_
                    ->SubmitPut(key, key,
                                [&, key](const absl::Status& status, const auto&) {
                                  ASSERT_TRUE(status.ok()) << status;
                                  ASSERT_TRUE(client_
                                                  ->SubmitGet(key,
                                                              [&, key](const absl::Status& read,
                                                                       const GetResult& result) {
                                                                ASSERT_TRUE(read.ok()) << read;
                                                                EXPECT_EQ(result.value, key);
                                                                ++got;
                                                                next();
                                                              })
                                                  .ok());
                                })
                    .ok());
  };
  for (int i = 0; i < 8; ++i) next();
  EXPECT_TRUE(loop.RunUntil([&] { return got == count; }));
  EXPECT_EQ(client_->in_flight(), 0u);
  EXPECT_EQ(client_->event_fd(), fd);
}

TEST_F(ClientAsyncTest, IsQuietWhenThereIsNothingToDo) {
  ASSERT_NO_FATAL_FAILURE(Start(PatientOptions()));
  ASSERT_TRUE(client_->Put("key", "value").ok());
  EXPECT_EQ(client_->PollAndArm(), 0);
  EXPECT_FALSE(IsReadable(client_->event_fd()));
  // A synchronous call in between is nothing special.
  std::string value;
  ASSERT_TRUE(client_->Get("key", &value).ok());
  client_->PollAndArm();
  EXPECT_FALSE(IsReadable(client_->event_fd()));
  // What was submitted leaves with PollAndArm.
  int done = 0;
  ASSERT_TRUE(client_
                  ->SubmitDelete("key",
                                 [&](const absl::Status& status, const auto&) {
                                   EXPECT_TRUE(status.ok()) << status;
                                   ++done;
                                 })
                  .ok());
  Loop loop(*client_);
  EXPECT_TRUE(loop.RunUntil([&] { return done == 1; }));
  client_->PollAndArm();
  EXPECT_FALSE(IsReadable(client_->event_fd()));
}

// The loop gets its turn although operations never end, and is told to come back.
TEST_F(ClientAsyncTest, ReturnsToTheLoopThoughThereIsMore) {
  ASSERT_NO_FATAL_FAILURE(Start(PatientOptions()));
  ASSERT_TRUE(client_->Put("key", "value").ok());
  int got = 0;
  bool more = true;
  Callback<void()> again;
  again = [&] {
    ASSERT_TRUE(client_
                    ->SubmitGet("key",
                                [&](const absl::Status& status, const GetResult&) {
                                  EXPECT_TRUE(status.ok()) << status;
                                  ++got;
                                  if (more) again();
                                })
                    .ok());
  };
  for (int i = 0; i < 32; ++i) again();
  Loop loop(*client_);
  EXPECT_TRUE(loop.RunUntil([&] { return got > testing::Scaled(20'000, 500); }));
  EXPECT_GT(loop.turns(), 1);
  more = false;
  EXPECT_TRUE(loop.RunUntil([&] { return client_->in_flight() == 0; }));
}

TEST_F(ClientAsyncTest, DeadlinesWakeTheLoop) {
  Options options = PatientOptions();
  options.operation_timeout = milliseconds(300);
  ASSERT_NO_FATAL_FAILURE(Start(options));
  ASSERT_TRUE(server_->process().Freeze().ok());
  std::optional<absl::Status> outcome;
  const auto before = std::chrono::steady_clock::now();
  ASSERT_TRUE(client_
                  ->SubmitPut("key", "value",
                              [&](const absl::Status& status, const auto&) { outcome = status; })
                  .ok());
  Loop loop(*client_);
  ASSERT_TRUE(loop.RunUntil([&] { return outcome.has_value(); }));
  EXPECT_TRUE(absl::IsDeadlineExceeded(*outcome)) << *outcome;
  EXPECT_GE(std::chrono::steady_clock::now() - before, milliseconds(300));
}

TEST_F(ClientAsyncTest, TheServersEndWakesTheLoop) {
  Options options = PatientOptions();
  options.reconnect = false;
  ASSERT_NO_FATAL_FAILURE(Start(options));
  Loop loop(*client_);
  client_->PollAndArm();
  server_->process().Signal(SIGKILL);
  ASSERT_TRUE(loop.RunUntil([&] { return !client_->status().ok(); }));
  EXPECT_TRUE(absl::IsUnavailable(client_->status())) << client_->status();
  // There is nothing left that it would have to be told.
  client_->PollAndArm();
  EXPECT_FALSE(IsReadable(client_->event_fd()));
}

// A call's own time is what counts, shorter or longer than the connection's.
TEST_F(ClientAsyncTest, CallsHaveTheirOwnTimeouts) {
  ASSERT_NO_FATAL_FAILURE(Start(PatientOptions()));
  ASSERT_TRUE(client_->Put("key", "value").ok());
  std::string value;
  EXPECT_TRUE(client_->Get("key", &value, nullptr, {.timeout = seconds(60)}).ok());
  ASSERT_TRUE(server_->process().Freeze().ok());
  const auto before = std::chrono::steady_clock::now();
  const absl::Status status = client_->Put("key", "value", {.timeout = milliseconds(200)}).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_NE(status.message().find("200 ms"), std::string::npos) << status;
  const auto took = std::chrono::steady_clock::now() - before;
  EXPECT_GE(took, milliseconds(200));
  EXPECT_LT(took, seconds(30));
}

TEST_F(ClientAsyncTest, SubmissionsHaveTheirOwnTimeouts) {
  Options options = PatientOptions();
  options.operation_timeout = milliseconds(300);
  ASSERT_NO_FATAL_FAILURE(Start(options));
  ASSERT_TRUE(server_->process().Freeze().ok());
  std::optional<absl::Status> outcome;
  ASSERT_TRUE(
      client_
          ->SubmitDelete("key",
                         [&](const absl::Status& status, const ChangeResult&) { outcome = status; },
                         {.timeout = milliseconds(1000)})
          .ok());
  const auto before = std::chrono::steady_clock::now();
  client_->Drain();
  ASSERT_TRUE(outcome.has_value());
  EXPECT_TRUE(absl::IsDeadlineExceeded(*outcome)) << *outcome;
  EXPECT_GE(std::chrono::steady_clock::now() - before, milliseconds(1000));
}

}  // namespace
}  // namespace verbena
