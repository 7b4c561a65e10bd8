// Processes of the tests: here, and through an agent as if on another host.
#include "tests/integration/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/integration/fabric_under_test.h"

namespace verbena::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The parameter: through an agent.
class ProcessTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!GetParam()) return;
    ProcessOptions options;
    options.program = ProgramPath("process_agent");
    options.args = {"127.0.0.1:0"};
    auto agent = Process::Start(std::move(options));
    ASSERT_TRUE(agent.ok()) << agent.status();
    agent_ = *std::move(agent);
    ASSERT_TRUE(agent_->WaitForOutput("\n").ok());
    const std::string line = agent_->out();
    const size_t begin = line.find(' ') + 1;
    setenv("VERBENA_TEST_AGENT", line.substr(begin, line.find('\n') - begin).c_str(), 1);
  }
  void TearDown() override { unsetenv("VERBENA_TEST_AGENT"); }

  static absl::StatusOr<std::unique_ptr<Process>> Bash(const std::string& script,
                                                       std::string input = {},
                                                       bool keep_input_open = false) {
    return Process::Start({.program = "/bin/bash",
                           .args = {"-c", script},
                           .environment = {{"GIVEN", "by the test"}},
                           .input = std::move(input),
                           .keep_input_open = keep_input_open,
                           .host = Host::kServer});
  }

  std::unique_ptr<Process> agent_;
};

TEST_P(ProcessTest, OutputErrorsAndStatus) {
  auto process = Bash(R"(echo "$GIVEN"; printf '\xff\x00' ; echo problem >&2; exit 3)");
  ASSERT_TRUE(process.ok()) << process.status();
  const auto exit = (*process)->WaitForExit();
  ASSERT_TRUE(exit.ok()) << exit.status();
  EXPECT_TRUE(exit->exited);
  EXPECT_EQ(exit->code, 3);
  EXPECT_EQ((*process)->out(), std::string("by the test\n\xff\0", 14));
  EXPECT_EQ((*process)->err(), "problem\n");
}

TEST_P(ProcessTest, Input) {
  const std::string input(200'000, 'i');
  auto closed = Bash("wc -c", input);
  ASSERT_TRUE(closed.ok()) << closed.status();
  ASSERT_TRUE((*closed)->WaitForExit().ok());
  EXPECT_THAT((*closed)->out(), HasSubstr("200000"));
  auto open = Bash("head -c 4; cat; echo ended", "some", /*keep_input_open=*/true);
  ASSERT_TRUE(open.ok()) << open.status();
  EXPECT_TRUE((*open)->WaitForOutput("some").ok());
  (*open)->CloseInput();
  EXPECT_TRUE((*open)->WaitForOutput("ended").ok());
}

TEST_P(ProcessTest, Signals) {
  auto process = Bash("trap 'echo caught' USR1; echo begun; while true; do sleep 0.05; done");
  ASSERT_TRUE(process.ok()) << process.status();
  ASSERT_TRUE((*process)->WaitForOutput("begun").ok());
  (*process)->Signal(SIGUSR1);
  EXPECT_TRUE((*process)->WaitForOutput("caught").ok());
  EXPECT_TRUE((*process)->Freeze().ok());
  EXPECT_TRUE(
      absl::IsDeadlineExceeded((*process)->WaitForExit(std::chrono::milliseconds(1200)).status()));
  (*process)->Signal(SIGKILL);
  const auto exit = (*process)->WaitForExit();
  ASSERT_TRUE(exit.ok()) << exit.status();
  EXPECT_FALSE(exit->exited);
  EXPECT_EQ(exit->signal, SIGKILL);
}

TEST_P(ProcessTest, ProcessorTime) {
  auto process = Bash("while true; do :; done");
  ASSERT_TRUE(process.ok()) << process.status();
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  const auto used = [&] { return (*process)->CpuTime().value_or(std::chrono::nanoseconds(0)); };
  while (used() < std::chrono::milliseconds(50)) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    std::this_thread::yield();
  }
}

TEST_P(ProcessTest, WhatCannotBe) {
  EXPECT_TRUE(absl::IsNotFound(
      Process::Start({.program = "/no/such/program", .host = Host::kServer}).status()));
  auto process = Bash("echo last words");
  ASSERT_TRUE(process.ok()) << process.status();
  const absl::Status missing = (*process)->WaitForOutput("other words");
  EXPECT_TRUE(absl::IsAborted(missing)) << missing;
  EXPECT_THAT(missing.message(), AllOf(HasSubstr("other words"), HasSubstr("last words")));
}

// The process is killed: not at once where an agent has to notice it.
TEST_P(ProcessTest, DiesWithItsOwner) {
  auto process = Bash("echo $$; sleep 1000");
  ASSERT_TRUE(process.ok()) << process.status();
  ASSERT_TRUE((*process)->WaitForOutput("\n").ok());
  const std::string proc = absl::StrCat("/proc/", std::stoi((*process)->out()));
  EXPECT_TRUE(std::filesystem::exists(proc));
  process->reset();
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (std::filesystem::exists(proc)) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    std::this_thread::yield();
  }
}

INSTANTIATE_TEST_SUITE_P(Hosts, ProcessTest, ::testing::Values(false, true),
                         [](const auto& run) { return run.param ? "Agent" : "Here"; });

TEST(ServerProcessTest, RunsWhereServersRun) {
  auto server = ServerProcess::Start();
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string host = ServerAddress();
  EXPECT_EQ((*server)->address().rfind(host.substr(0, host.rfind(':') + 1), 0), 0u)
      << (*server)->address();
  const auto exit = (*server)->Stop();
  ASSERT_TRUE(exit.ok()) << exit.status();
  EXPECT_EQ(exit->code, 0);
}

}  // namespace
}  // namespace verbena::testing
