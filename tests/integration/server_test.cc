// verbena-server as a program: flags, start, log, end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/integration/eventually.h"
#include "tests/integration/fabric_under_test.h"
#include "tests/integration/process.h"
#include "tests/integration/raw_client.h"

namespace verbena::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using wire::OpCode;
using wire::ResultCode;

struct Ended {
  ExitStatus exit;
  std::string out;
  std::string err;
};

// Runs a server that is expected to refuse to start.
Ended RunServer(std::vector<std::string> flags, Host host = Host::kServer) {
  auto process = Process::Start(
      {.program = ProgramPath("verbena-server"), .args = std::move(flags), .host = host});
  EXPECT_TRUE(process.ok()) << process.status().ToString();
  if (!process.ok()) return {};
  const auto exit = (*process)->WaitForExit();
  EXPECT_TRUE(exit.ok()) << exit.status().ToString();
  return {exit.ok() ? *exit : ExitStatus{}, (*process)->out(), (*process)->err()};
}

struct BadFlag {
  std::string flag;
  std::string says;
};

class BadFlagTest : public ::testing::TestWithParam<BadFlag> {};

TEST_P(BadFlagTest, IsRefusedWithNameAndRange) {
  const Ended ended = RunServer({FabricFlag(), ListenFlag(), GetParam().flag});
  EXPECT_TRUE(ended.exit.exited);
  EXPECT_EQ(ended.exit.code, 2);
  const std::string name = GetParam().flag.substr(2, GetParam().flag.find('=') - 2);
  EXPECT_THAT(ended.err, AllOf(HasSubstr(name), HasSubstr(GetParam().says)));
}

INSTANTIATE_TEST_SUITE_P(
    Flags, BadFlagTest,
    ::testing::Values(
        BadFlag{"--no_such_flag=1", "unknown flag"}, BadFlag{"--workers=0", "1 to 256"},
        BadFlag{"--workers=257", "1 to 256"}, BadFlag{"--workers=many", "1 to 256"},
        BadFlag{"--memory=1MiB", "4MiB to"}, BadFlag{"--memory=lots", "lots"},
        BadFlag{"--fabric=tcp", "auto, verbs or soft"}, BadFlag{"--srq=on", "auto or off"},
        BadFlag{"--window=1025", "1 to 1024"}, BadFlag{"--srq_depth=1", "2 (--window and 1) to"},
        BadFlag{"--max_connections=70000", "0 to 65535"},
        BadFlag{"--max_value_size=2GiB", "1B to 1GiB"}, BadFlag{"--max_value_size=0", "1B to 1GiB"},
        BadFlag{"--compaction_rate=2TiB", "0B to 1TiB"},
        BadFlag{"--compaction_rate=fast", "not a size"}, BadFlag{"--poll_us=-1", "0 to 1000000"},
        BadFlag{"--log_level=loud", "trace, debug"}, BadFlag{"--drain_seconds=-1", "0 to 3600"},
        BadFlag{"--eviction=lru", "none, s3fifo or clock"},
        BadFlag{"--eviction=", "none, s3fifo or clock"},
        BadFlag{"--ordered_index=maybe", "on or off"}, BadFlag{"--ordered_index=true", "on or off"},
        BadFlag{"--expiry_tick=999us", "1ms to 60s"}, BadFlag{"--expiry_tick=61s", "1ms to 60s"},
        BadFlag{"--expiry_tick=10", "1ms to 60s"}, BadFlag{"--expiry_tick=soon", "1ms to 60s"},
        BadFlag{"--session_linger=-1s", "0s to 24h"}, BadFlag{"--session_linger=2", "0s to 24h"},
        BadFlag{"--listen=127.0.0.1", "no port"},
        BadFlag{"--listen=127.0.0.1:70000", "0 to 65535"}));

TEST(ServerStart, ArgumentsThatAreNoFlagsAreRefused) {
  const Ended ended = RunServer({"7400"});
  EXPECT_EQ(ended.exit.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("unexpected argument '7400'"));
}

TEST(ServerStart, HelpTeaches) {
  const Ended ended = RunServer({"--help"});
  EXPECT_EQ(ended.exit.code, 0);
  EXPECT_THAT(ended.out, AllOf(HasSubstr("--listen=127.0.0.1:7400"), HasSubstr("--memory=1GiB"),
                               HasSubstr("--max_connections"), HasSubstr("SIGTERM"),
                               HasSubstr("Exit codes"), Not(HasSubstr("tab_completion"))));
}

TEST(ServerStart, PortInUse) {
  auto server = ServerProcess::Start();
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  const Ended ended =
      RunServer({FabricFlag(), "--memory=64MiB", "--listen=" + (*server)->address()});
  EXPECT_EQ(ended.exit.code, 1);
  EXPECT_THAT(ended.err, AllOf(HasSubstr((*server)->address()), HasSubstr("port is in use")));
}

TEST(ServerStart, AddressThatIsNotLocal) {
  const Ended ended = RunServer({FabricFlag(), "--listen=192.0.2.1:7400"});
  EXPECT_EQ(ended.exit.code, 1);
  EXPECT_THAT(ended.err, HasSubstr("192.0.2.1 is not an address of this machine"));
}

TEST(ServerStart, MoreMemoryThanThereIs) {
  const Ended ended = RunServer({FabricFlag(), ListenFlag(), "--memory=200TiB"});
  EXPECT_EQ(ended.exit.code, 1);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("--memory=200TiB"), HasSubstr("available")));
}

// Loopback addresses are on no RDMA device, whatever the machine has.
constexpr char kLoopback[] = "--listen=127.0.0.1:0";

TEST(ServerStart, NoDeviceHasTheAddress) {
  const Ended ended = RunServer({"--fabric=verbs", kLoopback, "--memory=16MiB"});
  EXPECT_EQ(ended.exit.code, 1);
  EXPECT_THAT(ended.err, HasSubstr("no RDMA device has the address 127.0.0.1"));
  const bool real = FabricName() == "verbs";
  EXPECT_THAT(ended.err, HasSubstr(real ? "addresses of this machine have one"
                                        : "no address of this machine has one"));
}

TEST(ServerStart, PortFileThatCannotBeWritten) {
  const Ended ended =
      RunServer({FabricFlag(), ListenFlag(), "--memory=16MiB", "--port_file=/no/such/folder/port"});
  EXPECT_EQ(ended.exit.code, 1);
  EXPECT_THAT(ended.err, HasSubstr("--port_file=/no/such/folder/port"));
  EXPECT_THAT(ended.err, Not(HasSubstr("touching memory"))) << "it was known before";
}

// As a daemon without any of them: what is logged must not go into the sockets and event counters
// that would get their numbers.
TEST(ServerStart, WithStandardDescriptorsClosedItServes) {
  const std::string path = ::testing::TempDir() + "/verbena-closed-" + std::to_string(getpid());
  ProcessOptions options;
  options.program = "/bin/bash";
  options.args = {"-c",
                  "echo $$ >\"$0.pid\"; exec \"$@\" <&- >&- 2>&-",
                  path,
                  ProgramPath("verbena-server"),
                  FabricFlag(),
                  "--listen=" + LocalAddress(),
                  "--memory=16MiB",
                  "--log_level=debug",
                  "--port_file=" + path};
  auto process = Process::Start(std::move(options));
  ASSERT_TRUE(process.ok()) << process.status();
  ASSERT_TRUE(Eventually([&] { return std::filesystem::exists(path); }));
  std::string pid;
  std::ifstream(path + ".pid") >> pid;
  for (const char* fd : {"0", "1", "2"}) {
    EXPECT_EQ(std::filesystem::read_symlink("/proc/" + pid + "/fd/" + fd), "/dev/null");
  }
  (*process)->Signal(SIGTERM);
  const auto exit = (*process)->WaitForExit(kPatience);
  ASSERT_TRUE(exit.ok()) << exit.status();
  EXPECT_EQ(exit->code, 0);
  std::filesystem::remove(path);
  std::filesystem::remove(path + ".pid");
}

TEST(ServerStart, PortFileHasTheAddress) {
  const std::string path = ::testing::TempDir() + "/verbena-port-" + std::to_string(getpid());
  auto server = ServerProcess::Start({"--port_file=" + path}, Host::kHere);
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  std::ifstream file(path);
  std::string line;
  EXPECT_TRUE(std::getline(file, line));
  EXPECT_EQ(line, (*server)->address());
  std::filesystem::remove(path);
}

TEST(ServerStart, BannerNamesEverything) {
  auto server = ServerProcess::Start({"--workers=2", "--max_connections=100"});
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  ASSERT_TRUE((*server)->process().WaitForOutput("ready " + (*server)->address()).ok());
  const std::string log = (*server)->process().err();
  for (const char* part : {"device ", "port 1", "MTU ", "region       64MiB",
                           "pages: ", "values       up to ", "eviction     none: ", "SRQ 4096",
                           "CQ 8192", "QP 40", "window 32", "100 admitted", "2 workers"}) {
    EXPECT_THAT(log, HasSubstr(part));
  }
  EXPECT_THAT(log, HasSubstr(FabricName() == "soft" ? "SOFT" : "VERBS"));
  EXPECT_THAT(log, HasSubstr("link layer " + LinkLayer()));
  EXPECT_THAT(log, HasSubstr(DeviceCapabilities().gids() ? ", GID " : ", no GID,"));
  EXPECT_THAT(log, HasSubstr("listening    " + (*server)->address()));
}

TEST(ServerStart, TheBannerNamesTheEvictionPolicy) {
  for (const char* flag : {"--eviction=s3fifo", "--eviction=clock"}) {
    auto server = ServerProcess::Start({flag}, Host::kHere);
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    ASSERT_TRUE((*server)->process().WaitForOutput("ready").ok());
    EXPECT_THAT((*server)->process().err(), HasSubstr("eviction     s3fifo: "));
  }
}

TEST(ServerStart, TheBannerTellsHowLargeAValueTheRegionHolds) {
  const std::pair<const char*, const char*> cases[] = {
      {"1MiB", "values       up to 1MiB\n"},
      {"1GiB", "about 61MiB (--max_value_size=1GiB needs a larger --memory)"}};
  for (const auto& [limit, said] : cases) {
    auto server = ServerProcess::Start({std::string("--max_value_size=") + limit}, Host::kHere);
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    ASSERT_TRUE((*server)->process().WaitForOutput("ready").ok());
    EXPECT_THAT((*server)->process().err(), HasSubstr(said));
  }
}

TEST(ServerStart, AutoSaysWhyThereIsNoRdma) {
  auto server = ServerProcess::Start({"--fabric=auto", kLoopback}, Host::kHere);
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  ASSERT_TRUE((*server)->process().WaitForOutput("ready").ok());
  EXPECT_THAT((*server)->process().err(), AllOf(HasSubstr("no RDMA "), HasSubstr("SOFT")));
}

TEST(ServerStart, Flagfile) {
  std::string folder = (std::filesystem::temp_directory_path() / "verbena-flags-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/flags";
  std::ofstream(path) << "--memory=32MiB\n--max_connections=7\n";
  auto server = ServerProcess::Start({"--flagfile=" + path}, Host::kHere);
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  ASSERT_TRUE((*server)->process().WaitForOutput("ready").ok());
  EXPECT_THAT((*server)->process().err(),
              AllOf(HasSubstr("region       32MiB"), HasSubstr("7 admitted")));
  std::filesystem::remove_all(folder);
}

TEST(ServerStart, UnknownFlagInAFlagfile) {
  const std::string path =
      ::testing::TempDir() + "/verbena-wrong-" + std::to_string(getpid()) + ".flags";
  std::ofstream(path) << "--memory=32MiB\n--memry=64MiB\n";
  const Ended ended = RunServer({FabricFlag(), ListenFlag(), "--flagfile=" + path}, Host::kHere);
  EXPECT_EQ(ended.exit.code, 2);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("unknown flag --memry"), HasSubstr("line 2")));
  std::filesystem::remove(path);
}

class StopTest : public ::testing::TestWithParam<int> {};

TEST_P(StopTest, DrainsAndExitsWithZero) {
  auto server = ServerProcess::Start();
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  auto client = RawClient::ConnectAndGreet(Fabric(), (*server)->address());
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  ASSERT_EQ((*client)->Call(OpCode::kPut, "key", "value")->code(), ResultCode::kOk);
  (*server)->process().Signal(GetParam());
  EXPECT_TRUE((*client)->WaitClosed().ok());
  const auto exit = (*server)->process().WaitForExit();
  ASSERT_TRUE(exit.ok()) << exit.status().ToString();
  EXPECT_TRUE(exit->exited);
  EXPECT_EQ(exit->code, 0);
  EXPECT_THAT((*server)->process().err(), AllOf(HasSubstr("stopped"), Not(HasSubstr("cut off"))));
}

INSTANTIATE_TEST_SUITE_P(Signals, StopTest, ::testing::Values(SIGTERM, SIGINT));

TEST(ServerStop, WhileClientsKeepPutting) {
  auto server = ServerProcess::Start();
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  auto client = Process::Start(
      {.program = ProgramPath("server_test_client"), .args = {(*server)->address(), "puts"}});
  ASSERT_TRUE(client.ok());
  ASSERT_TRUE((*client)->WaitForOutput("running").ok());
  const auto exit = (*server)->Stop();
  ASSERT_TRUE(exit.ok()) << exit.status().ToString();
  EXPECT_EQ(exit->code, 0);
  EXPECT_THAT((*server)->process().err(), Not(HasSubstr("cut off")));
}

TEST(ServerInfo, HasItsMembers) {
  auto server = ServerProcess::Start();
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  auto client = RawClient::ConnectAndGreet(Fabric(), (*server)->address());
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  ASSERT_EQ((*client)->Call(OpCode::kPut, "a", "12345")->code(), ResultCode::kOk);
  const auto answer = (*client)->Call(OpCode::kInfo);
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  ASSERT_EQ(answer->code(), ResultCode::kOk);
  const auto info = nlohmann::json::parse(answer->value);
  EXPECT_EQ(info["items"], 1);
  EXPECT_EQ(info["memory"]["total_bytes"], 64 << 20);
  EXPECT_EQ(info["memory"]["live_bytes"], 6);
  EXPECT_GT(info["memory"]["used_bytes"], info["memory"]["index_bytes"]);
  EXPECT_EQ(
      info["memory"]["free_bytes"].get<uint64_t>() + info["memory"]["used_bytes"].get<uint64_t>(),
      uint64_t{64} << 20);
  const auto& classes = info["heap"]["classes"];
  ASSERT_EQ(classes.size(), 1) << classes;
  EXPECT_EQ(classes[0]["items"], 1);
  EXPECT_EQ(classes[0]["used_bytes"], classes[0]["block_size"]);
  EXPECT_EQ(classes[0]["bytes"].get<uint64_t>(),
            classes[0]["used_bytes"].get<uint64_t>() + classes[0]["free_bytes"].get<uint64_t>());
  EXPECT_EQ(info["connections"], 1);
  EXPECT_EQ(info["fabric"], FabricName());
  EXPECT_EQ(info["link_layer"], LinkLayer());
  EXPECT_EQ(info["address"], (*server)->address());
  EXPECT_EQ(info["limits"]["window"], 32);
  EXPECT_EQ(info["queues"]["receive_cq_depth"].get<int>(),
            2 * info["queues"]["srq_depth"].get<int>());
  EXPECT_EQ(info["expiry"]["late_seconds"], 0);
  EXPECT_EQ(info["compaction"]["most_waited_bytes"], 0);
  EXPECT_EQ(info["operations"]["put"]["ok"], 1);
  EXPECT_EQ(info["counters"]["requests"], 3);
  for (const char* name : {"version", "device", "port", "link_layer", "gid", "mtu", "epoch",
                           "uptime_seconds", "workers"}) {
    EXPECT_TRUE(info.contains(name)) << name;
  }
}

// Whatever the clients do then: the free blocks that a worker keeps at hand hold no page back.
TEST(ServerInfo, WhenEverythingIsDeletedAllPagesAreFreeAgain) {
  auto server = ServerProcess::Start({"--memory=64MiB", "--workers=2"});
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  const auto clients = [&] { return RawClient::ConnectAndGreet(Fabric(), (*server)->address()); };
  auto one = clients();
  auto two = clients();
  ASSERT_TRUE(one.ok() && two.ok());
  for (int i = 0; i < Scaled(400, 100); ++i) {
    RawClient& client = i % 2 == 0 ? **one : **two;
    const std::string value(static_cast<size_t>(i) * 16 % 8000, 'v');
    ASSERT_EQ(client.Call(OpCode::kPut, absl::StrCat(i), value)->code(), ResultCode::kOk);
  }
  for (int i = 0; i < Scaled(400, 100); ++i) {
    ASSERT_EQ((*one)->Call(OpCode::kDelete, absl::StrCat(i))->code(), ResultCode::kOk);
  }
  nlohmann::json heap;
  const auto all_free = [&](RawClient& client) {
    const auto answer = client.Call(OpCode::kInfo);
    if (!answer.ok()) return false;
    heap = nlohmann::json::parse(answer->value, nullptr, false)["heap"];
    return heap["slab_pages"] == 0 && heap["run_pages"] == 0 &&
           heap["free_pages"].get<int>() + heap["segment_pages"].get<int>() == heap["pages"];
  };
  EXPECT_TRUE(Eventually([&] { return all_free(**two); })) << heap;
  // And when those that have changed something have left.
  ASSERT_EQ((*one)->Call(OpCode::kPut, "a", "v")->code(), ResultCode::kOk);
  ASSERT_EQ((*one)->Call(OpCode::kDelete, "a")->code(), ResultCode::kOk);
  one->reset();
  two->reset();
  auto later = clients();
  ASSERT_TRUE(later.ok()) << later.status().ToString();
  EXPECT_TRUE(Eventually([&] { return all_free(**later); })) << heap;
}

// What does not fit the client's messages comes in parts, all of one moment.
TEST(ServerInfo, InParts) {
  auto server = ServerProcess::Start();
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  RawClientOptions options;
  options.receive_size = wire::kMinMessage;
  auto client = RawClient::ConnectAndGreet(Fabric(), (*server)->address(), options);
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  const auto ask = [&](uint64_t begin) {
    wire::OperationHeader header{};
    header.argument = begin;
    return (*client)->CallWith(header, OpCode::kInfo, {});
  };
  std::string text;
  int parts = 0;
  uint64_t left = 0;
  do {
    const auto part = ask(text.size());
    ASSERT_TRUE(part.ok()) << part.status().ToString();
    ASSERT_EQ(part->code(), ResultCode::kOk);
    ASSERT_FALSE(part->value.empty());
    if (parts++ > 0) {
      EXPECT_EQ(part->header.argument + part->value.size(), left);
    }
    left = part->header.argument;
    text += part->value;
    // Between the parts the server changes.
    ASSERT_EQ((*client)->Call(OpCode::kPut, absl::StrCat(parts), "v")->code(), ResultCode::kOk);
  } while (left > 0);
  EXPECT_GE(parts, 3);
  const auto info = nlohmann::json::parse(text, nullptr, false);
  ASSERT_TRUE(info.is_object()) << text;
  EXPECT_EQ(info["items"], 0);
  for (const uint64_t begin : {text.size(), uint64_t{1}, UINT64_MAX}) {
    const auto none = ask(begin);
    ASSERT_TRUE(none.ok()) << none.status().ToString();
    EXPECT_EQ(none->code(), ResultCode::kNotFound) << begin;
  }
}

// The names of all members, at any depth.
void CollectNames(const nlohmann::json& value, std::set<std::string>* names) {
  for (const auto& [name, member] : value.items()) {
    if (value.is_object()) names->insert(name);
    if (member.is_structured()) CollectNames(member, names);
  }
}

TEST(ServerInfo, EveryMemberIsExplained) {
  std::ifstream file(VERBENA_OPERATIONS_MD);
  const std::string manual{std::istreambuf_iterator<char>(file), {}};
  auto server = ServerProcess::Start();
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  auto client = RawClient::ConnectAndGreet(Fabric(), (*server)->address());
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  const auto answer = (*client)->Call(OpCode::kInfo);
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  std::set<std::string> names;
  CollectNames(nlohmann::json::parse(answer->value), &names);
  EXPECT_TRUE(names.contains("peer_left")) << answer->value;
  for (const std::string& name : names) {
    EXPECT_THAT(manual, HasSubstr("`" + name + "`")) << "in docs/operations.md";
  }
}

TEST(ServerIdle, UsesNoProcessor) {
  auto server = ServerProcess::Start();
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  auto client = RawClient::ConnectAndGreet(Fabric(), (*server)->address());
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  ASSERT_EQ((*client)->Call(OpCode::kPing, "", "x")->value, "x");
  const auto before = (*server)->process().CpuTime();
  ASSERT_TRUE(before.ok());
  // What is measured is the passing of time itself.
  std::this_thread::sleep_for(std::chrono::seconds(2));
  const auto after = (*server)->process().CpuTime();
  ASSERT_TRUE(after.ok());
  EXPECT_LT(*after - *before, std::chrono::milliseconds(20));
}

}  // namespace
}  // namespace verbena::testing
