// verbena-bench replaying traces on a real verbena-server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/integration/fabric_under_test.h"
#include "tests/integration/process.h"

namespace verbena::testing {
namespace {

using ::testing::HasSubstr;

class BenchTrace : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto server = ServerProcess::Start();
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = server->release();
  }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }
  void SetUp() override {
    const std::string name = ::testing::TempDir() + "/bench_trace_" + std::to_string(getpid());
    trace_ = name + ".csv";
    json_ = name + ".json";
  }
  void TearDown() override {
    std::remove(trace_.c_str());
    std::remove(json_.c_str());
  }

  struct Ended {
    int code = -1;
    std::string out;
    std::string err;
    nlohmann::json json;
  };

  ProcessOptions Options(std::vector<std::string> more) const {
    ProcessOptions options;
    options.program = ProgramPath("verbena-bench");
    options.args = {"run", "--server=" + server_->address(), "--json=" + json_};
    options.args.insert(options.args.end(), more.begin(), more.end());
    return options;
  }
  Ended AtEnd(Process& process) const {
    const auto exit = process.WaitForExit(kPatience);
    EXPECT_TRUE(exit.ok() && exit->exited) << exit.status() << process.err();
    if (!exit.ok()) return {};
    std::ifstream file(json_);
    return {exit->code, process.out(), process.err(), nlohmann::json::parse(file, nullptr, false)};
  }
  Ended Replay(const std::string& text, std::vector<std::string> more = {}) const {
    std::ofstream(trace_, std::ios::binary) << text;
    more.push_back("--trace=" + trace_);
    auto process = Process::Start(Options(std::move(more)));
    EXPECT_TRUE(process.ok()) << process.status();
    return process.ok() ? AtEnd(**process) : Ended{};
  }
  // What verbena-cli prints.
  std::string Cli(std::vector<std::string> args) const {
    ProcessOptions options;
    options.program = ProgramPath("verbena-cli");
    options.args = {"--server=" + server_->address(), "--timeout=60s"};
    options.args.insert(options.args.end(), args.begin(), args.end());
    const auto process = Process::Run(std::move(options));
    EXPECT_TRUE(process.ok()) << process.status();
    return process.ok() ? (*process)->out() + (*process)->err() : "";
  }

  static ServerProcess* server_;
  std::string trace_;
  std::string json_;
};
ServerProcess* BenchTrace::server_ = nullptr;

TEST_F(BenchTrace, CountsWhatItFound) {
  const Ended ended = Replay(
      "0,t1,8,0,1,get,0\n"         // miss
      "0,t1,8,100,1,set,9000\n"    //
      "0,t1,8,100,1,get,0\r\n"     // hit
      "0,t1,8,50,1,add,0\n"        // is there
      "\n"                         //
      "1,t2,8,50,1,add,0\n"        //
      "1,t3,8,10,1,replace,0\n"    // is not there
      "nonsense\n"                 //
      "1,t1,8,30,1,cas,9000\n"     //
      "1,t1,8,12,1,append,9000\n"  //
      "1,t1,8,8,1,prepend,9000\n"  //
      "1,t4,8,8,1,append,0\n"      // of nothing
      "2,t2,8,4,1,incr,0\n"        //
      "2,t2,8,4,1,decr,0\n"        //
      "2,t9,8,1,1,delete,0\n"      // of nothing
      "2,t1,8,0,1,gets,0\n"        // hit
      "2,t5,8,5,1,set,0\n"         //
      "2,t5,8,5,1,delete,0\n"      //
      "2,t5,8,5,1,get,0\n",        // miss
      {"--depth=1"});
  ASSERT_EQ(ended.code, 0) << ended.out << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("hit rate               0.5000 (2 of 4 reads found a value)"));
  EXPECT_THAT(ended.out, HasSubstr("BAD LINES              1 of 18 lines"));
  EXPECT_THAT(ended.out, HasSubstr("line 8: 1 field instead of 7"));
  const auto& ops = ended.json["ops"];
  EXPECT_EQ(ops["read"]["count"], 4);
  EXPECT_EQ(ops["update"]["count"], 4);
  EXPECT_EQ(ops["insert"]["count"], 2);
  EXPECT_EQ(ops["read_modify_write"]["count"], 5);
  EXPECT_EQ(ops["delete"]["count"], 2);
  for (const auto& op : ops) EXPECT_EQ(op["errors"], 0);
  const auto& trace = ended.json["trace"];
  EXPECT_EQ(trace["lines"], 18);
  EXPECT_EQ(trace["requests"], 17);
  EXPECT_EQ(trace["bad_lines"], 1);
  EXPECT_EQ(trace["hits"], 2);
  EXPECT_EQ(trace["misses"], 2);
  EXPECT_EQ(trace["hit_rate"], 0.5);
  EXPECT_EQ(trace["not_stored"], 2);
  EXPECT_EQ(trace["not_found"], 2);
  EXPECT_EQ(ended.json["verify"]["wrong"], 0);
  EXPECT_EQ(ended.json["config"]["trace"], trace_);
  EXPECT_FALSE(ended.json.contains("open_loop"));
  // The keys are padded, sizes are what the trace says, and the time to live is the server's.
  EXPECT_EQ(Cli({"get", "000000t1"}).size(), 50u) << "30 and 12 and 8";
  EXPECT_THAT(Cli({"ttl", "000000t1"}), ::testing::ContainsRegex("[0-9]"));
  EXPECT_THAT(Cli({"get", "000000t5"}), HasSubstr("there is no key"));
}

TEST_F(BenchTrace, StrictEndsItWithAStatus) {
  const std::string text = "0,s,1,5,1,set,0\n0,s,1,5,1,flush,0\n0,s,1,5,1,get,0\n";
  const Ended strict = Replay(text, {"--strict", "--format=json"});
  EXPECT_EQ(strict.code, 2) << strict.out;
  EXPECT_THAT(strict.err, HasSubstr("line 2: operation 'flush' is no get, gets, set"));
  EXPECT_THAT(strict.err, HasSubstr("STOPPED BY --strict"));
  EXPECT_EQ(strict.json["trace"]["stopped"], true);
  EXPECT_EQ(strict.json["partial"], true);
  EXPECT_EQ(strict.json["ops"]["update"]["count"], 1);
  EXPECT_FALSE(strict.json["ops"].contains("read"));
  const Ended lenient = Replay(text);
  EXPECT_EQ(lenient.code, 0) << lenient.out << lenient.err;
  EXPECT_EQ(lenient.json["ops"]["read"]["count"], 1);
}

TEST_F(BenchTrace, SpeedKeepsTheSchedule) {
  std::string text;
  for (int i = 0; i <= 20; ++i) {
    text += std::to_string(1'600'000'000 + i) + ",p" + std::to_string(i) + ",4,64,1,set,0\n";
  }
  const auto begin = std::chrono::steady_clock::now();
  const Ended ended = Replay(text, {"--speed=20", "--threads=2"});
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
  ASSERT_EQ(ended.code, 0) << ended.out << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("latencies are response times"));
  const auto& open = ended.json["open_loop"];
  EXPECT_EQ(open["arrival"], "trace");
  EXPECT_EQ(open["due"], 21);
  EXPECT_GE(ended.json["seconds"], 0.99);
  EXPECT_EQ(ended.json["ops"]["update"]["response_us"].empty(), false);
}

TEST_F(BenchTrace, APipeWithNothingInItCanBeInterrupted) {
  ProcessOptions options = Options({"--trace=/dev/stdin", "--speed=1"});
  options.input = "0,i,4,64,1,set,0\n0,i,4,";
  options.keep_input_open = true;
  auto process = Process::Start(std::move(options));
  ASSERT_TRUE(process.ok()) << process.status();
  // What is whole has been replayed before that; then nothing comes.
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (Cli({"get", "000i"}).size() != 64u) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << (*process)->err();
  }
  (*process)->Signal(SIGINT);
  const Ended ended = AtEnd(**process);
  EXPECT_EQ(ended.code, 130) << ended.out << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("INTERRUPTED"));
  EXPECT_EQ(ended.json["ops"]["update"]["count"], 1);
  EXPECT_EQ(ended.json["trace"]["requests"], 1);
  EXPECT_EQ(ended.json["trace"]["bad_lines"], 0);
}

// A trace of writes alone notices that its server has gone, too.
TEST_F(BenchTrace, AServerThatIsKilledEndsIt) {
  auto server = ServerProcess::Start();
  ASSERT_TRUE(server.ok()) << server.status();
  ServerProcess* const others = std::exchange(server_, server->get());
  std::ofstream trace(trace_);
  for (int i = 0; i < 1000; ++i) trace << i << ",k" << i << ",4,64,1,set,0\n";
  trace.close();
  auto process =
      Process::Start(Options({"--trace=" + trace_, "--speed=20", "--timeout_seconds=2"}));
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (Cli({"get", "00k0"}).size() != 64u && std::chrono::steady_clock::now() < deadline) {
  }
  server_->process().Signal(SIGKILL);
  server_ = others;
  ASSERT_TRUE(process.ok()) << process.status();
  const Ended ended = AtEnd(**process);
  EXPECT_EQ(ended.code, 3) << ended.out << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("ENDED EARLY"));
  EXPECT_TRUE(ended.json.contains("connection_lost"));
  EXPECT_LT(ended.json["seconds"], 30);
  // Those that were taken and not begun do not count.
  EXPECT_LT(ended.json["trace"]["requests"], 1000);
  EXPECT_LE(ended.json["trace"]["requests"], ended.json["ops"]["update"]["count"]);
}

TEST_F(BenchTrace, FilesThatAreNoTracesAreTold) {
  const auto refused = [this](std::vector<std::string> args) {
    auto process = Process::Start(Options(std::move(args)));
    EXPECT_TRUE(process.ok()) << process.status();
    const Ended ended = process.ok() ? AtEnd(**process) : Ended{};
    EXPECT_EQ(ended.code, 2) << ended.out;
    return ended.err;
  };
  EXPECT_THAT(refused({"--trace=/no/such/file"}), HasSubstr("No such file"));
  EXPECT_THAT(refused({"--trace=/"}), HasSubstr("folder"));
  EXPECT_THAT(refused({"--trace="}), HasSubstr("the name of a file"));
  EXPECT_THAT(refused({"--trace=x", "--speed=-1"}), HasSubstr("0.001 to 1000000"));
  EXPECT_THAT(refused({"--strict"}), HasSubstr("without --trace"));
  EXPECT_THAT(Replay("").out, HasSubstr("NOTHING TO DO"));
  const Ended warm = Replay("0,w,1,5,1,set,0\n", {"--warmup_seconds=100"});
  EXPECT_THAT(warm.out, HasSubstr("NOTHING MEASURED"));
  EXPECT_EQ(warm.code, 2);
}

}  // namespace
}  // namespace verbena::testing
