#include "client/cli/doctor/doctor.h"

namespace verbena::cli::doctor {

Report Examine(const Options& options, const SystemView& system, verbs::VerbsApi& verbs,
               verbs::VerbsApi& soft) {
  Report report;
  Context context = {.options = options,
                     .system = system,
                     .verbs = verbs,
                     .soft = soft,
                     .report = report,
                     .devices = {},
                     .answers = {}};
  if (options.connection.fabric != "soft") {
    context.devices = FindRdmaDevices(system);
    CheckPackages(context);
    CheckModules(context);
    CheckDevices(context);
    CheckPorts(context);
    CheckDeviceLimits(context);
  }
  CheckMemory(context);
  CheckLockedMemory(context);
  CheckHugePages(context);
  CheckOpenFiles(context);
  CheckContainer(context);
  if (options.connection.fabric != "soft") {
    CheckCongestion(context);
    CheckCounters(context);
  }
  CheckSoftwareDevice(context);
  CheckServer(context);
  return report;
}

const char* HelpText() {
  return R"(verbena-cli doctor: checks whether this machine, and a server, are fit for RDMA.

  verbena-cli doctor [--server=ADDR:PORT] [flags]

Each check is OK, WARN (works, but not as it should) or FAIL (does not work), with what was found and,
behind "->", what to do. Nothing is changed, neither here nor in the server. Root sees most.

What it looks at
  packages, modules      rdma-core and providers, kernel modules
  devices, provider, device_files, device
                         devices of the kernel, and whether libibverbs can use them
  link, address, gid, mtu, namespace
                         each port: link, IP addresses and their RoCE v2 entries, packet sizes
  limits, memory, memory_lock, huge_pages, open_files
                         what devices and this process allow, against a region of --memory
  container, cgroup      whether this is a container, and what it lacks
  pfc, ecn, trust, traffic_class, roce_version, congestion
                         RoCE flow and congestion control, where the driver shows it
  counters, cnp          losses, time-outs and congestion since the driver was loaded
  software_device        what --fabric=soft needs
  server_address, server_route, server_connect, server_mtu, server_send, server_read
                         with --server: each step to it, and how long it took

Examples
  verbena-cli doctor                                  before a server is started here
  verbena-cli doctor --memory=64GiB --fabric=verbs    the same, for a large server that must have RDMA
  verbena-cli doctor --memory=0 --server=10.0.0.1:7400
                                                      on a client's machine
  verbena-cli doctor --json | jq '.checks[] | select(.status != "OK")'

Flags
  --server=ADDR:PORT   also try this server: 20 SENDs and 20 GETs of a key that is not there
  --memory=1GiB        the region of a server on this machine (its own --memory); 0: no server here
  --workers=0          workers of that server (its own --workers), 1 to 256; 0: as many as by default
  --fabric=auto        verbs: it is a failure if there is no RDMA device; soft: only what the software
                       device needs
  --timeout=5s         for each step with the server (1ms to 1h)
  --tos, --ack_timeout, --retry_count, --rnr_timer
                       for the connection to it; see verbena-cli --help
  --json               one JSON object: checks (id, subject, status, finding, remedy, figures), counts
                       and exit_status

Exit status
  0  all is well
  1  there are warnings
  2  there are failures, or the command line is wrong
  6  standard output could not be written
)";
}

}  // namespace verbena::cli::doctor
