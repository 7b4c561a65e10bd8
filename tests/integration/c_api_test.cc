// The C API, by a program in C (c_api/) that runs beside the servers which it needs.
#include <gtest/gtest.h>
#include <signal.h>

#include <string>

#include "tests/integration/process.h"
#include "tests/integration/run_program.h"

namespace verbena::testing {
namespace {

void ExpectPasses(const std::string& what, const std::string& address) {
  const ProgramOutcome outcome =
      RunProgram({.program = ProgramPath("c_api_program"), .args = {what, address}});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

TEST(CApiTest, EachFunctionAndItsErrors) {
  auto server = ServerProcess::Start();
  ASSERT_TRUE(server.ok()) << server.status();
  ExpectPasses("all", (*server)->address());
}

TEST(CApiTest, ServerWithoutMemory) {
  auto server = ServerProcess::Start({"--memory=16MiB"});
  ASSERT_TRUE(server.ok()) << server.status();
  ExpectPasses("fill", (*server)->address());
}

TEST(CApiTest, ServerWithoutOrderedIndex) {
  auto server = ServerProcess::Start({"--ordered_index=off"});
  ASSERT_TRUE(server.ok()) << server.status();
  ExpectPasses("unordered", (*server)->address());
}

TEST(CApiTest, WithoutThreads) {
  auto server = ServerProcess::Start();
  ASSERT_TRUE(server.ok()) << server.status();
  ExpectPasses("threads", (*server)->address());
}

TEST(CApiTest, ServerThatDies) {
  auto server = ServerProcess::Start();
  ASSERT_TRUE(server.ok()) << server.status();
  auto program = Process::Start(
      {.program = ProgramPath("c_api_program"), .args = {"gone", (*server)->address()}});
  ASSERT_TRUE(program.ok()) << program.status();
  const absl::Status connected = (*program)->WaitForOutput("connected");
  ASSERT_TRUE(connected.ok()) << connected;
  (*server)->process().Signal(SIGKILL);
  const auto exit = (*program)->WaitForExit();
  ASSERT_TRUE(exit.ok()) << exit.status();
  EXPECT_TRUE(exit->exited && exit->code == 0) << (*program)->err();
}

TEST(CApiTest, ClientOfAServerThatDiesAndComesBack) {
  auto server = ServerProcess::Start();
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = (*server)->address();
  auto program =
      Process::Start({.program = ProgramPath("c_api_program"), .args = {"dead", address}});
  ASSERT_TRUE(program.ok()) << program.status();
  absl::Status said = (*program)->WaitForOutput("connected");
  ASSERT_TRUE(said.ok()) << said << (*program)->err();
  (*server)->process().Signal(SIGKILL);
  said = (*program)->WaitForOutput("gone");
  ASSERT_TRUE(said.ok()) << said << (*program)->err();
  server = ServerProcess::Start({"--listen=" + address});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto exit = (*program)->WaitForExit();
  ASSERT_TRUE(exit.ok()) << exit.status();
  EXPECT_TRUE(exit->exited && exit->code == 0) << (*program)->err();
}

TEST(CApiTest, ServerThatIsFrozen) {
  auto server = ServerProcess::Start();
  ASSERT_TRUE(server.ok()) << server.status();
  auto program = Process::Start(
      {.program = ProgramPath("c_api_program"), .args = {"frozen", (*server)->address()}});
  ASSERT_TRUE(program.ok()) << program.status();
  absl::Status said = (*program)->WaitForOutput("connected");
  ASSERT_TRUE(said.ok()) << said << (*program)->err();
  ASSERT_TRUE((*server)->process().Freeze().ok());
  said = (*program)->WaitForOutput("late");
  (*server)->process().Signal(SIGCONT);
  ASSERT_TRUE(said.ok()) << said << (*program)->err();
  const auto exit = (*program)->WaitForExit();
  ASSERT_TRUE(exit.ok()) << exit.status();
  EXPECT_TRUE(exit->exited && exit->code == 0) << (*program)->err();
}

TEST(CApiTest, NoServer) {
  auto server = ServerProcess::Start();
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = (*server)->address();
  ASSERT_TRUE((*server)->Stop().ok());
  ExpectPasses("absent", address);
}

}  // namespace
}  // namespace verbena::testing
