// What the doctor says of a server that can be reached, but not as it should, and of a software
// device that does not work. The server is a real one in this process, on the software device; what
// libibverbs and the kernel say of the way to it is made up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/doctor/checks.h"
#include "client/src/fabric.h"
#include "common/softverbs/softverbs.h"
#include "common/verbs/fault_verbs.h"
#include "server/server.h"
#include "tests/unit/cli/made_up_machine.h"

namespace verbena::cli::doctor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class DoctorServer : public ::testing::Test {
 protected:
  void SetUp() override {
    server::ServerConfig config;
    config.listen = *NetAddress::Parse("127.0.0.1:0");
    config.memory = 16 << 20;
    config.huge_pages = false;
    config.queues.workers = 1;
    config.fabrics = {{.api = &softverbs::SoftVerbs(), .required = true}};
    auto server = server::Server::Start(config);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    options_.server = server_->address();
    options_.connection.connect_timeout = std::chrono::seconds(60);
    options_.connection.operation_timeout = std::chrono::seconds(60);
    options_.connection.reconnect = false;
    port_.link_layer = IBV_LINK_LAYER_ETHERNET;
  }

  // All checks of the server, by their ids, with `api` for the client.
  std::map<std::string, Check> Look(verbs::VerbsApi& api) {
    Report report;
    const Context context = {
        .options = options_,
        .system = machine_.system(),
        .verbs = machine_.verbs(),
        .soft = softverbs::SoftVerbs(),
        .report = report,
        .devices = devices_,
        .answers = {{"vsoft0", DeviceAnswers{.attributes = {}, .ports = {{1, port_}}}}}};
    {
      const client::ScopedFabric scoped(api);
      CheckServer(context);
    }
    std::map<std::string, Check> checks;
    for (const Check& check : report.checks()) checks[check.id] = check;
    return checks;
  }
  std::map<std::string, Check> Look() {
    verbs::FaultVerbs api(softverbs::SoftVerbs());
    return Look(api);
  }

  std::unique_ptr<server::Server> server_;
  MadeUpMachine machine_;
  Options options_;
  std::vector<RdmaDevice> devices_;
  ibv_port_attr port_{};
};

TEST_F(DoctorServer, TheMtusOfBothEnds) {
  // The server says what its own device has.
  std::optional<Check> same;
  int different = 0;
  for (const ibv_mtu mtu : {IBV_MTU_256, IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048, IBV_MTU_4096}) {
    port_.active_mtu = mtu;
    auto checks = Look();
    const Check& check = checks["server_mtu"];
    if (check.status == Status::kOk) {
      EXPECT_THAT(check.finding, HasSubstr("bytes at both ends"));
      EXPECT_FALSE(same.has_value());
      same = check;
      continue;
    }
    ++different;
    EXPECT_EQ(check.status, Status::kWarn);
    EXPECT_THAT(check.finding, AllOf(HasSubstr("bytes here and "), HasSubstr("at the server")));
    EXPECT_THAT(check.remedy, HasSubstr("ip link set INTERFACE mtu"));
    ASSERT_EQ(check.figures.size(), 2U);
    EXPECT_NE(check.figures[0].second, check.figures[1].second);
    // The connection is tried all the same.
    EXPECT_EQ(checks["server_read"].status, Status::kOk) << checks["server_read"].finding;
  }
  EXPECT_TRUE(same.has_value());
  EXPECT_EQ(different, 4);
}

TEST_F(DoctorServer, APathThatIsNarrowerThanThePackets) {
  port_.active_mtu = IBV_MTU_4096;
  EXPECT_EQ(Look()["server_route"].status, Status::kOk) << "the kernel does not tell";
  machine_.system().path_mtu = 4200;
  Check check = Look()["server_route"];
  EXPECT_EQ(check.status, Status::kOk) << check.finding;
  EXPECT_THAT(check.finding, HasSubstr("IP packets of up to 4200 bytes"));
  machine_.system().path_mtu = 1500;
  check = Look()["server_route"];
  EXPECT_EQ(check.status, Status::kWarn);
  EXPECT_THAT(check.finding, AllOf(HasSubstr("from 127.0.0.1 over vsoft0/1"),
                                   HasSubstr("up to 1500 bytes, but packets of RDMA carry 4096")));
  EXPECT_THAT(check.remedy, HasSubstr("ip route change"));
  // TCP cuts to size, and InfiniBand's packets are not IP's.
  RdmaDevice tcp;
  tcp.name = "vsoft0";
  tcp.iwarp = true;
  devices_.push_back(std::move(tcp));
  EXPECT_EQ(Look()["server_route"].status, Status::kOk);
  devices_.clear();
  port_.link_layer = IBV_LINK_LAYER_INFINIBAND;
  EXPECT_EQ(Look()["server_route"].status, Status::kOk);
}

TEST_F(DoctorServer, ReadsThatTheServersProcessorAnswers) {
  EXPECT_EQ(Look()["server_read"].status, Status::kOk);
  options_.connection.one_sided_reads = false;
  const Check check = Look()["server_read"];
  EXPECT_EQ(check.status, Status::kWarn);
  EXPECT_THAT(check.finding, HasSubstr("21 of them were answered by the server's CPU"));
  EXPECT_THAT(check.remedy, HasSubstr("run this again"));
}

// Every request fails once, so that each step is the one that is told.
TEST_F(DoctorServer, EachRequestThatFails) {
  std::map<std::string, int> failed;
  for (uint64_t n = 1;; ++n) {
    verbs::FaultVerbs api(softverbs::SoftVerbs());
    api.InterceptPosts();
    api.FailNamed("ibv_post_send", n, EIO);
    const auto checks = Look(api);
    if (!api.fired()) break;
    ASSERT_LT(n, 500U);
    for (const auto& [id, check] : checks) {
      if (check.status != Status::kFail) continue;
      ++failed[id];
      EXPECT_THAT(check.finding, HasSubstr("ibv_post_send")) << id;
      EXPECT_FALSE(check.remedy.empty()) << id;
    }
  }
  EXPECT_GE(failed["server_connect"], 1);
  EXPECT_GE(failed["server_send"], 20);
  EXPECT_GE(failed["server_read"], 20);
}

TEST_F(DoctorServer, ASoftwareDeviceThatDoesNotWork) {
  const auto look = [&](verbs::VerbsApi& soft, const char* fabric) {
    options_.connection.fabric = fabric;
    Report report;
    CheckSoftwareDevice({.options = options_,
                         .system = machine_.system(),
                         .verbs = machine_.verbs(),
                         .soft = soft,
                         .report = report,
                         .devices = {},
                         .answers = {}});
    EXPECT_EQ(report.checks().size(), 1U);
    return report.checks().front();
  };
  MadeUpVerbs none;
  for (const char* fabric : {"auto", "soft"}) {
    const Check check = look(none, fabric);
    EXPECT_EQ(check.id, "software_device");
    EXPECT_EQ(check.status, Status::kFail);
    EXPECT_THAT(check.finding, HasSubstr("cannot work here: it shows no device"));
    EXPECT_THAT(check.remedy, HasSubstr("memfd_create"));
  }
  // Where nobody wants it, it is no failure.
  EXPECT_EQ(look(none, "verbs").status, Status::kWarn);
  verbs::FaultVerbs failing(softverbs::SoftVerbs());
  failing.FailNamed("ibv_get_device_list", 1, ENOMEM);
  const Check check = look(failing, "soft");
  EXPECT_EQ(check.status, Status::kFail);
  EXPECT_THAT(check.finding, HasSubstr("ibv_get_device_list"));
}

}  // namespace
}  // namespace verbena::cli::doctor
