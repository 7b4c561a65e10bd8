// The C++ lines of README.md do what it says.
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "tests/integration/process.h"
#include "verbena/connection.h"

namespace verbena {
namespace {

// What README.md's reader puts around the lines: gives back the value that they have read.
absl::StatusOr<std::string> RunReadmeLines(std::string_view server) {
  const auto report = [](const absl::Status& failed) { return failed; };
#include "readme_lines.inc"
  if (!status.ok()) return status;
  return value;
}

TEST(ReadmeTest, LinesStoreAndReadTheGreeting) {
  auto server = testing::ServerProcess::Start({"--memory=16MiB"});
  ASSERT_TRUE(server.ok()) << server.status();
  const absl::StatusOr<std::string> value = RunReadmeLines((*server)->address());
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(*value, "hello, fabric");
}

TEST(ReadmeTest, LinesReportThatNobodyListens) {
  auto server = testing::ServerProcess::Start({"--memory=16MiB"});
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = (*server)->address();
  ASSERT_TRUE((*server)->Stop().ok());
  EXPECT_FALSE(RunReadmeLines(address).ok());
}

}  // namespace
}  // namespace verbena
