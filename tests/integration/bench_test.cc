// verbena-bench against a real verbena-server: loads, runs, reports, and ends as it should.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/integration/eventually.h"
#include "tests/integration/fabric_under_test.h"
#include "tests/integration/process.h"

namespace verbena::testing {
namespace {

using ::testing::Gt;
using ::testing::HasSubstr;
using Json = nlohmann::json;

struct Outcome {
  int code = -1;
  std::string out;
  std::string err;
};

std::unique_ptr<Process> StartBench(std::vector<std::string> args) {
  ProcessOptions options;
  options.program = ProgramPath("verbena-bench");
  options.args = std::move(args);
  auto process = Process::Start(std::move(options));
  EXPECT_TRUE(process.ok()) << process.status();
  return process.ok() ? *std::move(process) : nullptr;
}

Outcome Finish(Process& process, std::chrono::milliseconds patience = kPatience) {
  const auto exit = process.WaitForExit(patience);
  EXPECT_TRUE(exit.ok()) << exit.status();
  if (!exit.ok()) return {};
  EXPECT_TRUE(exit->exited) << "signal " << exit->signal << "\n" << process.err();
  return {exit->code, process.out(), process.err()};
}

Outcome Bench(std::vector<std::string> args) {
  const auto process = StartBench(std::move(args));
  return process == nullptr ? Outcome{} : Finish(*process);
}

// The changes that a server has answered so far.
int64_t Puts(const std::string& server) {
  ProcessOptions options;
  options.program = ProgramPath("verbena-cli");
  options.args = {"--server=" + server, "--json", "--timeout=60s", "info"};
  const auto process = Process::Run(std::move(options));
  EXPECT_TRUE(process.ok()) << process.status();
  if (!process.ok()) return 0;
  const Json info = Json::parse((*process)->out(), nullptr, false);
  EXPECT_TRUE(info.contains("operations")) << (*process)->err();
  return info.contains("operations") ? info["operations"]["put"].value("ok", int64_t{0}) : 0;
}

// Whether somebody changes something on a server.
bool WaitForPuts(const std::string& server) {
  const int64_t before = Puts(server);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (Puts(server) == before) {
    if (std::chrono::steady_clock::now() > deadline) return false;
  }
  return true;
}

class BenchTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto server = ServerProcess::Start();
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = server->release();
    json_ = ::testing::TempDir() + "/verbena_bench_" + std::to_string(getpid()) + ".json";
    const Outcome loaded = Bench(Args("load"));
    ASSERT_EQ(loaded.code, 0) << loaded.out << loaded.err;
    loaded_ = ReadJson();
  }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
    std::remove(json_.c_str());
  }

  static std::vector<std::string> Args(const std::string& command,
                                       std::vector<std::string> more = {}) {
    std::vector<std::string> args = {command, "--server=" + server_->address(), "--records=2000",
                                     "--json=" + json_};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  static Json ReadJson() {
    std::ifstream file(json_);
    return Json::parse(file, nullptr, false);
  }

  static ServerProcess* server_;
  static std::string json_;
  static Json loaded_;
};
ServerProcess* BenchTest::server_ = nullptr;
std::string BenchTest::json_;
Json BenchTest::loaded_;

TEST_F(BenchTest, LoadReports) {
  EXPECT_EQ(loaded_["ops"]["insert"]["count"], 2000);
  EXPECT_EQ(loaded_["ops"]["insert"]["errors"], 0);
  EXPECT_EQ(loaded_["memory"]["items"], 2000);
  EXPECT_GT(loaded_["memory"]["bytes_per_item"], 100.0);
}

TEST_F(BenchTest, RunReportsWhatItDid) {
  const Outcome outcome = Bench(Args("run", {"--workload=a", "--operations=20000", "--depth=4",
                                             "--threads=2", "--connections=4", "--preload"}));
  ASSERT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("YCSB-A"));
  EXPECT_THAT(outcome.out, HasSubstr("fabric " + FabricName()));
  EXPECT_THAT(outcome.out, HasSubstr("wrong 0"));
  const Json json = ReadJson();
  const Json& read = json["ops"]["read"];
  const Json& update = json["ops"]["update"];
  EXPECT_EQ(read["count"].get<int>() + update["count"].get<int>(), 20000);
  EXPECT_EQ(read["errors"], 0);
  EXPECT_EQ(update["errors"], 0);
  for (const char* figure : {"mean", "p50", "p99", "p99.9", "max"}) {
    EXPECT_THAT(read["latency_us"][figure].get<double>(), Gt(0)) << figure;
    EXPECT_THAT(update["latency_us"][figure].get<double>(), Gt(0)) << figure;
  }
  EXPECT_THAT(json["throughput_ops_s"].get<double>(), Gt(0));
  EXPECT_GE(json["rdma"]["reads_per_get"], 1.0);
  // With a warm cache, beside as many updates; those that change an item while it is READ show.
  EXPECT_LE(json["rdma"]["reads_per_get"], 1.10);
  EXPECT_TRUE(json["rdma"]["read_retries"].is_number());
  EXPECT_TRUE(json["rdma"]["rpc_gets"].is_number());
  // Only a process of this host can be asked for its processor time.
  EXPECT_EQ(json["server"].contains("cpu_us_per_op"), !ServersAreRemote());
  EXPECT_EQ(json["verify"]["checked"], read["count"]);
  EXPECT_EQ(json["verify"]["wrong"], 0);
  EXPECT_FALSE(json.contains("baseline"));
  EXPECT_EQ(json["config"]["workload"], "a");
}

TEST_F(BenchTest, ScansReportWhatTheyFound) {
  const int operations = Scaled(1000, 400);
  const Outcome outcome = Bench(
      Args("run", {"--workload=e", "--operations=" + std::to_string(operations), "--threads=2"}));
  ASSERT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("YCSB-E"));
  EXPECT_THAT(outcome.out, HasSubstr("one operation at a time"));
  EXPECT_THAT(outcome.out, HasSubstr("items/s"));
  const Json json = ReadJson();
  const Json& scan = json["ops"]["scan"];
  EXPECT_EQ(scan["count"].get<int>() + json["ops"]["insert"]["count"].get<int>(), operations);
  EXPECT_EQ(scan["errors"], 0);
  EXPECT_THAT(scan["latency_us"]["p50"].get<double>(), Gt(0));
  EXPECT_THAT(json["scans"]["items_s"].get<double>(), Gt(0));
  // Uniform lengths of 1 to 100, but where the records end.
  EXPECT_NEAR(json["scans"]["items_per_scan"].get<double>(), 50, 5);
  EXPECT_EQ(json["verify"]["checked"], json["scans"]["items"]);
  EXPECT_EQ(json["verify"]["wrong"], 0);
  // The server has said where each item lies: one READ each, seldom a second.
  EXPECT_GE(json["rdma"]["reads_per_get"], 0.99);
  EXPECT_LE(json["rdma"]["reads_per_get"], 1.1);
}

TEST_F(BenchTest, ScansNeedAServerThatKeepsOrder) {
  auto server = ServerProcess::Start({"--ordered_index=off"});
  ASSERT_TRUE(server.ok()) << server.status();
  const Outcome outcome =
      Bench({"run", "--server=" + (*server)->address(), "--workload=e", "--records=10"});
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("YCSB-E needs scans"));
  EXPECT_THAT(outcome.err, HasSubstr("--ordered_index=off"));
  EXPECT_EQ(Bench({"compare", "--workload=e"}).code, 2);
}

TEST_F(BenchTest, BucketReadsShowWithTheCacheOff) {
  ASSERT_EQ(Bench(Args("run", {"--workload=c", "--operations=5000", "--cache_bytes=0"})).code, 0);
  const double off = ReadJson()["rdma"]["reads_per_get"];
  EXPECT_GE(off, 1.99);
  EXPECT_LE(off, 2.1);
  // How long it takes until the index is in the cache depends on the fabric.
  double on = off;
  for (const char* warmup : {"0.5", "5", "30"}) {
    if (on <= 1.02) break;
    ASSERT_EQ(Bench(Args("run", {"--workload=c", "--seconds=1",
                                 std::string("--warmup_seconds=") + warmup}))
                  .code,
              0);
    on = ReadJson()["rdma"]["reads_per_get"];
  }
  EXPECT_LE(on, 1.02);
  // Or it is there before the run begins.
  ASSERT_EQ(Bench(Args("run", {"--workload=c", "--operations=2000", "--preload"})).code, 0);
  EXPECT_LE(ReadJson()["rdma"]["reads_per_get"], 1.02);
  const Outcome outcome = Bench(Args("run", {"--preload", "--cache_bytes=0"}));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("there is no cache to fill"));
}

TEST_F(BenchTest, BaselineIsMeasuredBesideIt) {
  // The raw READs are of the server's own memory: it has to be on this host.
  auto server = ServerProcess::Start({}, Host::kHere);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string where = "--server=" + (*server)->address();
  ASSERT_EQ(Bench({"load", where, "--records=2000"}).code, 0);
  const auto process = StartBench({"run", where, "--records=2000", "--json=" + json_,
                                   "--operations=1000", "--baseline", "--depth=8"});
  ASSERT_NE(process, nullptr);
  // The rounds take more than a minute where a processor is emulated that others want too.
  const Outcome outcome = Finish(*process, 5 * kPatience);
  ASSERT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("raw READ"));
  const Json baseline = ReadJson()["baseline"];
  EXPECT_THAT(baseline["raw_read"]["p50_us"].get<double>(), Gt(0));
  EXPECT_THAT(baseline["raw_read"]["ops_s"].get<double>(), Gt(0));
  EXPECT_THAT(baseline["send_pingpong"]["p50_us"].get<double>(), Gt(0));
  EXPECT_THAT(baseline["storage_put"]["p50_us"].get<double>(), Gt(0));
  EXPECT_THAT(baseline["ratios"]["get_p50_over_raw_read"].get<double>(), Gt(0));
  EXPECT_EQ(baseline["method"]["rounds"], 9);
  EXPECT_EQ(baseline["method"]["depth"], 8);
}

TEST_F(BenchTest, MissingRecordsAreErrors) {
  const Outcome outcome = Bench(Args(
      "run", {"--records=4000", "--workload=c", "--distribution=uniform", "--operations=1000"}));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("first error"));
  EXPECT_THAT(ReadJson()["ops"]["read"]["errors"].get<int>(), Gt(300));
  EXPECT_EQ(Bench(Args("run", {"--records=4000", "--workload=c", "--distribution=uniform",
                               "--operations=1000", "--max_errors=1000"}))
                .code,
            0);
}

// Values that somebody else wrote are not the generator's.
TEST_F(BenchTest, WrongValuesAreNoticed) {
  auto server = ServerProcess::Start();
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string where = "--server=" + (*server)->address();
  ASSERT_EQ(Bench({"load", where, "--records=1"}).code, 0);
  ProcessOptions put;
  put.program = ProgramPath("verbena-cli");
  put.args = {where, "put", "user6284781860667377211", "not what was loaded"};
  const auto cli = Process::Run(std::move(put));
  ASSERT_TRUE(cli.ok() && (*cli)->WaitForExit()->code == 0);
  const Outcome outcome =
      Bench({"run", where, "--records=1", "--workload=c", "--operations=10", "--json=" + json_});
  EXPECT_EQ(outcome.code, 1) << outcome.out;
  EXPECT_EQ(ReadJson()["verify"]["wrong"], 10);
}

TEST_F(BenchTest, InterruptedRunReportsWhatThereIs) {
  const auto process = StartBench(Args("run", {"--workload=b", "--seconds=1000"}));
  ASSERT_NE(process, nullptr);
  // It handles the signal once it is running; before that the signal would simply end it.
  ASSERT_TRUE(WaitForPuts(server_->address()));
  process->Signal(SIGINT);
  const Outcome outcome = Finish(*process);
  EXPECT_EQ(outcome.code, 130) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("INTERRUPTED"));
  const Json json = ReadJson();
  EXPECT_EQ(json["interrupted"], true);
  EXPECT_THAT(json["ops"]["read"]["count"].get<int>(), Gt(0));
}

TEST_F(BenchTest, ServerKilledInTheMiddleEndsTheRun) {
  auto server = ServerProcess::Start();
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string where = "--server=" + (*server)->address();
  ASSERT_EQ(Bench({"load", where, "--records=1000"}).code, 0);
  const auto process = StartBench(
      {"run", where, "--records=1000", "--workload=a", "--seconds=1000", "--json=" + json_});
  ASSERT_NE(process, nullptr);
  ASSERT_TRUE(WaitForPuts((*server)->address()));
  (*server)->process().Signal(SIGKILL);
  const Outcome outcome = Finish(*process, std::chrono::seconds(20) + Soon());
  EXPECT_EQ(outcome.code, 3) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("ENDED EARLY"));
  EXPECT_TRUE(ReadJson().contains("connection_lost"));
}

// In every form of the results, and of several rates too.
TEST_F(BenchTest, ServerKilledInASweepLeavesAMarkedPart) {
  auto server = ServerProcess::Start();
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string where = "--server=" + (*server)->address();
  ASSERT_EQ(Bench({"load", where, "--records=1000"}).code, 0);
  const std::string page = json_ + ".html";
  const auto process =
      StartBench({"run", where, "--records=1000", "--workload=a", "--sweep=200,300",
                  "--seconds=1000", "--format=ycsb", "--json=" + json_, "--report=" + page});
  ASSERT_NE(process, nullptr);
  ASSERT_TRUE(WaitForPuts((*server)->address()));
  (*server)->process().Signal(SIGKILL);
  const Outcome outcome = Finish(*process, std::chrono::seconds(20) + Soon());
  EXPECT_EQ(outcome.code, 3) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("[OVERALL], Throughput(ops/sec)"));
  EXPECT_THAT(outcome.err, HasSubstr("ENDED EARLY"));
  const Json json = ReadJson();
  EXPECT_EQ(json["partial"], true);
  EXPECT_EQ(json["probes"].size(), 1u);
  std::ifstream file(page);
  const std::string html((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_THAT(html, HasSubstr("This run ended early"));
  EXPECT_THAT(html, HasSubstr("Response times by rate"));
  std::remove(page.c_str());
}

// The connection is made again, but to a server that has nothing of what the run began with.
TEST_F(BenchTest, ServerRestartedInTheMiddleEndsTheRun) {
  auto server = ServerProcess::Start();
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = (*server)->address();
  const std::string where = "--server=" + address;
  ASSERT_EQ(Bench({"load", where, "--records=1000"}).code, 0);
  const auto process = StartBench({"run", where, "--records=1000", "--workload=a", "--seconds=1000",
                                   "--timeout_seconds=60", "--json=" + json_});
  ASSERT_NE(process, nullptr);
  ASSERT_TRUE(WaitForPuts(address));
  (*server)->process().Signal(SIGKILL);
  ASSERT_TRUE((*server)->process().WaitForExit().ok());
  std::unique_ptr<ServerProcess> next;
  // Its port may be held for a moment by what is left of the one before.
  ASSERT_TRUE(Eventually([&] {
    auto again = ServerProcess::Start({"--listen=" + address});
    if (again.ok()) next = *std::move(again);
    return next != nullptr;
  }));
  const Outcome outcome = Finish(*process);
  EXPECT_EQ(outcome.code, 3) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("ENDED EARLY"));
  EXPECT_THAT(outcome.out, HasSubstr("restarted"));
  EXPECT_TRUE(ReadJson().contains("connection_lost"));
}

TEST_F(BenchTest, AnOpenLoopReportsBothTimes) {
  const Outcome outcome = Bench(Args("run", {"--workload=a", "--seconds=1.2", "--rate=500",
                                             "--arrival=poisson", "--status_interval=0.5"}));
  ASSERT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("latencies are response times"));
  EXPECT_THAT(outcome.out, HasSubstr("(poisson)"));
  EXPECT_THAT(outcome.err, HasSubstr("ops/s  p50 "));
  const Json json = ReadJson();
  EXPECT_EQ(json["open_loop"]["target_ops_s"], 500);
  EXPECT_THAT(json["open_loop"]["due"].get<int>(), Gt(100));
  EXPECT_GE(json["ops"]["read"]["response_us"]["max"], json["ops"]["read"]["service_us"]["p50"]);
  EXPECT_FALSE(json["series"].empty());
  EXPECT_EQ(json["config"]["rate"], 500);
  EXPECT_THAT(json["verbs_per_op"]["client"]["READs"].get<double>(), Gt(0.3));
  EXPECT_THAT(json["verbs_per_op"]["server"]["CQEs"].get<double>(), Gt(0.3));
}

TEST_F(BenchTest, OtherFormsOfTheResults) {
  const std::string prefix = ::testing::TempDir() + "/verbena_forms_" + std::to_string(getpid());
  const Outcome ycsb = Bench(Args("run", {"--workload=b", "--operations=2000", "--format=ycsb",
                                          "--csv=" + prefix + ".csv", "--hgrm=" + prefix}));
  ASSERT_EQ(ycsb.code, 0) << ycsb.out << ycsb.err;
  EXPECT_EQ(ycsb.out.rfind("[OVERALL], RunTime(ms), ", 0), 0u) << ycsb.out;
  EXPECT_THAT(ycsb.out, HasSubstr("[READ], Return=OK, "));
  const auto text = [](const std::string& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  EXPECT_THAT(text(prefix + ".csv"), HasSubstr("second,seconds,kind,count"));
  EXPECT_THAT(text(prefix + ".csv"), HasSubstr(",read,"));
  EXPECT_THAT(text(prefix + "-read.hgrm"), HasSubstr("#[Max"));
  EXPECT_THAT(text(prefix + "-update.hgrm"), HasSubstr("#[Max"));
  for (const char* ending : {".csv", "-read.hgrm", "-update.hgrm"}) {
    std::remove((prefix + ending).c_str());
  }
  const Outcome json = Bench(Args("run", {"--operations=100", "--format=json"}));
  EXPECT_TRUE(Json::parse(json.out, nullptr, false).contains("throughput_ops_s")) << json.out;
  EXPECT_EQ(Bench(Args("run", {"--operations=100", "--format=none"})).out, "");
}

TEST_F(BenchTest, SweepsRampsAndSearches) {
  const Outcome sweep = Bench(Args("run", {"--sweep=200,400", "--seconds=0.5"}));
  ASSERT_EQ(sweep.code, 0) << sweep.out << sweep.err;
  Json json = ReadJson();
  ASSERT_EQ(json["probes"].size(), 2u);
  EXPECT_EQ(json["probes"][1]["target_ops_s"], 400);
  EXPECT_TRUE(json["probes"][1]["latency_us"].contains("p99.9"));
  const Outcome ramp = Bench(Args("run", {"--ramp=100:300:100@0.3"}));
  ASSERT_EQ(ramp.code, 0) << ramp.out << ramp.err;
  EXPECT_EQ(ReadJson()["probes"].size(), 3u);
  // Any rate keeps that, if the machine lets the schedule be kept.
  const Outcome search = Bench(Args("run", {"--search=p50:100s", "--seconds=0.2"}));
  ASSERT_EQ(search.code, 0) << search.out << search.err;
  json = ReadJson();
  EXPECT_EQ(json["search"]["found"] == true,
            search.out.find("highest rate that keeps p50") != std::string::npos);
  EXPECT_GE(json["probes"].size(), 4u);
}

// An agent that listens on a port of its own.
struct AgentProcess {
  std::unique_ptr<Process> process;
  std::string address;
};
AgentProcess StartAgent() {
  AgentProcess agent;
  agent.process = StartBench({"agent", "--listen=127.0.0.1:0"});
  if (agent.process == nullptr) return agent;
  const std::string before = "listening on ";
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < deadline) {
    const std::string out = agent.process->out();
    const size_t at = out.find(before);
    const size_t end = out.find('\n');
    if (at != std::string::npos && end != std::string::npos) {
      agent.address = out.substr(at + before.size(), end - at - before.size());
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_FALSE(agent.address.empty()) << agent.process->err();
  return agent;
}

TEST_F(BenchTest, AgentsDoARunTogether) {
  AgentProcess one = StartAgent();
  AgentProcess two = StartAgent();
  const std::string agents = "--agents=" + one.address + "," + two.address;
  const Outcome loaded = Bench(Args("load", {agents, FabricFlag()}));
  ASSERT_EQ(loaded.code, 0) << loaded.out << loaded.err;
  EXPECT_EQ(ReadJson()["ops"]["insert"]["count"], 2000);
  const Outcome outcome =
      Bench(Args("run", {agents, FabricFlag(), "--operations=3000", "--threads=2"}));
  ASSERT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  Json json = ReadJson();
  EXPECT_EQ(json["ops"]["read"]["count"].get<int>() + json["ops"]["update"]["count"].get<int>(),
            3000);
  EXPECT_EQ(json["verify"]["wrong"], 0);
  EXPECT_EQ(json["config"]["agents"].size(), 2u);
  // YCSB's properties are theirs, too. The parts of read-modify-writes are no operations.
  const Outcome properties =
      Bench(Args("run", {agents, FabricFlag(), "-p", "operationcount=1000", "-p", "fieldcount=1",
                         "-p", "readproportion=0", "-p", "updateproportion=0", "-p",
                         "readmodifywriteproportion=1"}));
  ASSERT_EQ(properties.code, 0) << properties.out << properties.err;
  json = ReadJson();
  EXPECT_EQ(json["ops"]["read_modify_write"]["count"], 1000);
  EXPECT_EQ(json["ops"]["read"]["count"], 1000);
  EXPECT_NEAR(json["throughput_ops_s"].get<double>() * json["seconds"].get<double>(), 1000, 0.1);
  EXPECT_EQ(json["config"]["properties"]["fieldcount"], "1");
  // Percentiles of each second are known of all of them together.
  ASSERT_FALSE(json["series"].empty());
  EXPECT_THAT(json["series"][0]["ops"]["read"]["p99_us"].get<double>(), Gt(0));
  EXPECT_THAT(json["verbs_per_op"]["client"]["CQEs"].get<double>(), Gt(0.5));
  EXPECT_THAT(json["verbs_per_op"]["server"]["CQEs"].get<double>(), Gt(0));
  // Those that die in the middle are named, and the result is marked as a part.
  const auto process =
      StartBench(Args("run", {agents, FabricFlag(), "--workload=a", "--seconds=3"}));
  ASSERT_NE(process, nullptr);
  ASSERT_TRUE(WaitForPuts(server_->address()));
  two.process->Signal(SIGKILL);
  const Outcome part = Finish(*process);
  EXPECT_EQ(part.code, 3) << part.out << part.err;
  EXPECT_THAT(part.out, HasSubstr("AGENT LOST"));
  EXPECT_THAT(part.out, HasSubstr(two.address));
  json = ReadJson();
  EXPECT_EQ(json["partial"], true);
  EXPECT_THAT(json["ops"]["read"]["count"].get<int>(), Gt(0));
  // Nobody to do it.
  const Outcome nobody = Bench(Args("run", {"--agents=" + two.address, FabricFlag()}));
  EXPECT_EQ(nobody.code, 3) << nobody.err;
  EXPECT_THAT(nobody.err, HasSubstr(two.address));
  one.process->Signal(SIGTERM);
  EXPECT_EQ(Finish(*one.process).code, 0);
}

TEST_F(BenchTest, NoServerIsSaid) {
  const Outcome outcome = Bench({"run", "--server=" + ServerAddress(1), FabricFlag()});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr(ServerAddress(1)));
}

TEST(BenchUsage, WrongUsageIsRefused) {
  EXPECT_EQ(Bench({}).code, 2);
  const Outcome command = Bench({"walk", "--server=127.0.0.1:1"});
  EXPECT_EQ(command.code, 2);
  EXPECT_THAT(command.err, HasSubstr("walk"));
  const Outcome range = Bench({"run", "--server=127.0.0.1:1", "--depth=0"});
  EXPECT_EQ(range.code, 2);
  EXPECT_THAT(range.err, HasSubstr("--depth=0"));
  EXPECT_THAT(range.err, HasSubstr("1 to 1024"));
  const Outcome unknown = Bench({"run", "--server=127.0.0.1:1", "--dept=4"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("dept"));
  EXPECT_EQ(Bench({"run", "--server=127.0.0.1:1", "stray"}).code, 2);
}

TEST(BenchUsage, WrongPropertiesAreRefused) {
  const auto run = [](std::vector<std::string> more) {
    std::vector<std::string> args = {"run", "--server=127.0.0.1:1"};
    args.insert(args.end(), more.begin(), more.end());
    return Bench(args);
  };
  const Outcome unknown = run({"-p", "recordcuont=5"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("no property 'recordcuont'"));
  EXPECT_THAT(unknown.err, HasSubstr("the nearest is 'recordcount'"));
  const Outcome sum = run({"-p", "readproportion=0.5", "-p", "updateproportion=0.3"});
  EXPECT_EQ(sum.code, 2);
  EXPECT_THAT(sum.err, HasSubstr("the proportions add up to 0.8, not to 1"));
  const Outcome file = run({"-P", "/no/such/workload"});
  EXPECT_EQ(file.code, 2);
  EXPECT_THAT(file.err, HasSubstr("-P /no/such/workload: the file cannot be read"));
  const Outcome type = run({"-p", "measurementtype=raw"});
  EXPECT_EQ(type.code, 2);
  EXPECT_THAT(type.err, HasSubstr("--hgrm=PREFIX"));
}

// Bench with its output going where `redirection` of a shell says.
Outcome BenchInto(const std::string& redirection, const std::vector<std::string>& args,
                  const std::string& before = "") {
  ProcessOptions options;
  options.program = "/bin/bash";
  options.args = {"-c", before + "\"$@\" " + redirection, "bash", ProgramPath("verbena-bench")};
  options.args.insert(options.args.end(), args.begin(), args.end());
  auto process = Process::Start(std::move(options));
  EXPECT_TRUE(process.ok()) << process.status();
  return process.ok() ? Finish(**process) : Outcome{};
}

TEST_F(BenchTest, ResultsThatCannotBeWrittenAreAFailure) {
  const Outcome full = BenchInto(">/dev/full", Args("run", {"--operations=100"}));
  EXPECT_EQ(full.code, 6) << full.err;
  EXPECT_THAT(full.err, HasSubstr("standard output: No space left on device"));
  // Not into whatever descriptor would have got the number of the closed one.
  const Outcome closed = BenchInto(">&-", Args("run", {"--operations=100"}));
  EXPECT_EQ(closed.code, 6) << closed.err;
  EXPECT_THAT(closed.err, HasSubstr("standard output: Bad file descriptor"));
}

TEST_F(BenchTest, FullDisksAreFailuresAndTheTextIsStillThere) {
  for (const char* flag : {"--json=/dev/full", "--csv=/dev/full", "--report=/dev/full"}) {
    const Outcome outcome = Bench(
        {"run", "--server=" + server_->address(), "--records=2000", "--operations=100", flag});
    EXPECT_EQ(outcome.code, 6) << flag << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("No space left on device"));
    EXPECT_THAT(outcome.out, HasSubstr("throughput"));
  }
}

// One of several names leads to the full disk.
TEST_F(BenchTest, HistogramsOnAFullDiskAreAFailure) {
  const std::string prefix = ::testing::TempDir() + "/verbena_full_" + std::to_string(getpid());
  const std::string file = prefix + "-read.hgrm";
  ASSERT_EQ(symlink("/dev/full", file.c_str()), 0);
  const Outcome outcome = Bench({"run", "--server=" + server_->address(), "--records=2000",
                                 "--operations=100", "--workload=c", "--hgrm=" + prefix});
  std::remove(file.c_str());
  EXPECT_EQ(outcome.code, 6) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("--hgrm: "));
  EXPECT_THAT(outcome.err, HasSubstr("No space left on device"));
  EXPECT_THAT(outcome.out, HasSubstr("throughput"));
}

TEST(BenchUsage, HelpThatCannotBeWrittenIsAFailure) {
  EXPECT_EQ(BenchInto(">/dev/full", {"--help"}).code, 6);
  EXPECT_EQ(BenchInto(">/dev/full", {"--version"}).code, 6);
}

// Where no results come, the file says why.
TEST(BenchUsage, ErrorsInTheJsonFile) {
  const std::string path =
      ::testing::TempDir() + "/verbena_bench_error_" + std::to_string(getpid()) + ".json";
  struct Case {
    std::vector<std::string> args;
    int code;
    const char* message;
  };
  for (const Case& c :
       {Case{{"run", "--server=127.0.0.1:1", "--depth=0"}, 2, "--depth=0"},
        Case{{"run", "--server=127.0.0.1:1", "--dept=4"}, 2, "dept"},
        Case{{"walk", "--server=127.0.0.1:1"}, 2, "walk"},
        Case{{"run", "--server=[fe80::1]:7400"}, 2, "[fe80::1%INTERFACE]:7400"},
        Case{{"load", "--server=127.0.0.1:1", "--fabric=soft"}, 3, "127.0.0.1:1"},
        // A host that there is not is a server that is not there.
        Case{{"load", "--server=no.such.host.invalid:7400"}, 3, "'no.such.host.invalid"}}) {
    SCOPED_TRACE(c.args.back());
    std::vector<std::string> args = c.args;
    args.push_back("--json=" + path);
    const Outcome outcome = Bench(args);
    EXPECT_EQ(outcome.code, c.code) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(c.message));
    std::ifstream file(path);
    const Json json = Json::parse(file, nullptr, false);
    ASSERT_TRUE(json.contains("error")) << json;
    EXPECT_EQ(json["error"]["exit_status"], c.code);
    EXPECT_THAT(json["error"]["message"].get<std::string>(), HasSubstr(c.message));
    std::remove(path.c_str());
  }
}

TEST(BenchWithoutServer, SaysWhatItWaitsFor) {
  auto server = ServerProcess::Start();
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_TRUE((*server)->process().Freeze().ok());
  const Outcome outcome =
      Bench({"load", "--server=" + (*server)->address(), "--timeout_seconds=2.5"});
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("verbena-bench: waiting for the server at " +
                                     (*server)->address() + " to take a connection, until "));
  EXPECT_THAT(outcome.err, HasSubstr(" at the latest (--timeout_seconds=2.5)\n"));
  (*server)->process().Signal(SIGCONT);
}

TEST(BenchWithoutServer, SaysWhatItWaitsForInTheMiddle) {
  auto server = ServerProcess::Start();
  ASSERT_TRUE(server.ok()) << server.status();
  const auto process = StartBench({"run", "--server=" + (*server)->address(), "--workload=a",
                                   "--seconds=100", "--records=100", "--timeout_seconds=3"});
  ASSERT_NE(process, nullptr);
  ASSERT_TRUE(WaitForPuts((*server)->address()));
  ASSERT_TRUE((*server)->process().Freeze().ok());
  const Outcome outcome = Finish(*process);
  EXPECT_NE(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("waiting for the server at " + (*server)->address() +
                                     " to end any operation, until "));
  (*server)->process().Signal(SIGCONT);
}

TEST(BenchWithoutServer, ErrorsOfAFullServerAreCounted) {
  auto server = ServerProcess::Start({"--memory=8MiB"});
  ASSERT_TRUE(server.ok()) << server.status();
  const Outcome outcome =
      Bench({"load", "--server=" + (*server)->address(), "--records=200", "--value_size=100KiB"});
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr(" of 200 operations failed\n"));
  EXPECT_THAT(outcome.out, HasSubstr("first error            RESOURCE_EXHAUSTED"));
}

TEST(BenchUsage, JsonThatCannotBeWrittenIsSaidBeforeTheRun) {
  const Outcome outcome = Bench({"run", "--server=127.0.0.1:1", "--json=/no/such/folder/x.json"});
  EXPECT_EQ(outcome.code, 6) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("--json: cannot write /no/such/folder/x.json: No such file"));
}

TEST(BenchUsage, HelpTeaches) {
  const Outcome help = Bench({"--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.out, HasSubstr("--workload"));
  EXPECT_THAT(help.out, HasSubstr("verbena-bench load --server=127.0.0.1:7400"));
  EXPECT_EQ(Bench({"--version"}).code, 0);
}

// compare against what is installed; on another fabric than the software device, with a server of
// the test's own.
class BenchCompare : public ::testing::Test {
 protected:
  void SetUp() override {
    json_ = ::testing::TempDir() + "/verbena_compare_" + std::to_string(getpid()) + ".json";
    page_ = json_ + ".html";
    args_ = {"compare", FabricFlag(), "--records=500", "--json=" + json_};
    if (FabricName() == "soft") return;
    auto started = ServerProcess::Start({}, Host::kHere);
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
    args_.push_back("--server=" + server_->address());
  }
  void TearDown() override {
    std::remove(json_.c_str());
    std::remove(page_.c_str());
  }

  std::vector<std::string> Args(std::vector<std::string> more) const {
    std::vector<std::string> args = args_;
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  Json ReadJson() const {
    std::ifstream file(json_);
    return Json::parse(file, nullptr, false);
  }

  std::string json_;
  std::string page_;
  std::vector<std::string> args_;
  std::unique_ptr<ServerProcess> server_;
};

TEST_F(BenchCompare, ComparesWhatIsThere) {
  const auto process = StartBench(Args(
      {"--rounds=2", "--seconds=0.1", "--report=" + page_, "--memcached=/nonexistent/memcached"}));
  ASSERT_NE(process, nullptr);
  const Outcome outcome = Finish(*process, 3 * kPatience);
  ASSERT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("apt-get install memcached"));
  EXPECT_THAT(outcome.out, HasSubstr("What an operation costs"));
  const Json json = ReadJson();
  std::vector<std::string> names;
  for (const Json& system : json["systems"]) {
    names.push_back(system["name"]);
    EXPECT_THAT(system["throughput_ops_s"].get<double>(), Gt(0)) << names.back();
    EXPECT_EQ(system["verify"]["wrong"], 0) << names.back();
    EXPECT_EQ(system["partial"], false) << names.back();
    EXPECT_THAT(system["depth1"]["throughput_ops_s"].get<double>(), Gt(0)) << names.back();
    EXPECT_TRUE(system["server"].contains("cpu_us_per_op")) << names.back();
    EXPECT_THAT(system["client"]["cpu_us_per_op"].get<double>(), Gt(0)) << names.back();
    EXPECT_THAT(system["wire"]["bytes_per_op"].get<double>(), Gt(0)) << names.back();
    if (names.back() == "verbena") {
      EXPECT_THAT(system["verbs_per_op"]["client"]["CQEs"].get<double>(), Gt(0.5));
    }
  }
  EXPECT_THAT(names, ::testing::IsSupersetOf({"verbena", "verbena-send", "raw-read", "raw-send"}));
  EXPECT_THAT(json["ratios"]["verbena_over_verbena-send"].get<double>(), Gt(0));
  std::ifstream page(page_);
  const std::string html((std::istreambuf_iterator<char>(page)), std::istreambuf_iterator<char>());
  EXPECT_THAT(html, HasSubstr("raw-read"));
  EXPECT_THAT(html, HasSubstr("</html>"));
}

// Without them installed it says how to get them, which is tested above.
TEST_F(BenchCompare, DrivesRivalsOverTcpAndUnixSockets) {
  const auto process =
      StartBench(Args({"--rounds=1", "--seconds=0.1", "--depth=4", "--memcached_protocol=meta",
                       "--systems=memcached-tcp,memcached-unix,redis-tcp,redis-unix,"
                       "tcp-pingpong,verbena"}));
  ASSERT_NE(process, nullptr);
  const Outcome outcome = Finish(*process, 3 * kPatience);
  ASSERT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  const Json json = ReadJson();
  std::vector<std::string> notes = json["notes"];
  EXPECT_THAT(notes, ::testing::Each(HasSubstr("apt-get install"))) << outcome.out;
  for (const Json& system : json["systems"]) {
    const std::string name = system["name"];
    EXPECT_EQ(system["ops"]["read"]["errors"], 0) << name;
    EXPECT_EQ(system["verify"]["wrong"], 0) << name;
    if (name != "verbena") {
      EXPECT_THAT(system["client"]["system_calls_per_op"].get<double>(), Gt(0)) << name;
      EXPECT_THAT(system["server"]["cpu_us_per_op"].get<double>(), Gt(0)) << name;
    }
  }
  // Each of the four is there or, its program missing, noted once.
  EXPECT_EQ(json["systems"].size(), 6 - 2 * notes.size());
}

TEST_F(BenchCompare, RivalThatCannotBeReachedIsLeftOut) {
  const Outcome outcome =
      Bench(Args({"--rounds=1", "--seconds=0.1", "--systems=verbena,redis-unix,memcached-tcp",
                  "--redis=unix:/nonexistent/socket", "--memcached=off"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("redis-unix is left out"));
  EXPECT_EQ(ReadJson()["systems"].size(), 1U);
  const Outcome nothing = Bench(Args({"--systems=redis-unix", "--redis=unix:/nonexistent/socket"}));
  EXPECT_EQ(nothing.code, 3);
  EXPECT_THAT(nothing.err, HasSubstr("nothing to compare"));
}

TEST_F(BenchCompare, PrintsWhatFormatSays) {
  const auto run = [this](const char* format) {
    return Bench(Args({"--rounds=1", "--seconds=0.1", "--depth=1", "--systems=verbena", format}));
  };
  EXPECT_EQ(Json::parse(run("--format=json").out, nullptr, false)["systems"].size(), 1u);
  const Outcome none = run("--format=none");
  EXPECT_EQ(none.code, 0) << none.err;
  EXPECT_EQ(none.out, "");
}

TEST_F(BenchCompare, RivalsThatAreNotInstalledAreNamedWithTheirPackages) {
  const Outcome outcome =
      Bench(Args({"--systems=redis-tcp,memcached-unix", "--redis=/nonexistent/redis-server",
                  "--memcached=/nonexistent/memcached"}));
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("apt-get install redis-server"));
  EXPECT_THAT(outcome.err, HasSubstr("apt-get install memcached"));
  EXPECT_THAT(ReadJson()["error"]["message"].get<std::string>(),
              HasSubstr("apt-get install redis-server"));
}

TEST_F(BenchCompare, FullDisksAreFailuresAndTheTextIsStillThere) {
  for (const char* flag : {"--json=/dev/full", "--report=/dev/full"}) {
    const Outcome outcome =
        Bench(Args({"--rounds=1", "--seconds=0.1", "--depth=1", "--systems=verbena-send", flag}));
    EXPECT_EQ(outcome.code, 6) << flag << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("No space left on device"));
    EXPECT_THAT(outcome.out, HasSubstr("verbena-send"));
  }
}

TEST_F(BenchCompare, ServerKilledInTheMiddleLeavesAPartialResult) {
  auto server = ServerProcess::Start({}, Host::kHere);
  ASSERT_TRUE(server.ok()) << server.status();
  std::vector<std::string> args = {"compare",       FabricFlag(),
                                   "--records=500", "--json=" + json_,
                                   "--rounds=3",    "--systems=verbena,raw-read",
                                   "--seconds=0.5", "--server=" + (*server)->address(),
                                   "--workload=a"};
  const auto process = StartBench(std::move(args));
  ASSERT_NE(process, nullptr);
  // More changes than loading makes: the first turn has begun.
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (Puts((*server)->address()) <= 500) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  }
  (*server)->process().Signal(SIGKILL);
  const Outcome outcome = Finish(*process, std::chrono::seconds(60) + Soon());
  EXPECT_EQ(outcome.code, 3) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("ENDED EARLY: verbena"));
  EXPECT_THAT(outcome.out, HasSubstr("PARTIAL"));
  const Json json = ReadJson();
  ASSERT_EQ(json["systems"].size(), 2U) << outcome.out;
  EXPECT_TRUE(json["systems"][0]["partial"].get<bool>() ||
              json["systems"][0]["depth1"]["partial"].get<bool>());
  // The others went on.
  EXPECT_EQ(json["systems"][1]["turns"].size(), 3U);
}

TEST_F(BenchCompare, StorageScenarioSweepsRates) {
  const auto process = StartBench(Args({"--scenario=storage4k", "--seconds=0.1", "--depth=8",
                                        "--systems=verbena,verbena-send", "--report=" + page_}));
  ASSERT_NE(process, nullptr);
  const Outcome outcome = Finish(*process, 3 * kPatience);
  ASSERT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("saturated"));
  const Json json = ReadJson();
  ASSERT_EQ(json["systems"].size(), 2U);
  for (const Json& system : json["systems"]) {
    EXPECT_FALSE(system["rates"].empty());
    EXPECT_EQ(system["rates"].back()["kept"], false);
    EXPECT_TRUE(system["rates"].back()["server"].contains("cpu_percent_of_core"));
  }
  EXPECT_EQ(json["config"]["value_size"], 4096);
}

}  // namespace
}  // namespace verbena::testing
