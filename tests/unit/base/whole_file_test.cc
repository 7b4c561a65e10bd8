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
