// Single checks: links, GIDs, MTUs, limits, congestion settings, counters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cli/doctor/needs.h"
#include "client/cli/doctor/rdma_devices.h"
#include "common/base/sizes.h"
#include "server/net/queue_plan.h"
#include "tests/unit/cli/made_up_machine.h"

namespace verbena::cli::doctor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class DoctorChecks : public ::testing::Test {
 protected:
  void SetMemoryLock(const std::string& bytes, bool capable = false) {
    machine_.File("/proc/self/limits", "Max locked memory         " + bytes + " " + bytes +
                                           " bytes\nMax open files 1024 4096 files\n");
    machine_.File("/proc/self/status",
                  capable ? "CapEff:\t0000000000004000\n" : "CapEff:\t0000000000000000\n");
  }

  MadeUpMachine machine_;
};

constexpr char kPort[] = "/sys/class/infiniband/mlx5_0/ports/1";

TEST_F(DoctorChecks, NoLink) {
  machine_.AddMlx5();
  machine_.File(std::string(kPort) + "/state", "1: DOWN\n");
  machine_.File(std::string(kPort) + "/phys_state", "3: Disabled\n");
  Check check = machine_.Find("link", "mlx5_0/1");
  EXPECT_EQ(check.status, Status::kFail);
  EXPECT_THAT(check.finding, AllOf(HasSubstr("DOWN"), HasSubstr("Disabled")));
  EXPECT_THAT(check.remedy, HasSubstr("ip link set ens1 up"));
  // A port without a cable, beside one that works, is no failure.
  machine_.AddRxe();
  EXPECT_EQ(machine_.Find("link", "mlx5_0/1").status, Status::kWarn);
}

TEST_F(DoctorChecks, NoAddress) {
  machine_.AddMlx5();
  machine_.system().addresses.clear();
  const Check check = machine_.Find("address", "mlx5_0/1");
  EXPECT_EQ(check.status, Status::kWarn);
  EXPECT_THAT(check.remedy, HasSubstr("ip address add ADDRESS/PREFIX dev ens1"));
}

TEST_F(DoctorChecks, GidsOfAddresses) {
  machine_.AddMlx5();
  EXPECT_THAT(machine_.Find("gid", "mlx5_0/1").finding, HasSubstr("10.0.0.1 at index 1"));
  // One of two addresses has an entry.
  machine_.Address("ens1", "2001:db8::1");
  Check check = machine_.Find("gid", "mlx5_0/1");
  EXPECT_EQ(check.status, Status::kWarn);
  EXPECT_THAT(check.finding, HasSubstr("no RoCE v2 entry for 2001:db8::1"));
  machine_.Remove(std::string(kPort) + "/gids/1");
  check = machine_.Find("gid", "mlx5_0/1");
  EXPECT_EQ(check.status, Status::kFail);
  EXPECT_THAT(check.finding, HasSubstr("10.0.0.1, 2001:db8::1"));
  EXPECT_THAT(check.remedy, HasSubstr("ip link set ens1 down"));
}

TEST_F(DoctorChecks, GidOfTheFirstVersionOnly) {
  machine_.AddMlx5();
  machine_.File(std::string(kPort) + "/gid_attrs/types/1", "IB/RoCE v1\n");
  const Check check = machine_.Find("gid", "mlx5_0/1");
  EXPECT_EQ(check.status, Status::kFail);
  EXPECT_THAT(check.finding, HasSubstr("10.0.0.1 has one for RoCE v1 only"));
}

TEST_F(DoctorChecks, GidText) {
  const auto four = NetAddress::Parse("192.168.77.1:0");
  const auto six = NetAddress::Parse("[fd77::1]:0");
  ASSERT_TRUE(four.ok() && six.ok());
  EXPECT_EQ(GidOfAddress(*four), "0000:0000:0000:0000:0000:ffff:c0a8:4d01");
  EXPECT_EQ(GidOfAddress(*six), "fd77:0000:0000:0000:0000:0000:0000:0001");
}

struct MtuCase {
  int interface;
  ibv_mtu active;
  Status status;
  const char* says;
};

TEST_F(DoctorChecks, Mtu) {
  machine_.AddMlx5();
  for (const MtuCase& c : {MtuCase{1500, IBV_MTU_1024, Status::kOk, "as usual for MTU 1500"},
                           MtuCase{4200, IBV_MTU_4096, Status::kOk, "carry 4096 bytes"},
                           MtuCase{9000, IBV_MTU_4096, Status::kOk, "carry 4096 bytes"},
                           MtuCase{9000, IBV_MTU_1024, Status::kWarn, "has not followed"},
                           MtuCase{4096, IBV_MTU_2048, Status::kWarn, "not large enough"},
                           // Room for 4096 bytes, but not with all headers.
                           MtuCase{4180, IBV_MTU_2048, Status::kWarn, "not large enough"},
                           MtuCase{4192, IBV_MTU_2048, Status::kWarn, "has not followed"},
                           MtuCase{1110, IBV_MTU_512, Status::kWarn, "small packets"},
                           MtuCase{1000, IBV_MTU_512, Status::kWarn, "small packets"},
                           MtuCase{1000, IBV_MTU_1024, Status::kFail, "do not fit"},
                           MtuCase{300, IBV_MTU_256, Status::kFail, "do not fit"}}) {
    SCOPED_TRACE(absl::StrCat(c.interface, " ", c.active));
    machine_.File("/sys/class/net/ens1/mtu", absl::StrCat(c.interface, "\n"));
    machine_.verbs().at("mlx5_0").port.active_mtu = c.active;
    const Check check = machine_.Find("mtu", "mlx5_0/1");
    EXPECT_EQ(check.status, c.status) << check.finding;
    EXPECT_THAT(check.finding, HasSubstr(c.says));
    EXPECT_EQ(check.remedy.empty(), c.status == Status::kOk);
  }
}

TEST_F(DoctorChecks, MtuOfIwarp) {
  machine_.AddSiw();
  EXPECT_EQ(machine_.Find("mtu", "siw0/1").status, Status::kOk);
  machine_.File("/sys/class/net/e0/mtu", "1000\n");
  EXPECT_EQ(machine_.Find("mtu", "siw0/1").status, Status::kWarn);
}

TEST_F(DoctorChecks, LockedMemory) {
  machine_.AddRxe();
  EXPECT_EQ(machine_.Find("memory_lock").status, Status::kOk);
  SetMemoryLock("65536");
  Check check = machine_.Find("memory_lock");
  EXPECT_EQ(check.status, Status::kFail);
  EXPECT_THAT(check.finding, AllOf(HasSubstr("64KiB"), HasSubstr("1GiB")));
  EXPECT_THAT(check.remedy,
              AllOf(HasSubstr("ulimit -l unlimited"), HasSubstr("--ulimit memlock=-1"),
                    HasSubstr("LimitMEMLOCK=infinity")));
  // Enough for clients.
  SetMemoryLock("8388608");
  EXPECT_EQ(machine_.Find("memory_lock").status, Status::kFail);
  machine_.options().memory = 0;
  EXPECT_EQ(machine_.Find("memory_lock").status, Status::kOk);
  machine_.options().memory = kGiB;
  SetMemoryLock("2147483648");
  EXPECT_EQ(machine_.Find("memory_lock").status, Status::kOk);
}

TEST_F(DoctorChecks, LockedMemoryOfRoot) {
  machine_.AddRxe();
  SetMemoryLock("65536", /*capable=*/true);
  Check check = machine_.Find("memory_lock");
  EXPECT_EQ(check.status, Status::kOk);
  EXPECT_THAT(check.finding, HasSubstr("CAP_IPC_LOCK"));
  // siw asks nobody's capabilities.
  machine_.AddSiw();
  check = machine_.Find("memory_lock");
  EXPECT_EQ(check.status, Status::kWarn);
  EXPECT_THAT(check.finding, HasSubstr("the driver of siw0 holds even root"));
}

// A device locks the region and the buffers of every worker, and the next one all of it again.
TEST_F(DoctorChecks, LockedMemoryOfAllWorkersAndDevices) {
  machine_.AddRxe();
  machine_.AddSiw();
  machine_.options().workers = 4;
  const uint64_t rxe = machine_.options().memory + 4 * kMessageMemory;
  const uint64_t siw = rxe + 4 * kStagingMemory;
  SetMemoryLock(absl::StrCat(rxe + siw));
  Check check = machine_.Find("memory_lock");
  EXPECT_EQ(check.status, Status::kOk);
  EXPECT_THAT(check.finding,
              AllOf(HasSubstr("for rxe0 (region 1GiB, message buffers for 4 workers 242MiB)"),
                    HasSubstr("242MiB, staging memory 32MiB)"), HasSubstr("if it listens on all")));
  SetMemoryLock(absl::StrCat(rxe + siw - 1));
  check = machine_.Find("memory_lock");
  EXPECT_EQ(check.status, Status::kWarn);
  EXPECT_THAT(check.finding, HasSubstr("enough for each of them, but not for all"));
  EXPECT_THAT(check.remedy, AllOf(HasSubstr("--listen=ADDR:PORT"), HasSubstr("ulimit -l")));
  SetMemoryLock(absl::StrCat(siw - 1));
  EXPECT_EQ(machine_.Find("memory_lock").status, Status::kFail);
}

TEST_F(DoctorChecks, LockedMemoryWithoutDevices) {
  SetMemoryLock("65536");
  EXPECT_EQ(machine_.Find("memory_lock").status, Status::kOk);
}

TEST_F(DoctorChecks, HugePages) {
  // 1000 free and 100 of them promised to others; 512 are needed.
  EXPECT_EQ(machine_.Find("huge_pages").status, Status::kOk);
  machine_.options().memory = 4 * kGiB;
  const Check check = machine_.Find("huge_pages");
  EXPECT_EQ(check.status, Status::kWarn);
  EXPECT_THAT(check.finding, HasSubstr("900 huge pages of 2MiB are free"));
  EXPECT_THAT(check.remedy, HasSubstr(absl::StrCat("vm.nr_hugepages=", 1024 + 2048 - 900)));
  machine_.File("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "always [advise] never\n");
  EXPECT_EQ(machine_.Find("huge_pages").status, Status::kOk);
}

TEST_F(DoctorChecks, Memory) {
  EXPECT_EQ(machine_.Find("memory").status, Status::kOk);
  machine_.options().memory = 64 * kGiB;  // of 62.5
  Check check = machine_.Find("memory");
  EXPECT_EQ(check.status, Status::kFail);
  EXPECT_THAT(check.finding, AllOf(HasSubstr("64GiB"), HasSubstr("62.5GiB")));
  EXPECT_THAT(check.remedy, HasSubstr("verbena-server --memory=62.5GiB or less"));
  EXPECT_THAT(machine_.Find("huge_pages").remedy, testing::Not(HasSubstr("nr_hugepages")));

  machine_.options().memory = kGiB;
  machine_.File("/proc/meminfo", "MemTotal: 2097152 kB\nMemAvailable: 524288 kB\n");
  check = machine_.Find("memory");
  EXPECT_EQ(check.status, Status::kWarn);
  EXPECT_THAT(check.finding, HasSubstr("512MiB of it available"));
  EXPECT_THAT(check.remedy, HasSubstr("--memory=512MiB or less"));
  // Free huge pages hold it.
  machine_.File("/proc/meminfo",
                "MemTotal: 2097152 kB\nMemAvailable: 524288 kB\nHugePages_Free: 600\n"
                "Hugepagesize: 2048 kB\n");
  EXPECT_EQ(machine_.Find("memory").status, Status::kOk);
  machine_.options().memory = 0;
  const Report report = machine_.Examine();
  for (const Check& other : report.checks()) EXPECT_NE(other.id, "memory");
}

TEST_F(DoctorChecks, MemoryOfTheControlGroup) {
  machine_.File("/proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n");
  machine_.File("/proc/self/cgroup", "0::/app/sub\n");
  machine_.File("/sys/fs/cgroup/app/sub/memory.max", "max\n");
  EXPECT_EQ(machine_.Find("memory").status, Status::kOk);
  // The one around it.
  machine_.File("/sys/fs/cgroup/app/memory.max", "536870912\n");
  Check check = machine_.Find("memory");
  EXPECT_EQ(check.status, Status::kFail);
  EXPECT_THAT(check.finding, AllOf(HasSubstr("may take 512MiB (/sys/fs/cgroup/app/memory.max)"),
                                   HasSubstr("the control group's limit is less")));
  EXPECT_THAT(check.remedy, AllOf(HasSubstr("verbena-server --memory=512MiB or less"),
                                  HasSubstr("docker run --memory")));
  machine_.File("/sys/fs/cgroup/app/memory.max", "2147483648\n");
  EXPECT_EQ(machine_.Find("memory").status, Status::kOk);
  // Version 1, in a namespace of its own.
  machine_.File("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:hugetlb,memory:/docker/1\n");
  machine_.File("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(machine_.Find("memory").status, Status::kOk);
  machine_.File("/sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n");
  check = machine_.Find("memory");
  EXPECT_EQ(check.status, Status::kFail);
  EXPECT_THAT(check.finding, HasSubstr("memory/memory.limit_in_bytes"));
  // Reserved huge pages do not count for the group.
  machine_.File("/proc/meminfo",
                "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\nHugePages_Free: 600\n"
                "Hugepagesize: 2048 kB\n");
  EXPECT_EQ(machine_.Find("memory").status, Status::kOk);
}

TEST_F(DoctorChecks, OpenFiles) {
  EXPECT_EQ(machine_.Find("open_files").status, Status::kOk);
  // The hard limit counts, since the server raises the soft one.
  machine_.File("/proc/self/limits", "Max open files 1024 1048576 files\n");
  Check check = machine_.Find("open_files");
  EXPECT_EQ(check.status, Status::kOk);
  EXPECT_THAT(check.finding, HasSubstr("1048576"));
  machine_.File("/proc/self/limits", "Max open files 1024 1024 files\n");
  check = machine_.Find("open_files");
  EXPECT_EQ(check.status, Status::kWarn);
  EXPECT_THAT(check.finding, HasSubstr("room for 128 connections"));
  EXPECT_THAT(check.remedy, HasSubstr("LimitNOFILE"));
}

TEST_F(DoctorChecks, LimitsOfDevices) {
  struct Case {
    std::function<void(ibv_device_attr&)> lower;
    Status status;
    const char* says;
    bool of_queues = true;  // the server's queue plan knows of it
  };
  machine_.AddMlx5();
  EXPECT_EQ(machine_.Find("limits", "mlx5_0").status, Status::kOk);
  const ibv_device_attr healthy = machine_.verbs().at("mlx5_0").attributes;
  for (const Case& c :
       {Case{[](auto& a) { a.max_mr_size = kMiB; }, Status::kFail, "max_mr_size is 1MiB", false},
        Case{[](auto& a) { a.max_qp = 2; }, Status::kFail, "max_qp is 2"},
        Case{[](auto& a) { a.max_qp = 3; }, Status::kWarn, "at most 1 connections"},
        Case{[](auto& a) { a.max_cq = 1; }, Status::kFail, "max_cq is 1"},
        Case{[](auto& a) { a.max_mr = 2; }, Status::kFail, "max_mr 2"},
        Case{[](auto& a) { a.max_pd = 0; }, Status::kFail, "max_pd 0"},
        Case{[](auto& a) { a.max_qp_wr = 16; }, Status::kWarn, "max_qp_wr is 16"},
        Case{[](auto& a) { a.max_cqe = 64; }, Status::kWarn, "max_cqe is 64"},
        Case{[](auto& a) { a.max_srq = 0; }, Status::kWarn, "max_srq is 0"},
        Case{[](auto& a) { a.max_srq_wr = 256; }, Status::kWarn, "max_srq_wr is 256"},
        Case{[](auto& a) { a.max_qp_rd_atom = 1; }, Status::kWarn, "max_qp_rd_atom is 1"},
        Case{[](auto& a) { a.max_qp_init_rd_atom = 0; }, Status::kFail, "does no READs", false}}) {
    SCOPED_TRACE(c.says);
    ibv_device_attr& attr = machine_.verbs().at("mlx5_0").attributes;
    attr = healthy;
    c.lower(attr);
    const Check check = machine_.Find("limits", "mlx5_0");
    EXPECT_EQ(check.status, c.status);
    EXPECT_THAT(check.finding, HasSubstr(c.says));
    EXPECT_FALSE(check.remedy.empty());
    // What the doctor calls a failure is what a server refuses.
    if (c.of_queues) {
      const auto plan = net::PlanQueues(net::LimitsOf("mlx5_0", attr), {});
      EXPECT_EQ(plan.ok(), c.status != Status::kFail) << plan.status();
    }
  }
}

// What the doctor asks for is what the server plans.
TEST_F(DoctorChecks, NeedsAreTheServers) {
  const auto plan =
      net::PlanQueues(net::LimitsOf("large", machine_.verbs().Add("large").attributes), {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(kServerReceives, plan->receives);
  EXPECT_EQ(kWindow, plan->window);
  EXPECT_EQ(kSendDepth, plan->send_depth);
  EXPECT_EQ(uint64_t{2} * kServerReceives, plan->receive_cq_depth);
  constexpr uint32_t kResponses = 1024;  // of a worker, at most
  EXPECT_EQ(kMessageMemory, uint64_t{plan->receives + kResponses} * net::kMaxMessage);
  EXPECT_EQ(kStagingMemory, net::kDefaultStagingPieces * net::kStagingPiece);
}

// A server on iWARP registers staging memory too.
TEST_F(DoctorChecks, StagingMemoryOfIwarp) {
  machine_.AddRxe();
  SetMemoryLock(absl::StrCat(machine_.options().memory + kMessageMemory));
  EXPECT_EQ(machine_.Find("memory_lock").status, Status::kOk);
  machine_.verbs().at("rxe0").attributes.max_mr = 3;
  EXPECT_EQ(machine_.Find("limits", "rxe0").status, Status::kOk);
  machine_.AddSiw();
  EXPECT_EQ(machine_.Find("memory_lock").status, Status::kFail);
  EXPECT_THAT(machine_.Find("memory_lock").finding, HasSubstr("staging memory"));
  // Enough for siw0, not for both.
  SetMemoryLock(absl::StrCat(machine_.options().memory + kMessageMemory + kStagingMemory));
  EXPECT_EQ(machine_.Find("memory_lock").status, Status::kWarn);
  SetMemoryLock(absl::StrCat(2 * (machine_.options().memory + kMessageMemory) + kStagingMemory));
  EXPECT_EQ(machine_.Find("memory_lock").status, Status::kOk);
  machine_.verbs().at("siw0").attributes.max_mr = 3;
  EXPECT_EQ(machine_.Find("limits", "siw0").status, Status::kFail);
  EXPECT_THAT(machine_.Find("limits", "siw0").finding, HasSubstr("2, 4 and 1"));
}

class DoctorCongestion : public DoctorChecks {
 protected:
  void SetUp() override {
    machine_.AddMlx5();
    machine_.AddCongestionSettings();
  }
  void SetPriority3(const char* point, const char* value) {
    machine_.File(absl::StrCat("/sys/class/net/ens1/ecn/", point, "/enable/3"), value);
  }
  static constexpr char kConfig[] = "/sys/kernel/config/rdma_cm/mlx5_0/ports/1/";
};

TEST_F(DoctorCongestion, FlowControl) {
  EXPECT_THAT(machine_.Find("pfc", "mlx5_0/1").finding, HasSubstr("on for priority 3"));
  // Off, but the other mechanism is on.
  machine_.File("/sys/class/net/ens1/qos/pfc", "0,0,0,0,0,0,0,0\n");
  EXPECT_EQ(machine_.Find("pfc", "mlx5_0/1").status, Status::kOk);
  SetPriority3("roce_np", "0\n");
  Check check = machine_.Find("pfc", "mlx5_0/1");
  EXPECT_EQ(check.status, Status::kWarn);
  EXPECT_THAT(check.remedy, HasSubstr("dcb pfc set dev ens1 prio-pfc all:off 3:on"));
  machine_.File("/sys/class/net/ens1/qos/pfc", "1 1 1 1 1 1 1 1\n");
  check = machine_.Find("pfc", "mlx5_0/1");
  EXPECT_EQ(check.status, Status::kWarn);
  EXPECT_THAT(check.finding, HasSubstr("all priorities"));
}

TEST_F(DoctorCongestion, NotificationNeedsBothEnds) {
  EXPECT_EQ(machine_.Find("ecn", "mlx5_0/1").status, Status::kOk);
  SetPriority3("roce_rp", "0\n");
  const Check check = machine_.Find("ecn", "mlx5_0/1");
  EXPECT_EQ(check.status, Status::kWarn);
  EXPECT_THAT(check.remedy, HasSubstr("echo 1 > /sys/class/net/ens1/ecn/roce_rp/enable/3"));
}

TEST_F(DoctorCongestion, Trust) {
  machine_.File("/sys/class/net/ens1/qos/trust", "pcp\n");
  const Check check = machine_.Find("trust", "mlx5_0/1");
  EXPECT_EQ(check.status, Status::kWarn);
  EXPECT_THAT(check.remedy, AllOf(HasSubstr("dcb app add dev ens1 dscp-prio 26:3"),
                                  HasSubstr("mlnx_qos -i ens1 --trust dscp")));
}

TEST_F(DoctorCongestion, TrafficClassInTheProtectedPriority) {
  EXPECT_EQ(machine_.Find("traffic_class", "mlx5_0/1").status, Status::kOk);
  machine_.File(std::string(kConfig) + "default_roce_tos", "0\n");
  const Check check = machine_.Find("traffic_class", "mlx5_0/1");
  EXPECT_EQ(check.status, Status::kWarn);
  EXPECT_THAT(check.finding, HasSubstr("type of service 0"));
  EXPECT_THAT(check.remedy, HasSubstr("--tos=104"));
  machine_.options().connection.tos = 104;
  EXPECT_EQ(machine_.Find("traffic_class", "mlx5_0/1").status, Status::kOk);
  machine_.options().connection.tos.reset();
  // NVIDIA's driver can force a class for all traffic.
  machine_.File("/sys/class/infiniband/mlx5_0/tc/1/traffic_class", "Global tclass=106\n");
  EXPECT_EQ(machine_.Find("traffic_class", "mlx5_0/1").status, Status::kOk);
}

TEST_F(DoctorCongestion, Version) {
  machine_.File(std::string(kConfig) + "default_roce_mode", "IB/RoCE v1\n");
  const Check check = machine_.Find("roce_version", "mlx5_0/1");
  EXPECT_EQ(check.status, Status::kWarn);
  EXPECT_THAT(check.remedy, HasSubstr("echo 'RoCE v2' > "));
}

TEST_F(DoctorChecks, CongestionSettingsFromDcb) {
  machine_.AddMlx5();
  EXPECT_THAT(machine_.Find("congestion", "mlx5_0/1").finding, HasSubstr("shows no settings"));
  auto& tools = machine_.system().tools;
  tools["dcb pfc show dev ens1 prio-pfc"] =
      "prio-pfc 0:off 1:off 2:off 3:off 4:off 5:on 6:off 7:off \n";
  tools["dcb -N app show dev ens1 dscp-prio"] = "\n";
  EXPECT_THAT(machine_.Find("pfc", "mlx5_0/1").finding, HasSubstr("on for priority 5"));
  EXPECT_EQ(machine_.Find("trust", "mlx5_0/1").status, Status::kWarn);
  tools["dcb -N app show dev ens1 dscp-prio"] = "dscp-prio 30:5 46:6 \n";
  EXPECT_EQ(machine_.Find("trust", "mlx5_0/1").status, Status::kOk);
  // The mark that this adapter sorts into the protected priority.
  EXPECT_THAT(machine_.Find("traffic_class", "mlx5_0/1").remedy, HasSubstr("--tos=120"));
}

TEST_F(DoctorChecks, SoftRoceHasNothingToSet) {
  machine_.AddRxe();
  EXPECT_EQ(machine_.Find("congestion", "rxe0/1").status, Status::kOk);
}

TEST_F(DoctorChecks, Counters) {
  machine_.AddMlx5();
  const std::string folder = std::string(kPort) + "/hw_counters/";
  for (const char* name : {"out_of_sequence", "rnr_nak_retry_err", "np_cnp_sent"}) {
    machine_.File(folder + name, "0\n");
  }
  EXPECT_EQ(machine_.Find("counters", "mlx5_0/1").status, Status::kOk);
  machine_.File(folder + "out_of_sequence", "12\n");
  machine_.File(folder + "rnr_nak_retry_err", "3\n");
  machine_.File(std::string(kPort) + "/counters/link_downed", "1\n");
  const Check check = machine_.Find("counters", "mlx5_0/1");
  EXPECT_EQ(check.status, Status::kWarn);
  EXPECT_THAT(check.finding, AllOf(HasSubstr("out_of_sequence 12 (packets"),
                                   HasSubstr("rnr_nak_retry_err 3"), HasSubstr("link_downed 1")));
  EXPECT_THAT(check.remedy, AllOf(HasSubstr("PFC"), HasSubstr("receives"), HasSubstr("cable")));
  EXPECT_EQ(check.figures.size(), 3U);
}

TEST_F(DoctorChecks, NoticesOfCongestionAreNoFault) {
  machine_.AddMlx5();
  machine_.File(std::string(kPort) + "/hw_counters/np_cnp_sent", "99\n");
  machine_.File(std::string(kPort) + "/hw_counters/rp_cnp_handled", "7\n");
  const Check check = machine_.Find("cnp", "mlx5_0/1");
  EXPECT_EQ(check.status, Status::kOk);
  EXPECT_THAT(check.finding, AllOf(HasSubstr("np_cnp_sent 99"), HasSubstr("rp_cnp_handled 7")));
  EXPECT_EQ(machine_.Find("counters", "mlx5_0/1").status, Status::kOk);
}

}  // namespace
}  // namespace verbena::cli::doctor
