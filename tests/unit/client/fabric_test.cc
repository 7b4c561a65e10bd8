// When fabric "auto" may take the software device: only where no RDMA device leads to the server,
// never where that cannot be told. The table of rdma-core is made up.
#include "client/src/fabric.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <utility>

#include "common/softverbs/softverbs.h"
#include "common/verbs/fault_verbs.h"

namespace verbena::client {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::chrono::milliseconds kTime{1000};

// An address of documentation, so of no machine.
NetAddress Elsewhere() { return *NetAddress::Parse("192.0.2.1:7400"); }

// A device that the software one plays, and whose route ends as a test says.
class Routes : public verbs::FaultVerbs {
 public:
  Routes() : FaultVerbs(softverbs::SoftVerbs()) {}
  int CmResolveAddr(rdma_cm_id* id, sockaddr* source, sockaddr* /*target*/,
                    int timeout_ms) override {
    if (error != 0) {
      errno = error;
      return -1;
    }
    // To this machine, over the device that is there.
    NetAddress here = *NetAddress::Parse("127.0.0.1:7400");
    return FaultVerbs::CmResolveAddr(id, source, here.addr(), timeout_ms);
  }
  int error = 0;
};

TEST(WhyNoRdma, NothingWhereTheRouteHasADevice) {
  Routes api;
  const auto why = WhyNoRdma(api, Elsewhere(), kTime);
  ASSERT_TRUE(why.ok()) << why.status();
  EXPECT_THAT(*why, IsEmpty());
}

TEST(WhyNoRdma, ALoopbackAddressIsOnNone) {
  Routes api;
  const auto why = WhyNoRdma(api, *NetAddress::Parse("127.0.0.1:7400"), kTime);
  ASSERT_TRUE(why.ok()) << why.status();
  EXPECT_THAT(*why, HasSubstr("a loopback address"));
  EXPECT_EQ(api.calls(), 0U) << "no device is asked";
}

TEST(WhyNoRdma, NoDeviceIsAReason) {
  for (const int error : {ENODEV, ENETUNREACH, EHOSTUNREACH, EADDRNOTAVAIL}) {
    Routes api;
    api.error = error;
    const auto why = WhyNoRdma(api, Elsewhere(), kTime);
    ASSERT_TRUE(why.ok()) << why.status();
    EXPECT_THAT(*why, HasSubstr("rdma_resolve_addr")) << error;
  }
  Routes api;
  api.FailNamed("ibv_get_device_list", 1, ENOSYS);
  const auto why = WhyNoRdma(api, Elsewhere(), kTime);
  ASSERT_TRUE(why.ok()) << why.status();
  EXPECT_EQ(*why, "this machine has no RDMA device");
}

TEST(WhyNoRdma, ADeviceThatCannotBeUsedIsAnError) {
  const std::pair<int, const char*> errors[] = {{EACCES, "Permission denied"},
                                                {EPERM, "not permitted"},
                                                {EMFILE, "Too many open files"},
                                                {ENOMEM, "Cannot allocate"},
                                                {ETIMEDOUT, "timed out"}};
  for (const char* call : {"ibv_get_device_list", "rdma_create_event_channel", "rdma_create_id",
                           "rdma_resolve_addr"}) {
    for (const auto& [error, text] : errors) {
      Routes api;
      if (std::string(call) == "rdma_resolve_addr") {
        api.error = error;
      } else {
        api.FailNamed(call, 1, error);
      }
      const auto why = WhyNoRdma(api, Elsewhere(), kTime);
      ASSERT_FALSE(why.ok()) << call << ": " << text << ": " << *why;
      EXPECT_THAT(std::string(why.status().message()), HasSubstr("cannot tell whether"));
      EXPECT_THAT(std::string(why.status().message()), HasSubstr(call));
      EXPECT_THAT(std::string(why.status().message()), HasSubstr(text));
    }
  }
}

TEST(WhyNoRdma, NoAnswerInTimeIsAnError) {
  class Silent : public Routes {
   public:
    int CmResolveAddr(rdma_cm_id* /*id*/, sockaddr* /*source*/, sockaddr* /*target*/,
                      int /*timeout_ms*/) override {
      return 0;
    }
  };
  Silent api;
  const auto why = WhyNoRdma(api, Elsewhere(), std::chrono::milliseconds(1));
  ASSERT_FALSE(why.ok()) << *why;
  EXPECT_THAT(std::string(why.status().message()),
              HasSubstr("no route over RDMA was found in 1 ms"));
}

}  // namespace
}  // namespace verbena::client
