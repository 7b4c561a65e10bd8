#include "tests/unit/cli/made_up_machine.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/doctor/doctor.h"
#include "common/base/sizes.h"
#include "common/softverbs/softverbs.h"

namespace verbena::cli::doctor {

namespace fs = std::filesystem;

Access MadeUpSystem::DeviceFile(const std::string& path) const {
  if (!Exists(path)) return Access::kMissing;
  return permitted ? Access::kUsable : Access::kDenied;
}

std::optional<std::string> MadeUpSystem::RunTool(const std::vector<std::string>& command) const {
  const auto found = tools.find(absl::StrJoin(command, " "));
  return found == tools.end() ? std::nullopt : std::optional(found->second);
}

MadeUpVerbs::MadeUpVerbs() : ForwardingVerbs(softverbs::SoftVerbs()) {}
MadeUpVerbs::~MadeUpVerbs() = default;

MadeUpVerbs::Answers& MadeUpVerbs::Add(const std::string& name) {
  auto answers = std::make_unique<Answers>();
  name.copy(answers->device.name, sizeof(answers->device.name) - 1);
  answers->context.device = &answers->device;
  ibv_device_attr& attr = answers->attributes;
  std::string_view("16.35.2000").copy(attr.fw_ver, sizeof(attr.fw_ver) - 1);
  attr.max_mr_size = UINT64_MAX;
  attr.max_qp = 131072;
  attr.max_qp_wr = 32768;
  attr.max_cqe = 4194303;
  attr.max_cq = 1 << 24;
  attr.max_mr = 1 << 24;
  attr.max_pd = 1 << 24;
  attr.max_sge = 30;
  attr.max_srq_sge = 31;
  attr.max_srq = 1 << 20;
  attr.max_srq_wr = 32767;
  attr.max_qp_rd_atom = 16;
  attr.max_qp_init_rd_atom = 16;
  answers->port.active_mtu = IBV_MTU_1024;
  answers->port.max_mtu = IBV_MTU_4096;
  return *(devices_[name] = std::move(answers));
}

ibv_device** MadeUpVerbs::GetDeviceList(int* count) {
  *count = static_cast<int>(devices_.size());
  auto** const list = new ibv_device*[devices_.size() + 1]();
  std::transform(devices_.begin(), devices_.end(), list,
                 [](const auto& entry) { return &entry.second->device; });
  return list;
}

void MadeUpVerbs::FreeDeviceList(ibv_device** list) { delete[] list; }

ibv_context* MadeUpVerbs::OpenDevice(ibv_device* device) {
  if (open_error != 0) {
    errno = open_error;
    return nullptr;
  }
  return &devices_.at(device->name)->context;
}

int MadeUpVerbs::CloseDevice(ibv_context* /*context*/) { return 0; }

int MadeUpVerbs::QueryDevice(ibv_context* context, ibv_device_attr* attr) {
  *attr = devices_.at(context->device->name)->attributes;
  return 0;
}

int MadeUpVerbs::QueryPort(ibv_context* context, uint8_t /*port*/, ibv_port_attr* attr) {
  *attr = devices_.at(context->device->name)->port;
  return 0;
}

MadeUpMachine::MadeUpMachine() {
  std::string name = ::testing::TempDir() + "/machine.XXXXXX";
  EXPECT_NE(mkdtemp(name.data()), nullptr);
  root_ = name;
  system_ = std::make_unique<MadeUpSystem>(root_.string());
  options_.memory = kGiB;
  options_.workers = 1;
  File("/var/lib/dpkg/status",
       "Package: bash\nStatus: install ok installed\nVersion: 5.2\n\n"
       "Package: rdma-core\nStatus: install ok installed\nVersion: 44.0-2\n\n"
       "Package: ibverbs-providers\nStatus: install ok installed\nVersion: 44.0-2\n");
  for (const char* provider : {"mlx5", "rxe", "siw"}) {
    File(absl::StrCat("/etc/libibverbs.d/", provider, ".driver"),
         absl::StrCat("driver ", provider, "\n"));
    File(absl::StrCat("/usr/lib/x86_64-linux-gnu/libibverbs/lib", provider, "-rdmav34.so"), "");
  }
  File("/proc/self/limits",
       "Limit                     Soft Limit           Hard Limit           Units     \n"
       "Max open files            65536                65536                files     \n"
       "Max locked memory         unlimited            unlimited            bytes     \n");
  File("/proc/self/status", "Name:\ttest\nCapEff:\t0000000000000000\n");
  File("/proc/meminfo",
       "MemTotal:       65536000 kB\nHugePages_Total:    1024\nHugePages_Free:     1000\n"
       "HugePages_Rsvd:      100\nHugepagesize:       2048 kB\n");
  File("/sys/kernel/mm/transparent_hugepage/shmem_enabled",
       "always within_size advise [never] deny force\n");
  File("/proc/sys/kernel/osrelease", "6.1.0-57-amd64\n");
  for (const char* module : {"ib_uverbs", "rdma_cm", "rdma_ucm"}) {
    File(absl::StrCat("/sys/module/", module, "/refcnt"), "0\n");
  }
  AddNetdev("lo", "00:00:00:00:00:00", 65536);
  Address("lo", "127.0.0.1");
  Address("eth0", "192.0.2.7");
}

MadeUpMachine::~MadeUpMachine() {
  std::error_code ignored;
  fs::remove_all(root_, ignored);
}

void MadeUpMachine::File(const std::string& path, const std::string& content) {
  const fs::path full = root_.string() + path;
  fs::create_directories(full.parent_path());
  std::ofstream(full) << content;
}

void MadeUpMachine::Link(const std::string& path, const std::string& target) {
  const fs::path full = root_.string() + path;
  fs::create_directories(full.parent_path());
  fs::create_symlink(target, full);
}

void MadeUpMachine::Remove(const std::string& path) { fs::remove_all(root_.string() + path); }

// (NetAddress::Parse wants link-local addresses with an interface, which this machine has to have.)
void MadeUpMachine::Address(const std::string& interface, const std::string& address) {
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  sockaddr_in four{};
  four.sin_family = AF_INET;
  if (inet_pton(AF_INET6, address.c_str(), &six.sin6_addr) == 1) {
    system_->addresses.push_back({interface, NetAddress(reinterpret_cast<sockaddr*>(&six))});
  } else {
    ASSERT_EQ(inet_pton(AF_INET, address.c_str(), &four.sin_addr), 1) << address;
    system_->addresses.push_back({interface, NetAddress(reinterpret_cast<sockaddr*>(&four))});
  }
}

void MadeUpMachine::AddNetdev(const std::string& name, const std::string& mac, int mtu) {
  const std::string folder = "/sys/class/net/" + name;
  File(folder + "/address", mac + "\n");
  File(folder + "/mtu", absl::StrCat(mtu, "\n"));
}

void MadeUpMachine::AddDevice(const std::string& name, const std::string& type,
                              const std::string& link_layer, const std::string& provider) {
  const std::string folder = "/sys/class/infiniband/" + name;
  File(folder + "/node_type", type + "\n");
  File(folder + "/ports/1/state", "4: ACTIVE\n");
  File(folder + "/ports/1/phys_state", "5: LinkUp\n");
  File(folder + "/ports/1/link_layer", link_layer + "\n");
  File(folder + "/ports/1/rate", "100 Gb/sec (4X EDR)\n");
  File(folder + "/ports/1/lid", "0x0\n");
  File(folder + "/ports/1/sm_lid", "0x0\n");
  AddGid(name, 3, "0000:0000:0000:0000:0000:0000:0000:0000", "");
  const size_t number = system_->List("/sys/class/infiniband_verbs").size();
  File(absl::StrCat("/sys/class/infiniband_verbs/uverbs", number, "/ibdev"), name + "\n");
  File(absl::StrCat("/dev/infiniband/uverbs", number), "");
  File("/dev/infiniband/rdma_cm", "");
  const DriverNames* const driver = FindDriver(provider);
  File(absl::StrCat("/sys/module/", driver == nullptr ? provider : driver->module, "/refcnt"), "");
  MadeUpVerbs::Answers& answers = verbs_.Add(name);
  if (type == "4: RNIC") answers.device.transport_type = IBV_TRANSPORT_IWARP;
}

void MadeUpMachine::AddGid(const std::string& device, int index, const std::string& gid,
                           const std::string& netdev) {
  const std::string port = "/sys/class/infiniband/" + device + "/ports/1";
  File(absl::StrCat(port, "/gids/", index), gid + "\n");
  // Files of entries that are not in use cannot be read, as if they were not there.
  if (netdev.empty()) return;
  File(absl::StrCat(port, "/gid_attrs/types/", index), "RoCE v2\n");
  File(absl::StrCat(port, "/gid_attrs/ndevs/", index), netdev + "\n");
}

void MadeUpMachine::AddMlx5() {
  AddDevice("mlx5_0", "1: CA", "Ethernet", "mlx5_core");
  Link("/sys/class/infiniband/mlx5_0/device/driver", "../../../bus/pci/drivers/mlx5_core");
  AddNetdev("ens1", "0c:42:a1:00:00:01", 4200);
  AddGid("mlx5_0", 0, "fe80:0000:0000:0000:0e42:a1ff:fe00:0001", "ens1");
  AddGid("mlx5_0", 1, "0000:0000:0000:0000:0000:ffff:0a00:0001", "ens1");
  Address("ens1", "10.0.0.1");
  Address("ens1", "fe80::e42:a1ff:fe00:1");
  verbs_.at("mlx5_0").port.active_mtu = IBV_MTU_4096;
}

void MadeUpMachine::AddRxe() {
  AddDevice("rxe0", "1: CA", "Ethernet", "rxe");
  File("/sys/class/infiniband/rxe0/parent", "d0\n");
  File("/sys/class/infiniband/rxe0/node_desc", "rxe\n");
  AddNetdev("d0", "2e:17:d0:32:c9:ab", 1500);
  AddGid("rxe0", 0, "0000:0000:0000:0000:0000:ffff:c0a8:4d01", "d0");
  Address("d0", "192.168.77.1");
}

void MadeUpMachine::AddSiw() {
  AddDevice("siw0", "4: RNIC", "Ethernet", "siw");
  File("/sys/class/infiniband/siw0/node_desc", "Software iWARP stack\n");
  AddNetdev("e0", "86:63:2b:de:75:cf", 1500);
  AddGid("siw0", 0, "8663:2bde:75cf:0000:0000:0000:0000:0000", "");
  Address("e0", "192.168.78.1");
}

void MadeUpMachine::AddInfiniBand() {
  AddDevice("ibp1s0", "1: CA", "InfiniBand", "mlx5_core");
  Link("/sys/class/infiniband/ibp1s0/device/driver", "../../../bus/pci/drivers/mlx5_core");
  File("/sys/class/infiniband/ibp1s0/device/net/ib0/mtu", "2044\n");
  File("/sys/class/infiniband/ibp1s0/ports/1/lid", "0x11\n");
  File("/sys/class/infiniband/ibp1s0/ports/1/sm_lid", "0x1\n");
  AddGid("ibp1s0", 0, "fe80:0000:0000:0000:0c42:a103:0000:0001", "");
  AddNetdev("ib0", "00:00:10:87", 2044);
  Address("ib0", "10.1.0.1");
}

void MadeUpMachine::AddCongestionSettings() {
  File("/sys/class/net/ens1/qos/pfc", "0 0 0 1 0 0 0 0\n");
  File("/sys/class/net/ens1/qos/trust", "dscp\n");
  for (const char* point : {"roce_np", "roce_rp"}) {
    for (int priority = 0; priority < 8; ++priority) {
      File(absl::StrCat("/sys/class/net/ens1/ecn/", point, "/enable/", priority),
           priority == 3 ? "1\n" : "0\n");
    }
  }
  const std::string config = "/sys/kernel/config/rdma_cm/mlx5_0/ports/1/";
  File(config + "default_roce_tos", "104\n");
  File(config + "default_roce_mode", "RoCE v2\n");
}

Report MadeUpMachine::Examine() {
  return doctor::Examine(options_, *system_, verbs_, softverbs::SoftVerbs());
}

Check MadeUpMachine::Find(const std::string& id, const std::string& subject) {
  const Report report = Examine();
  for (const Check& check : report.checks()) {
    if (check.id == id && check.subject == subject) return check;
  }
  ADD_FAILURE() << "there is no check " << id << " " << subject;
  return {};
}

}  // namespace verbena::cli::doctor
