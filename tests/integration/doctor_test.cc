// verbena-cli doctor as a program, with real servers. (What it says of machines of all kinds:
// tests/unit/cli; of kernel drivers: tests/lab.)
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/integration/fabric_under_test.h"
#include "tests/integration/process.h"
#include "tests/integration/run_program.h"

namespace verbena::testing {
namespace {

using Json = nlohmann::json;

// The doctor's JSON with these flags.
struct Visit {
  ProgramOutcome outcome;
  Json json;
};
Visit Doctor(std::vector<std::string> flags) {
  flags.insert(flags.begin(), {"doctor", "--json", "--memory=64MiB", FabricFlag()});
  Visit visit;
  visit.outcome = Cli(std::move(flags));
  visit.json = Json::parse(visit.outcome.out, nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(visit.json.is_object()) << visit.outcome.out << visit.outcome.err;
  return visit;
}

// The check with this id; null if there is none.
Json Find(const Visit& visit, const std::string& id) {
  if (!visit.json.is_object()) return {};
  for (const Json& check : visit.json.at("checks")) {
    if (check.at("id") == id) return check;
  }
  return {};
}

void ExpectTimes(const Json& check) {
  ASSERT_TRUE(check.is_object());
  EXPECT_EQ(check.at("status"), "OK") << check;
  const Json& figures = check.at("figures");
  EXPECT_EQ(figures.at("rounds"), 20);
  EXPECT_GT(figures.at("min_us").get<double>(), 0);
  EXPECT_LE(figures.at("min_us"), figures.at("median_us"));
  EXPECT_LE(figures.at("median_us"), figures.at("max_us"));
}

TEST(Doctor, AServer) {
  const auto server = ServerProcess::Start();
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string flag = "--server=" + (*server)->address();
  const auto items = [&] {
    const ProgramOutcome info = Cli({flag, FabricFlag(), "--timeout=30s", "--json", "info"});
    EXPECT_EQ(info.code, 0) << info.err;
    return Json::parse(info.out).at("items");
  };
  const Json before = items();
  const Visit visit = Doctor({flag, "--timeout=30s"});
  for (const char* id : {"server_address", "server_route", "server_connect"}) {
    const Json check = Find(visit, id);
    ASSERT_TRUE(check.is_object()) << id << "\n" << visit.outcome.out;
    EXPECT_EQ(check.at("status"), "OK") << check;
  }
  EXPECT_TRUE(Has(Find(visit, "server_connect").at("finding"), "fabric " + FabricName()));
  ExpectTimes(Find(visit, "server_send"));
  const Json read = Find(visit, "server_read");
  ExpectTimes(read);
  // The bucket, and its header once more: an absent key is believed only then.
  EXPECT_GE(read.at("figures").at("reads_per_get").get<double>(), 2);
  // Nothing was changed.
  EXPECT_EQ(items(), before);
}

TEST(Doctor, CountsAndExitStatusAgree) {
  const Visit visit = Doctor({});
  ASSERT_TRUE(visit.json.is_object());
  int ok = 0;
  int warn = 0;
  int fail = 0;
  for (const Json& check : visit.json.at("checks")) {
    const std::string status = check.at("status");
    ok += status == "OK" ? 1 : 0;
    warn += status == "WARN" ? 1 : 0;
    fail += status == "FAIL" ? 1 : 0;
    EXPECT_FALSE(check.at("finding").get<std::string>().empty()) << check;
    EXPECT_EQ(check.contains("remedy"), status != "OK") << check;
  }
  EXPECT_EQ(static_cast<size_t>(ok + warn + fail), visit.json.at("checks").size());
  EXPECT_EQ(visit.json.at("counts"), Json({{"ok", ok}, {"warn", warn}, {"fail", fail}}));
  EXPECT_EQ(visit.outcome.code, fail > 0 ? 2 : warn > 0 ? 1 : 0);
  EXPECT_EQ(visit.outcome.code, visit.json.at("exit_status"));
}

TEST(Doctor, Text) {
  const ProgramOutcome outcome = Cli({"doctor", "--fabric=soft"});
  EXPECT_EQ(outcome.err, "");
  EXPECT_TRUE(Has(outcome.out, "software_device")) << outcome.out;
  EXPECT_TRUE(Has(outcome.out, " checks: ")) << outcome.out;
  // Not a terminal.
  EXPECT_FALSE(Has(outcome.out, "\033"));
}

TEST(Doctor, NobodyListens) {
  const auto server = ServerProcess::Start();
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = (*server)->address();
  ASSERT_TRUE((*server)->Stop().ok());
  const Visit visit = Doctor({"--server=" + address, "--timeout=30s"});
  EXPECT_EQ(visit.outcome.code, 2);
  const Json check = Find(visit, "server_connect");
  ASSERT_TRUE(check.is_object()) << visit.outcome.out;
  EXPECT_EQ(check.at("status"), "FAIL");
  EXPECT_TRUE(Has(check.at("remedy"), "verbena-server --listen=" + address)) << check;
  // What needs a connection is not tried.
  EXPECT_TRUE(Find(visit, "server_send").is_null());
}

TEST(Doctor, AFrozenServer) {
  const auto server = ServerProcess::Start();
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_TRUE((*server)->process().Freeze().ok());
  const Visit visit = Doctor({"--server=" + (*server)->address(), "--timeout=500ms"});
  EXPECT_EQ(visit.outcome.code, 2);
  const Json check = Find(visit, "server_connect");
  ASSERT_TRUE(check.is_object()) << visit.outcome.out;
  EXPECT_EQ(check.at("status"), "FAIL");
  EXPECT_TRUE(Has(check.at("remedy"), "--timeout=30s")) << check;
}

TEST(Doctor, AddressesThatAreNone) {
  for (const char* server :
       {"127.0.0.1", "127.0.0.1:0", "[::1:7400", "no.such.host.invalid:7400"}) {
    const Visit visit = Doctor({std::string("--server=") + server});
    EXPECT_EQ(visit.outcome.code, 2) << server;
    const Json check = Find(visit, "server_address");
    ASSERT_TRUE(check.is_object()) << visit.outcome.out;
    EXPECT_EQ(check.at("status"), "FAIL") << check;
    EXPECT_TRUE(Find(visit, "server_route").is_null());
  }
}

TEST(Doctor, HelpAndWrongFlags) {
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"doctor", "--help"}, {"help", "doctor"}}) {
    const ProgramOutcome help = Cli(args);
    EXPECT_EQ(help.code, 0);
    EXPECT_TRUE(Has(help.out, "Exit status") && Has(help.out, "--memory=1GiB")) << help.out;
  }
  const ProgramOutcome memory = Cli({"doctor", "--memory=lots"});
  EXPECT_EQ(memory.code, 2);
  EXPECT_TRUE(Has(memory.err, "--memory: ")) << memory.err;
  EXPECT_EQ(memory.out, "");
  EXPECT_EQ(Cli({"doctor", "everything"}).code, 2);
}

TEST(Doctor, FullOutput) {
  ProcessOptions options;
  options.program = "/bin/bash";
  options.args = {"-c", R"("$1" doctor --fabric=soft >/dev/full; echo $?)", "bash",
                  ProgramPath("verbena-cli")};
  const ProgramOutcome outcome = RunProgram(std::move(options));
  EXPECT_EQ(outcome.out, "6\n");
  EXPECT_TRUE(Has(outcome.err, "No space left on device")) << outcome.err;
}

}  // namespace
}  // namespace verbena::testing
