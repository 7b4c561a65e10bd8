#include "common/base/whole_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "common/base/standard_descriptors.h"
#include "common/base/unique_fd.h"

namespace verbena {
namespace {

using absl::StatusCode;

class WholeFileTest : public ::testing::Test {
 protected:
  WholeFileTest() {
    std::string pattern = ::testing::TempDir() + "/whole_file_XXXXXX";
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  ~WholeFileTest() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  static std::string Contents(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  size_t Files() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  std::string folder_;
};

TEST_F(WholeFileTest, WritesAndReplaces) {
  ASSERT_TRUE(WriteWholeFile(Path("a"), "first, longer\n").ok());
  ASSERT_TRUE(WriteWholeFile(Path("a"), "second\n").ok());
  EXPECT_EQ(Contents(Path("a")), "second\n");
  EXPECT_EQ(Files(), 1u);
}

TEST_F(WholeFileTest, CheckChangesNothing) {
  ASSERT_TRUE(WriteWholeFile(Path("a"), "kept").ok());
  EXPECT_TRUE(CheckWholeFile(Path("a")).ok());
  EXPECT_TRUE(CheckWholeFile(Path("new")).ok());
  EXPECT_EQ(Contents(Path("a")), "kept");
  EXPECT_EQ(Files(), 1u);
}

TEST_F(WholeFileTest, SaysWhyItCannot) {
  const std::string nowhere = "cannot write " + Path("no/file") + ": No such file or directory";
  EXPECT_EQ(CheckWholeFile(Path("no/file")).message(), nowhere);
  const absl::Status written = WriteWholeFile(Path("no/file"), "x");
  EXPECT_EQ(written.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(written.message(), nowhere);
  const std::string folder = "cannot write " + folder_ + ": Is a directory";
  EXPECT_EQ(CheckWholeFile(folder_).message(), folder);
  EXPECT_EQ(WriteWholeFile(folder_, "x").message(), folder);
  EXPECT_EQ(Files(), 0u);
}

TEST_F(WholeFileTest, APipeStaysAndIsWrittenTo) {
  const std::string pipe = Path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const absl::Status unread = WriteWholeFile(pipe, "lost");
  EXPECT_EQ(unread.message(),
            "cannot write " + pipe + ": it is a pipe that nobody reads, or a socket");
  const UniqueFd reader(open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_TRUE(reader.valid());
  EXPECT_TRUE(CheckWholeFile(pipe).ok());
  char end = 0;
  EXPECT_EQ(read(reader.get(), &end, 1), 0) << "nobody has written so far";
  ASSERT_TRUE(WriteWholeFile(pipe, "127.0.0.1:7400\n").ok());
  std::array<char, 64> got{};
  EXPECT_EQ(read(reader.get(), got.data(), got.size()), 15);
  EXPECT_STREQ(got.data(), "127.0.0.1:7400\n");
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_EQ(Files(), 1u);
}

// By way of a link, so that a fault here replaces the link and not the machine's device.
TEST_F(WholeFileTest, ADeviceStaysAndItsErrorIsTold) {
  const std::string full = Path("full");
  ASSERT_EQ(symlink("/dev/full", full.c_str()), 0);
  EXPECT_EQ(WriteWholeFile(full, "x").message(),
            "cannot write " + full + ": No space left on device");
  EXPECT_TRUE(std::filesystem::is_symlink(full));
  EXPECT_TRUE(std::filesystem::is_character_file(full));
  EXPECT_EQ(Files(), 1u);
}

TEST_F(WholeFileTest, ALinkStaysAndItsFileIsReplaced) {
  ASSERT_TRUE(WriteWholeFile(Path("target"), "first").ok());
  ASSERT_EQ(symlink("target", Path("one").c_str()), 0);
  ASSERT_EQ(symlink(Path("one").c_str(), Path("two").c_str()), 0);
  ASSERT_EQ(symlink("later", Path("ahead").c_str()), 0);
  EXPECT_TRUE(CheckWholeFile(Path("two")).ok());
  ASSERT_TRUE(WriteWholeFile(Path("two"), "second").ok());
  ASSERT_TRUE(WriteWholeFile(Path("ahead"), "third").ok());
  EXPECT_EQ(Contents(Path("target")), "second");
  EXPECT_EQ(Contents(Path("later")), "third");
  for (const char* link : {"one", "two", "ahead"}) {
    EXPECT_TRUE(std::filesystem::is_symlink(Path(link))) << link;
  }
  EXPECT_EQ(Files(), 5u);
  // A link that leads to itself is an error, and stays too.
  ASSERT_EQ(symlink("round", Path("round").c_str()), 0);
  EXPECT_FALSE(CheckWholeFile(Path("round")).ok());
  EXPECT_FALSE(WriteWholeFile(Path("round"), "x").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(Path("round")));
}

// As with `program --port_file=/dev/stdout >log`, where /dev/stdout is a link to a descriptor.
TEST_F(WholeFileTest, ADescriptorByItsNameIsWrittenToWhereItStands) {
  const UniqueFd log(open(Path("log").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_TRUE(log.valid());
  const std::string name = "/dev/fd/" + std::to_string(log.get());
  ASSERT_EQ(symlink(("/proc/self/fd/" + std::to_string(log.get())).c_str(), Path("link").c_str()),
            0);
  ASSERT_EQ(write(log.get(), "1,", 2), 2);
  for (const std::string& path : {name, Path("link")}) {
    EXPECT_TRUE(CheckWholeFile(path).ok()) << path;
    ASSERT_TRUE(WriteWholeFile(path, "2,").ok()) << path;
    ASSERT_EQ(write(log.get(), "3,", 2), 2);
  }
  EXPECT_EQ(Contents(Path("log")), "1,2,3,2,3,");
  EXPECT_TRUE(std::filesystem::is_symlink(Path("link")));
  EXPECT_EQ(Files(), 2u);
  const UniqueFd reads(open(Path("log").c_str(), O_RDONLY | O_CLOEXEC));
  const std::string wrong = "/dev/fd/" + std::to_string(reads.get());
  EXPECT_FALSE(CheckWholeFile(wrong).ok());
  EXPECT_FALSE(WriteWholeFile(wrong, "x").ok());
}

// As with `docker exec`: a program's words go to where the first process of the container writes.
TEST_F(WholeFileTest, ADescriptorOfAnotherProcessIsWrittenTo) {
  const UniqueFd log(open(Path("log").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_TRUE(log.valid());
  ASSERT_EQ(write(log.get(), "1,", 2), 2);
  const pid_t other = fork();
  if (other == 0) {
    pause();
    _exit(0);
  }
  ASSERT_GT(other, 0);
  const std::string path = "/proc/" + std::to_string(other) + "/fd/" + std::to_string(log.get());
  EXPECT_TRUE(CheckWholeFile(path).ok());
  EXPECT_TRUE(WriteWholeFile(path, "2,").ok());
  kill(other, SIGKILL);
  EXPECT_EQ(waitpid(other, nullptr, 0), other);
  EXPECT_EQ(Contents(Path("log")), "1,2,");
  EXPECT_EQ(Files(), 1u);
  // One of this process's threads has the process's descriptors.
  EXPECT_TRUE(WriteWholeFile("/proc/thread-self/fd/" + std::to_string(log.get()), "3,").ok());
  EXPECT_EQ(Contents(Path("log")), "1,3,");
}

TEST(StandardDescriptors, ClosedOnesAreTakenByOnesThatRefuse) {
  EXPECT_EXIT(
      {
        close(STDIN_FILENO);
        close(STDOUT_FILENO);
        HoldStandardDescriptors();
        char byte = 0;
        const bool refused = read(STDIN_FILENO, &byte, 1) < 0 && write(STDOUT_FILENO, "x", 1) < 0;
        const UniqueFd next(open("/dev/null", O_RDONLY | O_CLOEXEC));
        _exit(refused && next.get() > STDERR_FILENO ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace verbena
