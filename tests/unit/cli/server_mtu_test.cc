// Which of a server's adapters the doctor compares with this end of the route.
#include "client/cli/doctor/server_mtu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace verbena::cli::doctor {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kTwoDevices[] = R"({"adapters":[
  {"fabric":"verbs","device":"siw0","mtu":1024,
   "listeners":[{"address":"192.168.78.1:7400","mtu":1024},
                {"address":"[fd78::1]:7400","mtu":1024}]},
  {"fabric":"verbs","device":"rxe0","mtu":2048,
   "listeners":[{"address":"192.168.77.1:7400","mtu":2048},
                {"address":"[fd77::1]:7400","mtu":4096}]},
  {"fabric":"soft","device":"vsoft0","mtu":512,
   "listeners":[{"address":"192.168.77.1:7400","mtu":512}]}]})";

std::vector<uint64_t> Mtus(const std::string& info, const char* server) {
  return ServerMtus(info, "verbs", *NetAddress::Parse(server));
}

TEST(ServerMtu, OfTheAdapterThatListensOnTheAddress) {
  EXPECT_THAT(Mtus(kTwoDevices, "192.168.77.1:7400"), ElementsAre(2048));
  EXPECT_THAT(Mtus(kTwoDevices, "192.168.78.1:7400"), ElementsAre(1024));
  EXPECT_THAT(Mtus(kTwoDevices, "[fd77::1]:7400"), ElementsAre(4096)) << "of its own port";
}

TEST(ServerMtu, OfAllAdaptersWhereNoneSaysThatItListensThere) {
  EXPECT_THAT(Mtus(kTwoDevices, "10.0.0.1:7400"), ElementsAre(1024, 2048));
}

TEST(ServerMtu, AServerThatMakesNoSenseTellsNothing) {
  for (const char* info :
       {"", "{", "[]", "null", R"({"adapters":7})", R"({"adapters":[1,"x",null]})",
        R"({"adapters":[{"fabric":7,"mtu":1024}]})",
        R"({"adapters":[{"fabric":"verbs","mtu":"1024","listeners":{"mtu":1}}]})",
        R"({"adapters":[{"fabric":"verbs","mtu":-5,"listeners":[[],{"address":1,"mtu":2}]}]})"}) {
    EXPECT_THAT(Mtus(info, "192.168.77.1:7400"), IsEmpty()) << info;
  }
}

}  // namespace
}  // namespace verbena::cli::doctor
