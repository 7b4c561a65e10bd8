#include "bench/measure/wire_counter.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace verbena::bench {
namespace {

class WireCounterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/wire_counter_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + "/class/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  std::string root_;
};

TEST_F(WireCounterTest, ReadsAnInterface) {
  Write("net/lo/statistics/tx_bytes", "12345\n");
  EXPECT_EQ(InterfaceBytes("lo", root_), 12345U);
  EXPECT_FALSE(InterfaceBytes("eth0", root_).has_value());
  EXPECT_FALSE(InterfaceBytes("", root_).has_value());
  EXPECT_FALSE(InterfaceBytes("../net/lo", root_).has_value());
}

TEST_F(WireCounterTest, AddsAllPortsOfADevice) {
  for (const char* port : {"1", "2"}) {
    Write(std::string("infiniband/mlx5_0/ports/") + port + "/counters/port_xmit_data", "100\n");
    Write(std::string("infiniband/mlx5_0/ports/") + port + "/counters/port_rcv_data", "10\n");
  }
  EXPECT_EQ(RdmaDeviceBytes("mlx5_0", root_), 880U);
  EXPECT_FALSE(RdmaDeviceBytes("rxe0", root_).has_value());
  Write("infiniband/rxe0/ports/1/counters/port_xmit_data", "none\n");
  EXPECT_FALSE(RdmaDeviceBytes("rxe0", root_).has_value());
}

}  // namespace
}  // namespace verbena::bench
