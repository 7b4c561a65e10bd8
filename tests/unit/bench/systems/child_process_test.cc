#include "bench/systems/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

namespace verbena::bench {
namespace {

constexpr std::chrono::seconds kPatience{30};

TEST(ChildProcess, SpeaksInLines) {
  auto child =
      ChildProcess::Start("/bin/sh", {"-c", "echo one; printf two; echo; exec sleep 100"}, "");
  ASSERT_TRUE(child.ok()) << child.status();
  EXPECT_EQ(child->ReadLine(kPatience).value(), "one");
  EXPECT_EQ(child->ReadLine(kPatience).value(), "two");
  EXPECT_EQ(child->ReadLine(std::chrono::milliseconds(10)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(child->Ended());
  const pid_t pid = child->pid();
  child->Stop();
  EXPECT_TRUE(child->Ended());
  EXPECT_EQ(kill(pid, 0), -1);
  EXPECT_EQ(errno, ESRCH);
}

TEST(ChildProcess, EndIsNoticed) {
  auto child = ChildProcess::Start("/bin/true", {}, "");
  ASSERT_TRUE(child.ok()) << child.status();
  EXPECT_EQ(child->ReadLine(kPatience).status().code(), absl::StatusCode::kUnavailable);
}

TEST(ChildProcess, ErrorsGoToTheLog) {
  const auto folder = TemporaryFolder::Create();
  ASSERT_TRUE(folder.ok());
  auto child =
      ChildProcess::Start("/bin/sh", {"-c", "echo trouble >&2; echo done"}, folder->File("log"));
  ASSERT_TRUE(child.ok()) << child.status();
  EXPECT_EQ(child->ReadLine(kPatience).value(), "done");
  std::ifstream log(folder->File("log"));
  std::string line;
  std::getline(log, line);
  EXPECT_EQ(line, "trouble");
}

TEST(FindProgram, LooksInThePath) {
  EXPECT_THAT(FindProgram("sh"), ::testing::EndsWith("/sh"));
  EXPECT_EQ(FindProgram("/bin/sh"), "/bin/sh");
  EXPECT_EQ(FindProgram("/nonexistent/sh"), "");
  EXPECT_EQ(FindProgram("no-program-has-this-name"), "");
}

TEST(TemporaryFolder, IsRemoved) {
  std::string path;
  {
    const auto folder = TemporaryFolder::Create();
    ASSERT_TRUE(folder.ok());
    path = folder->path();
    std::ofstream(folder->File("x")) << "y";
    EXPECT_TRUE(std::filesystem::exists(folder->File("x")));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace verbena::bench
