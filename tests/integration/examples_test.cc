// The examples do what they say: each by itself against a server, with a wrong usage, and where no
// server is.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/integration/process.h"
#include "tests/integration/run_program.h"

namespace verbena::testing {
namespace {

struct Example {
  const char* name;
  const char* says;   // a part of what it prints
  std::string input;  // standard input
};

ProgramOutcome RunExample(const Example& example, std::vector<std::string> args) {
  return RunProgram({.program = ProgramPath(std::string("verbena-example-") + example.name),
                     .args = std::move(args),
                     .input = example.input});
}

class ExamplesTest : public ::testing::TestWithParam<Example> {};

TEST_P(ExamplesTest, DoesWhatItSays) {
  auto server = ServerProcess::Start();
  ASSERT_TRUE(server.ok()) << server.status();
  // Also where its keys are there already.
  for (int round = 0; round < 2; ++round) {
    const ProgramOutcome outcome = RunExample(GetParam(), {(*server)->address()});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_TRUE(Has(outcome.out, GetParam().says)) << outcome.out;
  }
}

TEST_P(ExamplesTest, WrongUsage) {
  const ProgramOutcome outcome = RunExample(GetParam(), {});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_TRUE(Has(outcome.err, "ADDR:PORT")) << outcome.err;
}

TEST_P(ExamplesTest, NoServer) {
  auto server = ServerProcess::Start();
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = (*server)->address();
  ASSERT_TRUE((*server)->Stop().ok());
  const ProgramOutcome outcome = RunExample(GetParam(), {address});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_TRUE(Has(outcome.err, address)) << outcome.err;
}

INSTANTIATE_TEST_SUITE_P(
    All, ExamplesTest,
    ::testing::Values(
        Example{"packages", "2 of 2 records", "Package: a\nVersion: 1\n\nPackage: b\nVersion: 2\n"},
        Example{"hello", "greeting: hello, fabric", ""},
        Example{"hello-c", "greeting: hello, fabric", ""},
        Example{"counter", "counted to 1000", ""}, Example{"batch", "1000 prices put and got", ""},
        Example{"zero-copy", "a picture of 262144 bytes: 1 put without a copy", ""},
        Example{"coroutine", "100 accounts were moved", ""},
        Example{"event-loop", "3 lines went to the server and came back", "one\ntwo\nthree\n"}),
    [](const auto& instance) {
      std::string name = instance.param.name;
      for (char& c : name) {
        if (c == '-') c = '_';
      }
      return name;
    });

}  // namespace
}  // namespace verbena::testing
