// Whole machines: healthy ones, ones without devices, missing packages and files, containers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <string>

#include "client/cli/doctor/rdma_devices.h"
#include "common/base/sizes.h"
#include "tests/unit/cli/made_up_machine.h"

namespace verbena::cli::doctor {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class DoctorMachines : public ::testing::Test {
 protected:
  MadeUpMachine machine_;
};

std::string All(const Report& report) {
  std::string text;
  for (const Check& check : report.checks()) {
    text += std::string(StatusName(check.status)) + " " + check.id + " " + check.subject + ": " +
            check.finding + "\n  " + check.remedy + "\n";
  }
  return text;
}

TEST_F(DoctorMachines, HealthyAdapter) {
  machine_.AddMlx5();
  machine_.AddCongestionSettings();
  const Report report = machine_.Examine();
  EXPECT_EQ(report.ExitStatus(), 0) << All(report);
  EXPECT_THAT(report.checks(), Each(Field(&Check::remedy, IsEmpty())));
  std::set<std::string> ids;
  for (const Check& check : report.checks()) ids.insert(check.id);
  for (const char* id : {"packages", "modules", "device", "link", "address", "gid", "mtu", "limits",
                         "memory_lock", "huge_pages", "open_files", "container", "pfc", "ecn",
                         "trust", "traffic_class", "roce_version", "software_device"}) {
    EXPECT_TRUE(ids.contains(id)) << id;
  }
}

TEST_F(DoctorMachines, SoftwareDevices) {
  machine_.AddRxe();
  machine_.AddSiw();
  const Report report = machine_.Examine();
  EXPECT_EQ(report.ExitStatus(), 0) << All(report);
  EXPECT_THAT(machine_.Find("device", "rxe0").finding, HasSubstr("RoCE, software"));
  EXPECT_THAT(machine_.Find("device", "siw0").finding, HasSubstr("iWARP, software"));
  // iWARP has no table of GIDs: its interface is found by the hardware address.
  EXPECT_THAT(machine_.Find("link", "siw0/1").finding, HasSubstr("interface e0"));
  EXPECT_THAT(machine_.Find("address", "siw0/1").finding, HasSubstr("192.168.78.1"));
}

TEST_F(DoctorMachines, InfiniBand) {
  machine_.AddInfiniBand();
  const Report report = machine_.Examine();
  EXPECT_EQ(report.ExitStatus(), 0) << All(report);
  EXPECT_THAT(machine_.Find("link", "ibp1s0/1").finding,
              testing::AllOf(HasSubstr("InfiniBand"), HasSubstr("LID 17"),
                             HasSubstr("subnet manager at LID 1")));
  EXPECT_THAT(machine_.Find("address", "ibp1s0/1").finding, HasSubstr("10.1.0.1"));
  EXPECT_THAT(All(report), Not(HasSubstr("gid ibp1s0")));
}

TEST_F(DoctorMachines, InfiniBandWithoutIpoib) {
  machine_.AddInfiniBand();
  machine_.Remove("/sys/class/infiniband/ibp1s0/device/net");
  const Check check = machine_.Find("address", "ibp1s0/1");
  EXPECT_EQ(check.status, Status::kWarn);
  EXPECT_THAT(check.finding, HasSubstr("IPoIB"));
  EXPECT_THAT(check.remedy, HasSubstr("modprobe ib_ipoib"));
}

TEST_F(DoctorMachines, InfiniBandWithoutSubnetManager) {
  machine_.AddInfiniBand();
  machine_.File("/sys/class/infiniband/ibp1s0/ports/1/state", "2: INIT\n");
  const Check check = machine_.Find("link", "ibp1s0/1");
  EXPECT_EQ(check.status, Status::kFail);
  EXPECT_THAT(check.finding, HasSubstr("subnet manager"));
  EXPECT_THAT(check.remedy, HasSubstr("opensm"));
}

TEST_F(DoctorMachines, NoDeviceIsAWarning) {
  const Check check = machine_.Find("devices");
  EXPECT_EQ(check.status, Status::kWarn);
  EXPECT_THAT(check.finding, HasSubstr("software device"));
  EXPECT_THAT(check.remedy,
              HasSubstr("modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0"));
  EXPECT_EQ(machine_.Examine().ExitStatus(), 1);
}

TEST_F(DoctorMachines, NoDeviceIsAFailureWhereVerbsAreWanted) {
  machine_.options().connection.fabric = "verbs";
  const Check check = machine_.Find("devices");
  EXPECT_EQ(check.status, Status::kFail);
  EXPECT_THAT(check.finding, HasSubstr("--fabric=verbs"));
  EXPECT_EQ(machine_.Examine().ExitStatus(), 2);
}

TEST_F(DoctorMachines, OnlyTheSoftwareDevice) {
  machine_.options().connection.fabric = "soft";
  const Report report = machine_.Examine();
  EXPECT_EQ(report.ExitStatus(), 0) << All(report);
  EXPECT_THAT(All(report), Not(HasSubstr("devices")));
  EXPECT_THAT(machine_.Find("software_device").finding, HasSubstr("vsoft0"));
}

TEST_F(DoctorMachines, PtraceScopeIsTold) {
  machine_.File("/proc/sys/kernel/yama/ptrace_scope", "1\n");
  const Check check = machine_.Find("software_device");
  EXPECT_EQ(check.status, Status::kOk);
  EXPECT_THAT(check.finding, HasSubstr("ptrace_scope is 1"));
}

TEST_F(DoctorMachines, AnAdapterWithoutItsModule) {
  machine_.Link("/sys/class/net/ens1/device/driver", "../../bus/pci/drivers/mlx5_core");
  const Check check = machine_.Find("devices");
  EXPECT_THAT(check.finding, HasSubstr("ens1 (driver mlx5_core)"));
  EXPECT_EQ(check.remedy, "modprobe mlx5_ib");
}

TEST_F(DoctorMachines, MissingPackages) {
  machine_.File("/var/lib/dpkg/status",
                "Package: rdma-core\nStatus: deinstall ok config-files\nVersion: 44.0-2\n\n"
                "Package: ibverbs-providers\nStatus: install ok installed\nVersion: 44.0-2\n");
  Check check = machine_.Find("packages");
  EXPECT_EQ(check.status, Status::kWarn);
  EXPECT_THAT(check.finding, HasSubstr("rdma-core is not installed"));
  EXPECT_THAT(check.remedy, HasSubstr("apt-get install rdma-core"));

  machine_.AddMlx5();
  machine_.File("/var/lib/dpkg/status", "");
  check = machine_.Find("packages");
  EXPECT_EQ(check.status, Status::kFail);
  EXPECT_THAT(check.finding, HasSubstr("ibverbs-providers is not installed"));

  // Not Debian: only files tell.
  machine_.Remove("/var/lib/dpkg");
  EXPECT_EQ(machine_.Find("packages").status, Status::kOk);
  machine_.Remove("/etc/libibverbs.d");
  check = machine_.Find("packages");
  EXPECT_EQ(check.status, Status::kFail);
  EXPECT_THAT(check.remedy, HasSubstr("dnf install"));
}

TEST_F(DoctorMachines, MissingModules) {
  machine_.AddMlx5();
  machine_.Remove("/sys/module/rdma_ucm");
  machine_.File("/lib/modules/6.1.0-57-amd64/kernel/drivers/infiniband/core/rdma_ucm.ko", "");
  Check check = machine_.Find("modules");
  EXPECT_EQ(check.status, Status::kFail);
  EXPECT_THAT(check.remedy, HasSubstr("modprobe -a rdma_ucm"));
  // Built in: no entry, but what it makes is there.
  machine_.File("/sys/class/misc/rdma_cm/dev", "10:124\n");
  EXPECT_EQ(machine_.Find("modules").status, Status::kOk);
}

TEST_F(DoctorMachines, AKernelWithoutRdma) {
  machine_.Remove("/sys/module");
  machine_.File("/lib/modules/6.1.0-57-amd64/modules.dep", "");
  const Check check = machine_.Find("modules");
  EXPECT_EQ(check.status, Status::kWarn);
  EXPECT_THAT(check.finding, HasSubstr("6.1.0-57-amd64 comes without RDMA modules"));
  EXPECT_THAT(check.remedy, HasSubstr("linux-image-amd64"));
}

TEST_F(DoctorMachines, MissingProvider) {
  machine_.AddRxe();
  machine_.AddMlx5();
  machine_.verbs().Hide("rxe0");
  Check check = machine_.Find("provider", "rxe0");
  EXPECT_EQ(check.status, Status::kFail);
  EXPECT_THAT(check.finding, HasSubstr("could not be loaded"));
  EXPECT_THAT(check.remedy, HasSubstr("IBV_SHOW_WARNINGS=1 ibv_devices"));

  machine_.Remove("/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so");
  check = machine_.Find("provider", "rxe0");
  EXPECT_THAT(check.finding, HasSubstr("librxe-rdmav*.so"));
  EXPECT_THAT(check.remedy, HasSubstr("apt-get install --reinstall ibverbs-providers"));

  machine_.Remove("/etc/libibverbs.d/rxe.driver");
  EXPECT_THAT(machine_.Find("provider", "rxe0").finding,
              HasSubstr("there is no /etc/libibverbs.d/"));
  // The other device is no worse for it.
  EXPECT_EQ(machine_.Find("device", "mlx5_0").status, Status::kOk);
}

TEST_F(DoctorMachines, UnknownDriver) {
  machine_.AddMlx5();
  machine_.Remove("/sys/class/infiniband/mlx5_0/device/driver");
  machine_.Link("/sys/class/infiniband/mlx5_0/device/driver", "../../bus/pci/drivers/brandnew");
  machine_.verbs().Hide("mlx5_0");
  EXPECT_THAT(machine_.Find("provider", "mlx5_0").finding, HasSubstr("'brandnew'"));
}

TEST_F(DoctorMachines, DeviceFiles) {
  machine_.AddMlx5();
  machine_.system().permitted = false;
  Check check = machine_.Find("device_files", "mlx5_0");
  EXPECT_EQ(check.status, Status::kFail);
  EXPECT_THAT(check.finding, HasSubstr("no permission to open /dev/infiniband/uverbs0"));

  machine_.system().permitted = true;
  machine_.Remove("/dev/infiniband/rdma_cm");
  check = machine_.Find("device_files", "mlx5_0");
  EXPECT_EQ(check.status, Status::kFail);
  EXPECT_THAT(check.finding, HasSubstr("/dev/infiniband/rdma_cm is missing"));

  // libibverbs does not show such a device, and its provider is as good as ever.
  machine_.File("/dev/infiniband/rdma_cm", "");
  machine_.Remove("/dev/infiniband/uverbs0");
  machine_.verbs().Hide("mlx5_0");
  check = machine_.Find("device_files", "mlx5_0");
  EXPECT_EQ(check.status, Status::kFail);
  EXPECT_THAT(check.finding, HasSubstr("/dev/infiniband/uverbs0 is missing"));
  EXPECT_THAT(check.remedy, HasSubstr("--device=/dev/infiniband"));
  const Report report = machine_.Examine();
  for (const Check& other : report.checks()) EXPECT_NE(other.id, "provider");
}

TEST_F(DoctorMachines, ADeviceThatCannotBeOpened) {
  machine_.AddMlx5();
  machine_.verbs().open_error = EIO;
  const Check check = machine_.Find("device", "mlx5_0");
  EXPECT_EQ(check.status, Status::kFail);
  EXPECT_THAT(check.finding, HasSubstr("ibv_open_device"));
}

// Its ports have neither IP addresses nor GIDs of RoCE, which is not what is wrong with it.
TEST_F(DoctorMachines, ADeviceWithoutConnections) {
  machine_.AddMlx5();
  machine_.Remove("/sys/class/infiniband/mlx5_0/device/driver");
  machine_.Link("/sys/class/infiniband/mlx5_0/device/driver", "../../../bus/pci/drivers/efa");
  const Report report = machine_.Examine();
  int checks = 0;
  for (const Check& check : report.checks()) {
    if (check.subject != "mlx5_0" && check.subject != "mlx5_0/1") continue;
    ++checks;
    EXPECT_EQ(check.id, "device");
    EXPECT_EQ(check.status, Status::kWarn);
    EXPECT_THAT(check.finding, HasSubstr("no reliable connections"));
  }
  EXPECT_EQ(checks, 1);
  machine_.options().connection.fabric = "verbs";
  EXPECT_EQ(machine_.Find("device", "mlx5_0").status, Status::kFail);
  machine_.AddRxe();
  EXPECT_EQ(machine_.Find("device", "mlx5_0").status, Status::kWarn);
}

TEST_F(DoctorMachines, AContainerWithoutDeviceFiles) {
  machine_.AddMlx5();
  machine_.File("/.dockerenv", "");
  EXPECT_EQ(machine_.Find("container").status, Status::kOk);
  machine_.Remove("/dev/infiniband");
  const Check check = machine_.Find("container");
  EXPECT_EQ(check.status, Status::kFail);
  EXPECT_THAT(check.finding, HasSubstr("/dev/infiniband is missing"));
  EXPECT_THAT(check.remedy, HasSubstr("--device=/dev/infiniband"));
}

TEST_F(DoctorMachines, SignsOfContainers) {
  EXPECT_THAT(machine_.Find("container").finding, HasSubstr("none"));
  machine_.File("/proc/1/cgroup", "0::/kubepods/besteffort/pod1\n");
  EXPECT_THAT(machine_.Find("container").finding, HasSubstr("kubepods"));
}

TEST_F(DoctorMachines, ControlGroupOfRdma) {
  machine_.AddMlx5();
  machine_.File("/proc/self/cgroup", "0::/app\n");
  machine_.File("/sys/fs/cgroup/app/rdma.max", "mlx5_0 hca_handle=1 hca_object=2000\n");
  Check check = machine_.Find("cgroup", "mlx5_0");
  EXPECT_EQ(check.status, Status::kWarn);
  EXPECT_THAT(check.finding, HasSubstr("hca_handle=1"));
  EXPECT_THAT(check.remedy, HasSubstr("/sys/fs/cgroup/app/rdma.max"));
  machine_.File("/sys/fs/cgroup/app/rdma.max", "mlx5_0 hca_handle=max hca_object=2000\n");
  EXPECT_EQ(machine_.Find("cgroup", "mlx5_0").status, Status::kOk);
  // Version 1 of control groups.
  machine_.File("/proc/self/cgroup", "3:memory:/x\n4:rdma:/app\n");
  machine_.File("/sys/fs/cgroup/rdma/app/rdma.max", "mlx5_0 hca_handle=3 hca_object=10\n");
  EXPECT_EQ(machine_.Find("cgroup", "mlx5_0").status, Status::kWarn);
}

TEST_F(DoctorMachines, AnInterfaceInAnotherNamespace) {
  machine_.AddMlx5();
  machine_.Remove("/sys/class/net/ens1");
  const Check check = machine_.Find("namespace", "mlx5_0/1");
  EXPECT_EQ(check.status, Status::kWarn);
  EXPECT_THAT(check.finding, HasSubstr("ens1"));
  EXPECT_THAT(check.remedy, HasSubstr("--network=host"));
}

TEST_F(DoctorMachines, PortsOfAnAdapter) {
  machine_.AddMlx5();
  machine_.AddRxe();
  const std::vector<RdmaDevice> devices = FindRdmaDevices(machine_.system());
  ASSERT_EQ(devices.size(), 2U);
  EXPECT_EQ(devices[0].name, "mlx5_0");
  EXPECT_EQ(devices[0].kernel_driver, "mlx5_core");
  EXPECT_FALSE(devices[0].software);
  EXPECT_EQ(devices[0].uverbs, "uverbs0");
  ASSERT_EQ(devices[0].ports.size(), 1U);
  EXPECT_THAT(devices[0].ports[0].netdevs, ElementsAre("ens1"));
  // Entries that are not in use are left out.
  EXPECT_EQ(devices[0].ports[0].gids.size(), 2U);
  EXPECT_TRUE(devices[1].software);
  EXPECT_STREQ(devices[1].driver->provider, "rxe");
}

}  // namespace
}  // namespace verbena::cli::doctor
