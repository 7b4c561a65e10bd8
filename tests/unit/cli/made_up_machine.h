// A machine that exists only as files in a temporary folder, with RDMA devices that answer as a
// test says. Starts as a healthy Debian machine without any RDMA device.
#pragma once

#include <infiniband/verbs.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/cli/doctor/checks.h"
#include "client/cli/doctor/report.h"
#include "client/cli/doctor/system_view.h"
#include "common/verbs/forwarding_verbs.h"

namespace verbena::cli::doctor {

// The files of a folder, and answers of the system that a test sets.
class MadeUpSystem final : public SystemView {
 public:
  explicit MadeUpSystem(std::string root) : SystemView(std::move(root)) {}

  Access DeviceFile(const std::string& path) const override;
  std::vector<InterfaceAddress> Addresses() const override { return addresses; }
  std::optional<uint64_t> PathMtu(const NetAddress& /*host*/) const override { return path_mtu; }
  std::optional<std::string> RunTool(const std::vector<std::string>& command) const override;

  std::vector<InterfaceAddress> addresses;
  std::map<std::string, std::string> tools;  // output by command line
  std::optional<uint64_t> path_mtu;          // of the way to any server
  bool permitted = true;                     // device files may be opened
};

// A table that shows devices that a test made; nothing but listing, opening and asking works.
class MadeUpVerbs final : public verbs::ForwardingVerbs {
 public:
  MadeUpVerbs();
  ~MadeUpVerbs() override;

  struct Answers {
    ibv_device_attr attributes{};
    ibv_port_attr port{};
    ibv_device device{};
    ibv_context context{};
  };
  // Generous limits, MTU 1024 of 4096.
  Answers& Add(const std::string& name);
  Answers& at(const std::string& name) { return *devices_.at(name); }
  void Hide(const std::string& name) { devices_.erase(name); }

  const char* fabric() const override { return "verbs"; }
  ibv_device** GetDeviceList(int* count) override;
  void FreeDeviceList(ibv_device** list) override;
  ibv_context* OpenDevice(ibv_device* device) override;
  int CloseDevice(ibv_context* context) override;
  int QueryDevice(ibv_context* context, ibv_device_attr* attr) override;
  int QueryPort(ibv_context* context, uint8_t port, ibv_port_attr* attr) override;

  int open_error = 0;

 private:
  std::map<std::string, std::unique_ptr<Answers>> devices_;
};

class MadeUpMachine {
 public:
  MadeUpMachine();
  ~MadeUpMachine();

  // Writes a file; its folders are made.
  void File(const std::string& path, const std::string& content);
  void Link(const std::string& path, const std::string& target);
  void Remove(const std::string& path);

  // Devices with one active port, with kernel files, provider, address and GIDs.
  void AddMlx5();        // "mlx5_0" on ens1, 10.0.0.1, MTU 4200
  void AddRxe();         // "rxe0" on d0, 192.168.77.1, MTU 1500
  void AddSiw();         // "siw0" on e0, 192.168.78.1, MTU 1500
  void AddInfiniBand();  // "ibp1s0" (mlx5), LID 17, IPoIB interface ib0, 10.1.0.1
  // Settings that NVIDIA's driver shows when all is as recommended.
  void AddCongestionSettings();
  void Address(const std::string& interface, const std::string& address);

  Report Examine();
  // The check with this id (of this subject); a failed expectation if there is none.
  Check Find(const std::string& id, const std::string& subject = "");

  MadeUpSystem& system() { return *system_; }
  MadeUpVerbs& verbs() { return verbs_; }
  Options& options() { return options_; }

 private:
  // Files that all devices have. `type` as in node_type.
  void AddDevice(const std::string& name, const std::string& type, const std::string& link_layer,
                 const std::string& provider);
  void AddGid(const std::string& device, int index, const std::string& gid,
              const std::string& netdev);
  void AddNetdev(const std::string& name, const std::string& mac, int mtu);

  std::filesystem::path root_;
  std::unique_ptr<MadeUpSystem> system_;
  MadeUpVerbs verbs_;
  Options options_;
};

}  // namespace verbena::cli::doctor
