#include "common/verbs/port_info.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

#include "common/verbs/forwarding_verbs.h"
#include "tests/unit/verbs/fake_verbs.h"

namespace verbena::verbs {
namespace {

ibv_gid Gid(const char* text) {
  ibv_gid gid{};
  EXPECT_EQ(inet_pton(AF_INET6, text, gid.raw), 1);
  return gid;
}

// A device with this table of GIDs; an empty text is an empty entry.
class TableOfGids : public ForwardingVerbs {
 public:
  struct Entry {
    std::string gid;
    uint32_t type;
  };
  TableOfGids(VerbsApi& base, std::vector<Entry> entries)
      : ForwardingVerbs(base), entries_(std::move(entries)) {}
  int QueryGidEx(ibv_context*, uint32_t, uint32_t index, ibv_gid_entry* entry) override {
    ++looks;
    if (index >= entries_.size() || entries_[index].gid.empty()) return ENODATA;
    *entry = {};
    entry->gid = Gid(entries_[index].gid.c_str());
    entry->gid_type = entries_[index].type;
    return 0;
  }

  int looks = 0;

 private:
  const std::vector<Entry> entries_;
};

TEST(PortInfo, SpeedIsThatOfAllLanes) {
  EXPECT_EQ(PortGbps(1, 8), 10);      // what Soft-RoCE says
  EXPECT_EQ(PortGbps(2, 32), 100);    // EDR x4
  EXPECT_EQ(PortGbps(2, 64), 200);    // HDR x4
  EXPECT_EQ(PortGbps(16, 128), 200);  // NDR x2
  EXPECT_EQ(PortGbps(1, 1), 2.5);
  EXPECT_EQ(PortGbps(8, 16), 168);
  EXPECT_EQ(PortGbps(3, 8), 0);
  EXPECT_EQ(PortGbps(1, 3), 0);
}

TEST(PortInfo, GidsAreWrittenAsIpv6Addresses) {
  for (const char* text : {"fe80::1", "::ffff:192.168.77.1", "fd77::1", "::"}) {
    EXPECT_EQ(FormatGid(Gid(text)), text);
  }
}

TEST(PortInfo, FindsTheGidInItsTable) {
  FakeVerbs fake;
  TableOfGids api(fake, {{"fe80::1", IBV_GID_TYPE_ROCE_V2},
                         {"", 0},
                         {"::ffff:10.0.0.1", IBV_GID_TYPE_ROCE_V1},
                         {"::ffff:10.0.0.1", IBV_GID_TYPE_ROCE_V2},
                         {"::ffff:10.0.0.2", IBV_GID_TYPE_ROCE_V1}});
  const absl::StatusOr<Device> device = Device::Open(api);
  ASSERT_TRUE(device.ok());
  PortInfo port;
  port.port = 1;
  port.gids = 5;
  GidInfo found = DescribeGid(device->view(), port, Gid("::ffff:10.0.0.1"));
  EXPECT_EQ(found.index, 3);
  EXPECT_EQ(found.type, "RoCE v2");
  EXPECT_EQ(ToString(found), "GID ::ffff:10.0.0.1 (index 3, RoCE v2)");
  EXPECT_EQ(api.looks, 4) << "nothing better can follow";
  found = DescribeGid(device->view(), port, Gid("::ffff:10.0.0.2"));
  EXPECT_EQ(found.index, 4);
  EXPECT_EQ(found.type, "RoCE v1");
  found = DescribeGid(device->view(), port, Gid("::ffff:10.0.0.3"));
  EXPECT_EQ(found.index, -1);
  EXPECT_EQ(ToString(found), "GID ::ffff:10.0.0.3");
  EXPECT_EQ(ToString(DescribeGid(device->view(), port, ibv_gid{})), "no GID");
}

TEST(PortInfo, SaysLidsOnInfiniBandOnly) {
  PortInfo port = {.port = 1, .active = true, .state = "active", .link_layer = "InfiniBand"};
  port.gbps = 100;
  port.mtu = 4096;
  port.lid = 17;
  port.sm_lid = 1;
  EXPECT_EQ(ToString("mlx5_0", port),
            "mlx5_0, port 1 (active), link layer InfiniBand, 100 Gb/s, MTU 4096, LID 17, SM LID 1");
  port.lid = 0;
  EXPECT_EQ(ToString("mlx5_0", port).find("LID"), std::string::npos);
  // A code that is younger than the program.
  port.gbps = PortGbps(2, 0);
  EXPECT_EQ(ToString("mlx5_0", port),
            "mlx5_0, port 1 (active), link layer InfiniBand, unknown speed, MTU 4096");
}

}  // namespace
}  // namespace verbena::verbs
