// The families of checks. Each adds its findings to the context's report and never fails itself.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/doctor/rdma_devices.h"
#include "client/cli/doctor/report.h"
#include "client/cli/doctor/system_view.h"
#include "common/verbs/verbs_api.h"
#include "verbena/options.h"

namespace verbena::cli::doctor {

// What the user asks for.
struct Options {
  std::string server = {};           // "ADDR:PORT"; empty: no server is tried
  verbena::Options connection = {};  // fabric, times and network options; depth 1 and no cache
  uint64_t memory = 0;   // bytes of the region that a server here is to have; 0: no server here
  uint32_t workers = 0;  // of that server; 0: as many as it takes by itself
};

// What libibverbs says of a device that it could open.
struct DeviceAnswers {
  ibv_device_attr attributes{};
  bool stages_reads = false;           // a server READs into memory apart from its region
  std::map<int, ibv_port_attr> ports;  // by number
};

struct Context {
  const Options& options;
  const SystemView& system;
  verbs::VerbsApi& verbs;  // rdma-core's table
  verbs::VerbsApi& soft;   // the software device's
  Report& report;
  std::vector<RdmaDevice> devices;               // of the kernel
  std::map<std::string, DeviceAnswers> answers;  // by device; those that were opened

  void Ok(std::string id, std::string subject, std::string finding,
          std::vector<Figure> figures = {}) const {
    Add(Status::kOk, std::move(id), std::move(subject), std::move(finding), {}, std::move(figures));
  }
  void Warn(std::string id, std::string subject, std::string finding, std::string remedy,
            std::vector<Figure> figures = {}) const {
    Add(Status::kWarn, std::move(id), std::move(subject), std::move(finding), std::move(remedy),
        std::move(figures));
  }
  void Fail(std::string id, std::string subject, std::string finding, std::string remedy,
            std::vector<Figure> figures = {}) const {
    Add(Status::kFail, std::move(id), std::move(subject), std::move(finding), std::move(remedy),
        std::move(figures));
  }
  void Add(Status status, std::string id, std::string subject, std::string finding,
           std::string remedy, std::vector<Figure> figures) const {
    report.Add({.status = status,
                .id = std::move(id),
                .subject = std::move(subject),
                .finding = std::move(finding),
                .remedy = std::move(remedy),
                .figures = std::move(figures)});
  }
};

// drivers.cc: packages, kernel modules, whether there are devices, their providers, device files.
// Fills Context::answers.
void CheckPackages(const Context& context);
void CheckModules(const Context& context);
void CheckDevices(Context& context);

// ports.cc: link, link layer, GID table, MTU.
void CheckPorts(const Context& context);

// limits.cc: what devices and this process allow.
void CheckDeviceLimits(const Context& context);
void CheckHugePages(const Context& context);
void CheckOpenFiles(const Context& context);

// memory.cc
void CheckMemory(const Context& context);
void CheckLockedMemory(const Context& context);

// container.cc
void CheckContainer(const Context& context);

// congestion.cc: PFC, ECN, trust, traffic class; counters.cc: what has gone wrong so far.
void CheckCongestion(const Context& context);
void CheckCounters(const Context& context);

// software_device.cc
void CheckSoftwareDevice(const Context& context);

// server.cc: address, route, a connect, SENDs and READs.
void CheckServer(const Context& context);

}  // namespace verbena::cli::doctor
