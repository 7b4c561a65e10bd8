#include "common/softverbs/port.h"

#include <endian.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "common/softverbs/switches.h"

namespace verbena::softverbs {
namespace {

class Port : public ::testing::Test {
 protected:
  ~Port() override { SetSwitches(before_); }
  static void SetInfiniBand(bool infiniband) {
    Switches switches = CurrentSwitches();
    switches.infiniband = infiniband;
    SetSwitches(switches);
  }

 private:
  const Switches before_ = CurrentSwitches();
};

bool Same(const ibv_gid& a, const ibv_gid& b) { return std::memcmp(&a, &b, sizeof(a)) == 0; }

TEST_F(Port, InfiniBandHasLidsAndOneGid) {
  SetInfiniBand(true);
  ibv_port_attr port;
  FillPortAttr(&port);
  EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_INFINIBAND);
  EXPECT_NE(port.lid, 0);
  EXPECT_NE(port.sm_lid, 0);
  EXPECT_EQ(port.gid_tbl_len, 1);
  ibv_gid_entry entry;
  ASSERT_TRUE(FillGidEntry(1, 0, &entry));
  EXPECT_EQ(entry.gid_type, IBV_GID_TYPE_IB);
  // The default subnet prefix.
  EXPECT_EQ(be64toh(entry.gid.global.subnet_prefix), 0xfe80000000000000u);
  EXPECT_NE(entry.gid.global.interface_id, 0u);
  EXPECT_FALSE(FillGidEntry(1, 1, &entry));
  EXPECT_FALSE(FillGidEntry(2, 0, &entry));
  EXPECT_TRUE(Same(GidOf(*NetAddress::Parse("127.0.0.1:1")), entry.gid));
  EXPECT_TRUE(Same(GidOf(*NetAddress::Parse("[::1]:1")), entry.gid));
}

TEST_F(Port, InfiniBandPathsAreLids) {
  SetInfiniBand(true);
  ibv_port_attr port;
  FillPortAttr(&port);
  ibv_ah_attr path = PathTo(ibv_gid{}, 0x68);
  EXPECT_EQ(path.is_global, 0);
  EXPECT_EQ(path.dlid, port.lid);
  EXPECT_TRUE(IsPath(path));
  path.is_global = 1;
  EXPECT_FALSE(IsPath(path));
  path.is_global = 0;
  ++path.dlid;
  EXPECT_FALSE(IsPath(path));
}

TEST_F(Port, EthernetPathsAreAddresses) {
  SetInfiniBand(false);
  ibv_port_attr port;
  FillPortAttr(&port);
  EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(port.lid, 0);
  const ibv_gid gid = GidOf(*NetAddress::Parse("127.0.0.1:1"));
  EXPECT_EQ(gid.raw[12], 127);
  const ibv_ah_attr path = PathTo(gid, 0x68);
  EXPECT_EQ(path.is_global, 1);
  EXPECT_TRUE(Same(path.grh.dgid, gid));
  EXPECT_EQ(path.grh.traffic_class, 0x68);
}

TEST_F(Port, KindOfDeviceComesFromTheEnvironment) {
  struct Choice {
    const char* name;
    const char* set;
    const char* unset;
    bool Switches::*member;
  };
  for (const Choice& choice :
       {Choice{"VERBENA_SOFT_LINK_LAYER", "infiniband", "ethernet", &Switches::infiniband},
        Choice{"VERBENA_SOFT_TRANSPORT", "iwarp", "infiniband", &Switches::iwarp}}) {
    const char* const before = std::getenv(choice.name);
    const std::string kept = before == nullptr ? "" : before;
    setenv(choice.name, choice.set, 1);
    EXPECT_TRUE(SwitchesFromEnvironment().*choice.member) << choice.name;
    for (const char* other : {choice.unset, "", "token-ring"}) {
      setenv(choice.name, other, 1);
      EXPECT_FALSE(SwitchesFromEnvironment().*choice.member) << choice.name << "=" << other;
    }
    setenv(choice.name, kept.c_str(), 1);
  }
}

}  // namespace
}  // namespace verbena::softverbs
