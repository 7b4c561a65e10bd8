#include "common/verbs/device_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace verbena::verbs {
namespace {

class DeviceFiles : public ::testing::Test {
 protected:
  DeviceFiles() {
    std::string pattern = ::testing::TempDir() + "device_files.XXXXXX";
    root_ = mkdtemp(pattern.data());
    chmod(root_.c_str(), 0755);
    std::filesystem::create_directories(Sys() + "/class/infiniband_verbs");
    std::filesystem::create_directories(Dev() + "/infiniband");
  }
  ~DeviceFiles() override { std::filesystem::remove_all(root_); }

  std::string Sys() const { return root_ + "/sys"; }
  std::string Dev() const { return root_ + "/dev"; }
  void AddDevice(const std::string& file, const std::string& name) const {
    const std::string folder = Sys() + "/class/infiniband_verbs/" + file;
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/ibdev") << name << "\n";
  }
  std::string AddFile(const std::string& file) const {
    const std::string path = Dev() + "/infiniband/" + file;
    std::ofstream(path) << "x";
    return path;
  }
  absl::Status Check() const { return CheckDeviceFiles(Sys(), Dev()); }

 private:
  std::string root_;
};

TEST_F(DeviceFiles, NothingIsNeededWithoutDevices) { EXPECT_TRUE(Check().ok()); }

TEST_F(DeviceFiles, AllOpen) {
  AddDevice("uverbs0", "mlx5_0");
  AddFile("uverbs0");
  AddFile("rdma_cm");
  EXPECT_TRUE(Check().ok()) << Check();
}

TEST_F(DeviceFiles, AMissingFileIsNamed) {
  AddDevice("uverbs0", "mlx5_0");
  AddDevice("uverbs1", "mlx5_1");
  AddFile("uverbs0");
  AddFile("rdma_cm");
  const absl::Status status = Check();
  EXPECT_TRUE(absl::IsNotFound(status));
  const std::string text(status.message());
  EXPECT_NE(text.find("/infiniband/uverbs1 (device mlx5_1)"), std::string::npos) << text;
  EXPECT_NE(text.find("--device"), std::string::npos) << text;
}

TEST_F(DeviceFiles, AFileOfADeviceThatHasGone) {
  AddDevice("uverbs0", "mlx5_0");
  std::filesystem::create_directories(Dev() + "/infiniband/uverbs0");  // opening it fails: EISDIR
  AddFile("rdma_cm");
  const absl::Status status = Check();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_NE(status.message().find("/infiniband/uverbs0 (device mlx5_0)"), absl::string_view::npos)
      << status;
}

TEST_F(DeviceFiles, ADeviceThatTheLibraryHidesIsNamed) {
  AddDevice("uverbs0", "mlx5_0");
  AddDevice("uverbs1", "mlx5_1");
  EXPECT_TRUE(CheckProviders({"mlx5_1", "mlx5_0"}, Sys()).ok());
  const absl::Status status = CheckProviders({"mlx5_0"}, Sys());
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_NE(status.message().find("no provider for mlx5_1,"), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("ibverbs-providers"), absl::string_view::npos) << status;
  EXPECT_TRUE(CheckProviders({}, Sys() + "/nowhere").ok());
}

// Root may open everything, so it is somebody else for the while.
class NotRoot {
 public:
  NotRoot() : root_(geteuid() == 0 && seteuid(kNobody) == 0) {}
  ~NotRoot() {
    if (root_ && seteuid(0) != 0) ADD_FAILURE() << "cannot be root again";
  }

 private:
  static constexpr uid_t kNobody = 65534;
  const bool root_;
};

TEST_F(DeviceFiles, AFileWithoutPermissionIsNamed) {
  AddDevice("uverbs0", "mlx5_0");
  AddFile("uverbs0");
  chmod((Dev() + "/infiniband/uverbs0").c_str(), 0666);
  chmod(AddFile("rdma_cm").c_str(), 0400);
  const absl::Status status = [this] {
    const NotRoot other;
    return Check();
  }();
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  const std::string text(status.message());
  EXPECT_NE(text.find("/infiniband/rdma_cm"), std::string::npos) << text;
  EXPECT_NE(text.find("0400"), std::string::npos) << text;
  EXPECT_NE(text.find("udev"), std::string::npos) << text;
}

}  // namespace
}  // namespace verbena::verbs
