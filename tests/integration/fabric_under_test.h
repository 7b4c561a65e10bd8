// What carries the integration tests. Environment variables choose it; without any, servers and
// clients meet on 127.0.0.1 on the software device.
//
//   VERBENA_TEST_FABRIC         "soft" or "verbs" (rdma-core)
//   VERBENA_TEST_ADDRESS        host address that servers listen on
//   VERBENA_TEST_LOCAL_ADDRESS  the same for a server within the test's own process (default:
//                               VERBENA_TEST_ADDRESS)
//   VERBENA_TEST_AGENT          ADDR:PORT of a process_agent on the servers' host (process.h)
//   VERBENA_TEST_SCALE          a factor for counts and times of work, such as 0.1
//   VERBENA_TEST_SOON_SECONDS   how long what happens at once may take
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "common/verbs/capabilities.h"
#include "common/verbs/verbs_api.h"

namespace verbena::testing {

// "soft" or "verbs", as the programs' --fabric and Options::fabric have it.
const std::string& FabricName();
verbs::VerbsApi& Fabric();

// "--fabric=soft"
std::string FabricFlag();
// "127.0.0.1:7400", "[fd77::1]:7400": where servers listen, port 0 for a free one.
std::string ServerAddress(int port = 0);
// The same in the test's own process.
std::string LocalAddress(int port = 0);
// "--listen=127.0.0.1:0"
std::string ListenFlag();
// The device that carries the tests' connections, on this host: what it can do, and its link layer
// ("Ethernet", "InfiniBand").
verbs::Capabilities DeviceCapabilities();
std::string LinkLayer();
// Whether servers run on another host than the test.
bool ServersAreRemote();

// `count` times the scale, `least` at least: for loops that would take too long on a slow fabric.
int Scaled(int count, int least = 1);

// An error is promised within 2 s; emulated processors, lost packets and sanitizers get more before
// it is a failure.
std::chrono::milliseconds Soon();

}  // namespace verbena::testing
