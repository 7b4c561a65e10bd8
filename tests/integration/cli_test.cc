// verbena-cli against a real verbena-server: values through pipes, texts, exit statuses.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "tests/integration/fabric_under_test.h"
#include "tests/integration/process.h"
#include "tests/integration/run_program.h"
#include "verbena/connection.h"

namespace verbena::testing {
namespace {

using Json = nlohmann::json;
using std::chrono::milliseconds;

std::string EveryByte(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 131 + i / 251);
  return bytes;
}

// One server for all tests that do it no harm.
class CliTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto server = ServerProcess::Start({"--max_value_size=4MiB"});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server);
    flag_ = "--server=" + server_->address();
  }
  static void TearDownTestSuite() {
    if (server_ == nullptr) return;
    const auto exit = server_->Stop();
    EXPECT_TRUE(exit.ok() && exit->exited && exit->code == 0);
    server_.reset();
  }
  void SetUp() override { ASSERT_NE(server_, nullptr); }

  static std::unique_ptr<ServerProcess> server_;
  static std::string flag_;
};
std::unique_ptr<ServerProcess> CliTest::server_;
std::string CliTest::flag_;

TEST_F(CliTest, PutGetDelete) {
  ProgramOutcome put = Cli({flag_, "put", "greeting", "hello, fabric"});
  EXPECT_EQ(put.code, 0) << put.err;
  EXPECT_EQ(put.out, "created\n");
  EXPECT_EQ(put.err, "");
  put = Cli({flag_, "put", "greeting", "hello again"});
  EXPECT_EQ(put.out, "replaced\n");
  const ProgramOutcome get = Cli({flag_, "get", "greeting"});
  EXPECT_EQ(get.code, 0) << get.err;
  EXPECT_EQ(get.out, "hello again");  // no line end is added
  EXPECT_EQ(get.err, "");
  const ProgramOutcome del = Cli({flag_, "del", "greeting"});
  EXPECT_EQ(del.code, 0) << del.err;
  EXPECT_EQ(del.out, "deleted\n");
  EXPECT_EQ(Cli({flag_, "get", "greeting"}).code, 1);
}

TEST_F(CliTest, AbsentKey) {
  const ProgramOutcome get = Cli({flag_, "get", "no such\nkey"});
  EXPECT_EQ(get.code, 1);
  EXPECT_EQ(get.out, "");
  EXPECT_TRUE(Has(get.err, "'no such\\nkey'")) << get.err;
  const ProgramOutcome del = Cli({flag_, "del", "absent"});
  EXPECT_EQ(del.code, 1);
  EXPECT_EQ(del.out, "");
}

TEST_F(CliTest, ValuesArePassedByteForByte) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{256}, size_t{8192}, size_t{3'000'000}}) {
    const std::string value = EveryByte(size);
    const ProgramOutcome put = Cli({flag_, "put", "bytes"}, value);
    ASSERT_EQ(put.code, 0) << size << ": " << put.err;
    const ProgramOutcome get = Cli({flag_, "get", "bytes"});
    ASSERT_EQ(get.code, 0) << size << ": " << get.err;
    EXPECT_TRUE(get.out == value) << size;
  }
}

TEST_F(CliTest, AnEmptyArgumentIsAnEmptyValue) {
  EXPECT_EQ(Cli({flag_, "put", "empty", ""}, "not this").code, 0);
  const ProgramOutcome get = Cli({flag_, "get", "empty"});
  EXPECT_EQ(get.code, 0);
  EXPECT_EQ(get.out, "");
}

TEST_F(CliTest, JsonResults) {
  const ProgramOutcome put = Cli({flag_, "--json", "put", "json", "caf\xc3\xa9"});
  ASSERT_EQ(put.code, 0) << put.err;
  const Json created = Json::parse(put.out);
  EXPECT_EQ(created["key"], "json");
  EXPECT_EQ(created["result"], "created");
  const Json text = Json::parse(Cli({flag_, "--json", "get", "json"}).out);
  EXPECT_EQ(text["value"], "caf\xc3\xa9");
  EXPECT_EQ(text["bytes"], 5);
  EXPECT_EQ(text["version"], created["version"]);
  EXPECT_EQ(Cli({flag_, "put", "json"}, "\xff\xfe").code, 0);
  const Json bytes = Json::parse(Cli({flag_, "--json", "get", "json"}).out);
  EXPECT_EQ(bytes["value_base64"], "//4=");
  EXPECT_FALSE(bytes.contains("value"));
  EXPECT_GT(bytes["version"], created["version"]);
  const ProgramOutcome missing = Cli({flag_, "--json", "get", "nothing"});
  EXPECT_EQ(missing.code, 1);
  EXPECT_EQ(Json::parse(missing.out)["error"]["status"], "NOT_FOUND");
  EXPECT_EQ(Json::parse(missing.out)["error"]["exit_status"], 1);
}

TEST_F(CliTest, ChangesUnderACondition) {
  EXPECT_EQ(Cli({flag_, "put", "lock", "me", "--if-present"}).code, 1);
  EXPECT_EQ(Cli({flag_, "put", "lock", "me", "--if-absent"}).out, "created\n");
  const ProgramOutcome taken = Cli({flag_, "put", "lock", "you", "--if-absent"});
  EXPECT_EQ(taken.code, 7);
  EXPECT_EQ(taken.out, "");
  EXPECT_TRUE(Has(taken.err, "there already")) << taken.err;
  const std::string version =
      Json::parse(Cli({flag_, "--json", "get", "lock"}).out)["version"].dump();
  const ProgramOutcome other = Cli({flag_, "--json", "put", "lock", "you", "--if-version=17"});
  EXPECT_EQ(other.code, 7);
  EXPECT_TRUE(Has(other.err, version)) << other.err;
  EXPECT_EQ(Json::parse(other.out)["error"]["status"], "ABORTED");
  EXPECT_EQ(Json::parse(other.out)["error"]["version"].dump(), version);
  EXPECT_EQ(Json::parse(other.out)["error"]["exit_status"], 7);
  EXPECT_EQ(Cli({flag_, "del", "lock", "--if-version=17"}).code, 7);
  EXPECT_EQ(Cli({flag_, "get", "lock"}).out, "me");
  EXPECT_EQ(Cli({flag_, "append", "lock", "!", "--if-version=" + version}).out, "appended\n");
  EXPECT_EQ(Cli({flag_, "del", "lock", "--if-version=" + version}).code, 7);
  EXPECT_EQ(Cli({flag_, "take", "lock"}).out, "me!");
  EXPECT_EQ(Cli({flag_, "del", "lock", "--if-version=" + version}).code, 1);
}

TEST_F(CliTest, AddAppendTake) {
  EXPECT_EQ(Cli({flag_, "add", "visits", "40"}).out, "40\n");
  EXPECT_EQ(Cli({flag_, "add", "--", "visits", "-41"}).out, "-1\n");
  const Json sum = Json::parse(Cli({flag_, "--json", "add", "visits", "43"}).out);
  EXPECT_EQ(sum["key"], "visits");
  EXPECT_EQ(sum["number"], 42);
  EXPECT_GT(sum["version"], 0);
  EXPECT_EQ(Cli({flag_, "get", "visits"}).out, "42");
  EXPECT_EQ(Cli({flag_, "add", "absent", "1", "--if-present"}).code, 1);
  EXPECT_EQ(Cli({flag_, "append", "visits", "x"}).code, 0);
  const ProgramOutcome text = Cli({flag_, "add", "visits", "1"});
  EXPECT_EQ(text.code, 4);
  EXPECT_TRUE(Has(text.err, "not a number")) << text.err;
  EXPECT_EQ(Cli({flag_, "put", "visits", "9223372036854775807"}).code, 0);
  EXPECT_EQ(Cli({flag_, "add", "visits", "1"}).code, 4);

  EXPECT_EQ(Cli({flag_, "append", "log"}, "one\n").out, "created\n");
  EXPECT_EQ(Cli({flag_, "append", "log"}, "two\n").out, "appended\n");
  const ProgramOutcome take = Cli({flag_, "--json", "take", "log"});
  EXPECT_EQ(Json::parse(take.out)["value"], "one\ntwo\n");
  const ProgramOutcome gone = Cli({flag_, "take", "log"});
  EXPECT_EQ(gone.code, 1);
  EXPECT_TRUE(Has(gone.err, "'log'")) << gone.err;
  // Larger than a message.
  const std::string large = EveryByte(1'000'000);
  EXPECT_EQ(Cli({flag_, "put", "large"}, large).code, 0);
  EXPECT_TRUE(Cli({flag_, "take", "large"}).out == large);
  EXPECT_EQ(Cli({flag_, "take", "large"}).code, 1);
}

TEST_F(CliTest, TimesToLive) {
  EXPECT_EQ(Cli({flag_, "put", "session", "41", "--ttl=100d"}).out, "created\n");
  const std::string left = Cli({flag_, "ttl", "session"}).out;
  ASSERT_TRUE(left.ends_with("ms\n")) << left;
  const int64_t ms = std::stoll(left);
  EXPECT_TRUE(ms > 0 && ms <= int64_t{100} * 86'400'000) << left;
  const Json json = Json::parse(Cli({flag_, "--json", "ttl", "session"}).out);
  EXPECT_EQ(json["key"], "session");
  EXPECT_TRUE(json["ttl_ms"] > 0 && json["ttl_ms"] <= ms) << json;
  EXPECT_EQ(Cli({flag_, "persist", "session"}).out, "removed\n");
  EXPECT_EQ(Cli({flag_, "persist", "session"}).out, "none\n");
  EXPECT_EQ(Cli({flag_, "ttl", "session"}).out, "none\n");
  EXPECT_TRUE(Json::parse(Cli({flag_, "--json", "ttl", "session"}).out).at("ttl_ms").is_null());
  EXPECT_EQ(Cli({flag_, "expire", "session", "2h"}).out, "set\n");
  // What ttl prints, expire takes.
  const ProgramOutcome again = Cli({flag_, "--json", "expire", "session", "7200000ms"});
  EXPECT_EQ(Json::parse(again.out)["result"], "replaced");
  EXPECT_EQ(Json::parse(again.out)["version"],
            Json::parse(Cli({flag_, "--json", "get", "session"}).out)["version"]);
  // A put without a time takes it away.
  EXPECT_EQ(Cli({flag_, "put", "session", "42"}).out, "replaced\n");
  EXPECT_EQ(Cli({flag_, "ttl", "session"}).out, "none\n");

  EXPECT_EQ(Cli({flag_, "expire", "session", "1ms"}).code, 0);
  ProgramOutcome get = Cli({flag_, "get", "session"});
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (get.code == 0 && std::chrono::steady_clock::now() < deadline) {
    get = Cli({flag_, "get", "session"});
  }
  EXPECT_EQ(get.code, 1) << get.err;
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{flag_, "ttl", "session"},
                                             {flag_, "persist", "session"},
                                             {flag_, "expire", "session", "1s"}}) {
    const ProgramOutcome gone = Cli(command);
    EXPECT_EQ(gone.code, 1) << command[1] << ": " << gone.err;
    EXPECT_TRUE(Has(gone.err, "'session'")) << gone.err;
  }
  for (const char* ttl : {"0", "-1s", "36501d"}) {
    const ProgramOutcome refused =
        Cli({flag_, "put", "session", "43", std::string("--ttl=") + ttl});
    EXPECT_EQ(refused.code, 2) << ttl;
    EXPECT_TRUE(Has(refused.err, "1ms to 100 years")) << refused.err;
  }
}

TEST_F(CliTest, Scan) {
  const auto scan = [](std::vector<std::string> args) {
    args.insert(args.begin(), {flag_, "scan"});
    return Cli(std::move(args));
  };
  for (const char* key : {"scan/b", "scan/a", "scan/c"}) {
    ASSERT_EQ(Cli({flag_, "put", key, std::string("value of ") + key}).code, 0);
  }
  const ProgramOutcome all = scan({"--prefix=scan/"});
  EXPECT_EQ(all.code, 0) << all.err;
  EXPECT_EQ(all.err, "");
  EXPECT_EQ(all.out, "scan/a\tvalue of scan/a\nscan/b\tvalue of scan/b\nscan/c\tvalue of scan/c\n");
  EXPECT_EQ(scan({"scan/b", "--prefix=scan/", "--keys_only"}).out, "scan/b\nscan/c\n");
  EXPECT_EQ(scan({"scan/b", "--after", "--prefix=scan/", "--keys_only"}).out, "scan/c\n");
  EXPECT_EQ(scan({"scan/", "--limit=2", "--keys_only"}).out, "scan/a\nscan/b\n");
  const ProgramOutcome none = scan({"--prefix=nothing begins so"});
  EXPECT_EQ(none.code, 0) << none.err;
  EXPECT_EQ(none.out + none.err, "");
  // Keys and values with tabs, line ends and bytes that are no text stay one line each.
  ASSERT_EQ(Cli({flag_, "put", "tab\there"}, "two\nlines\\").code, 0);
  ASSERT_EQ(Cli({flag_, "put", "tab\t\xff"}, "\xfe").code, 0);
  EXPECT_EQ(scan({"--prefix=tab\t"}).out, "tab\\there\ttwo\\nlines\\\\\ntab\\t\\xff\t\\xfe\n");
}

TEST_F(CliTest, ScanInJson) {
  ASSERT_EQ(Cli({flag_, "put", "json-scan/1", "caf\xc3\xa9"}).code, 0);
  ASSERT_EQ(Cli({flag_, "put", "json-scan/\xff"}, "\xff\xfe").code, 0);
  const auto lines = [](const std::string& text) {
    std::vector<Json> objects;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) objects.push_back(Json::parse(line));
    return objects;
  };
  const ProgramOutcome scan = Cli({flag_, "--json", "scan", "--prefix=json-scan/"});
  ASSERT_EQ(scan.code, 0) << scan.err;
  const std::vector<Json> items = lines(scan.out);
  ASSERT_EQ(items.size(), 2U) << scan.out;
  EXPECT_EQ(items[0], Json::parse(Cli({flag_, "--json", "get", "json-scan/1"}).out));
  EXPECT_EQ(items[1]["key_base64"], "anNvbi1zY2FuL/8=");
  EXPECT_EQ(items[1]["value_base64"], "//4=");
  EXPECT_EQ(items[1]["bytes"], 2);
  const ProgramOutcome keys = Cli({flag_, "--json", "scan", "--prefix=json-scan/1", "--keys_only"});
  EXPECT_EQ(lines(keys.out), std::vector<Json>{Json({{"key", "json-scan/1"}})}) << keys.out;
}

TEST_F(CliTest, ScanOfMoreKeysThanAPage) {
  auto server = ServerProcess::Start();
  ASSERT_TRUE(server.ok()) << server.status();
  Options options;
  options.fabric = FabricName();
  options.connect_timeout = options.operation_timeout = std::chrono::seconds(60);
  auto connection = Connection::Connect((*server)->address(), options);
  ASSERT_TRUE(connection.ok()) << connection.status();
  std::string expected;
  for (int i = 1000; i < 1250; ++i) {
    const std::string key = std::to_string(i);
    ASSERT_TRUE((*connection)->Put(key, "v" + key).ok());
    expected += key + "\tv" + key + "\n";
  }
  const std::string flag = "--server=" + (*server)->address();
  EXPECT_EQ(Cli({flag, "scan", "--limit=0"}).out, expected);
  EXPECT_EQ(Cli({flag, "scan", "--limit=1000"}).out, expected);
  const size_t line = expected.size() / 250;
  EXPECT_EQ(Cli({flag, "scan", "--limit=150"}).out, expected.substr(0, 150 * line));
  // The limit that nobody asked for is told, where it cuts something off.
  const ProgramOutcome first = Cli({flag, "scan"});
  EXPECT_EQ(first.code, 0);
  EXPECT_EQ(first.out, expected.substr(0, 100 * line));
  EXPECT_TRUE(Has(first.err, "--limit=0")) << first.err;
  EXPECT_EQ(Cli({flag, "scan", "1150"}).err, "");
}

TEST(CliWithoutServer, ScanOfAServerThatKeepsNoOrder) {
  auto server = ServerProcess::Start({"--ordered_index=off"});
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string flag = "--server=" + (*server)->address();
  const ProgramOutcome scan = Cli({flag, "--json", "scan"});
  EXPECT_EQ(scan.code, 4) << scan.err;
  EXPECT_TRUE(Has(scan.err, "--ordered_index")) << scan.err;
  EXPECT_EQ(Json::parse(scan.out)["error"]["status"], "UNIMPLEMENTED");
}

TEST_F(CliTest, Info) {
  ASSERT_EQ(Cli({flag_, "put", "counted", "x"}).code, 0);
  const ProgramOutcome json = Cli({flag_, "--json", "info"});
  ASSERT_EQ(json.code, 0) << json.err;
  const Json info = Json::parse(json.out);
  EXPECT_GE(info.at("items").get<uint64_t>(), 1U);
  EXPECT_GT(info.at("memory").at("used_bytes").get<uint64_t>(), 0U);
  EXPECT_EQ(info.at("client").at("fabric"), FabricName());
  const ProgramOutcome table = Cli({flag_, "info"});
  EXPECT_EQ(table.code, 0);
  EXPECT_TRUE(Has(table.out, "\nmemory.used_bytes ")) << table.out;
}

TEST_F(CliTest, Ping) {
  const ProgramOutcome ping = Cli({flag_, "ping"});
  EXPECT_EQ(ping.code, 0) << ping.err;
  EXPECT_TRUE(Has(ping.out, server_->address() + " answered in ")) << ping.out;
  EXPECT_TRUE(Has(ping.out, "fabric " + FabricName())) << ping.out;
  const Json json = Json::parse(Cli({flag_, "--json", "ping"}).out);
  EXPECT_GT(json["round_trip_us"].get<double>(), 0.0);
}

TEST_F(CliTest, AKeyThatIsNoTextIsShownEscaped) {
  const ProgramOutcome plain = Cli({flag_, "get", "a\tb\xfe"});
  EXPECT_EQ(plain.code, 1);
  EXPECT_EQ(plain.err, "verbena-cli: there is no key 'a\\tb\\xfe'\n");
  const Json json = Json::parse(Cli({flag_, "--json", "get", "a\tb\xfe"}).out);
  EXPECT_EQ(json["error"]["message"], "there is no key 'a\\tb\\xfe'");
}

TEST_F(CliTest, LimitsOfKeysAndValues) {
  const ProgramOutcome empty = Cli({flag_, "put", "", "value"});
  EXPECT_EQ(empty.code, 4) << empty.err;
  EXPECT_TRUE(Has(empty.err, "key")) << empty.err;
  EXPECT_EQ(Cli({flag_, "get", ""}).code, 4);
  EXPECT_EQ(Cli({flag_, "del", ""}).code, 4);
  EXPECT_EQ(Cli({flag_, "put", std::string(4072, 'k'), "longest key"}).code, 0);
  EXPECT_EQ(Cli({flag_, "get", std::string(4072, 'k')}).out, "longest key");
  const ProgramOutcome key = Cli({flag_, "put", std::string(4073, 'k'), "too long"});
  EXPECT_EQ(key.code, 4) << key.err;
  EXPECT_TRUE(Has(key.err, "4073") && Has(key.err, "4072")) << key.err;
  const ProgramOutcome value = Cli({flag_, "put", "large"}, std::string((4 << 20) + 1, 'v'));
  EXPECT_EQ(value.code, 4) << value.err;
  EXPECT_TRUE(Has(value.err, "4194305") || Has(value.err, "4MiB")) << value.err;
  EXPECT_EQ(Cli({flag_, "put", "large"}, std::string(4 << 20, 'v')).code, 0);
}

TEST_F(CliTest, ClosedAndFullOutputs) {
  ASSERT_EQ(Cli({flag_, "put", "long"}, EveryByte(3'000'000)).code, 0);
  const auto bash = [](const std::string& script) {
    ProcessOptions options;
    options.program = "/bin/bash";
    options.args = {"-c", script, "bash", ProgramPath("verbena-cli"), flag_ + " " + kLongTimeout};
    return RunProgram(std::move(options));
  };
  // The reader goes away: no message (where it took long, that was said), a status of its own.
  const ProgramOutcome closed =
      bash(R"("$1" $2 get long | head -c 1 >/dev/null; echo ${PIPESTATUS[0]})");
  EXPECT_EQ(closed.out, "6\n") << closed.err;
  EXPECT_TRUE(closed.err.empty() || closed.err.starts_with("verbena-cli: waiting for the answer"))
      << closed.err;
  EXPECT_LE(std::count(closed.err.begin(), closed.err.end(), '\n'), 1) << closed.err;
  const ProgramOutcome full = bash(R"("$1" $2 get long >/dev/full; echo $?)");
  EXPECT_EQ(full.out, "6\n");
  EXPECT_TRUE(Has(full.err, "No space left on device")) << full.err;
  const ProgramOutcome no_output = bash(R"("$1" $2 get long >&-; echo $?)");
  EXPECT_EQ(no_output.out, "6\n") << no_output.err;
  const ProgramOutcome no_input = bash(R"("$1" $2 put long <&-; echo $?)");
  EXPECT_EQ(no_input.out, "6\n") << no_input.err;
  EXPECT_TRUE(Has(no_input.err, "standard input")) << no_input.err;
  // Through a pipe on both sides nothing is lost.
  const ProgramOutcome copied =
      bash(R"("$1" $2 get long | "$1" $2 put copy && cmp <("$1" $2 get long) <("$1" $2 get copy))");
  EXPECT_EQ(copied.code, 0) << copied.err;
  EXPECT_EQ(copied.out, "created\n");
}

TEST_F(CliTest, WrongUsage) {
  const auto refused = [](std::vector<std::string> args, const std::string& part) {
    const ProgramOutcome outcome = Cli(std::move(args));
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_TRUE(Has(outcome.err, part)) << outcome.err;
    EXPECT_TRUE(Has(outcome.err, "--help")) << outcome.err;
  };
  refused({flag_, "--colour=red", "get", "key"}, "--colour");
  refused({flag_, "--timeout=soon", "get", "key"}, "1ms to 1h");
  refused({flag_, "--fabric=tcp", "get", "key"}, "auto, verbs or soft");
  refused({flag_, "list"}, "'list'");
  refused({flag_, "get"}, "get KEY");
  refused({"get", "key"}, "--server is missing");
  refused({"--server=127.0.0.1", "get", "key"}, "ADDR:PORT");

  for (const char* wrong : {"list", "--colour=red"}) {
    const ProgramOutcome json = Cli({flag_, "--json", wrong});
    EXPECT_EQ(json.code, 2) << json.err;
    const auto told = nlohmann::json::parse(json.out, nullptr, false);
    ASSERT_TRUE(told.is_object()) << json.out;
    EXPECT_EQ(told["error"]["exit_status"], 2);
    EXPECT_TRUE(Has(json.err, told["error"]["message"].get<std::string>())) << json.err;
  }

  const std::string path =
      ::testing::TempDir() + "/cli_test_wrong." + std::to_string(getpid()) + ".flags";
  std::ofstream(path) << "# comment\n\n--color=red\n";
  const ProgramOutcome file = Cli({flag_, "--flagfile=" + path, "ping"});
  EXPECT_EQ(file.code, 2) << file.err;
  EXPECT_TRUE(Has(file.err, "unknown flag --color") && Has(file.err, "line 3")) << file.err;
  std::remove(path.c_str());
}

TEST_F(CliTest, HelpAndVersion) {
  const ProgramOutcome help = Cli({"--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_TRUE(Has(help.out, "get KEY") && Has(help.out, "Exit status"));
  EXPECT_EQ(Cli({"help"}).out, help.out);
  const ProgramOutcome version = Cli({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_TRUE(Has(version.out, "verbena-cli "));
}

TEST_F(CliTest, FlagsFromAFile) {
  const std::string path =
      ::testing::TempDir() + "/cli_test." + std::to_string(getpid()) + ".flags";
  std::ofstream(path) << flag_ << "\n--timeout=10s\n";
  EXPECT_EQ(Cli({"--flagfile=" + path, "ping"}).code, 0);
  std::remove(path.c_str());
}

TEST(CliWithoutServer, NobodyListens) {
  // Port 1 is nobody's.
  const std::string nobody = ServerAddress(1);
  const ProgramOutcome text = Cli({"--server=" + nobody, FabricFlag(), "get", "key"});
  EXPECT_EQ(text.code, 3) << text.err;
  EXPECT_TRUE(Has(text.err, nobody)) << text.err;
  const ProgramOutcome json = Cli({"--server=" + nobody, FabricFlag(), "--json", "get", "key"});
  EXPECT_EQ(json.code, 3);
  EXPECT_EQ(Json::parse(json.out)["error"]["exit_status"], 3);
  // An address of another machine, which the software device cannot reach (TEST-NET-1).
  const ProgramOutcome far = Cli({"--server=192.0.2.1:7400", "--timeout=500ms", "ping"});
  EXPECT_EQ(far.code, 3) << far.err;
  // Which fabrics there are is found out without anybody's answer where there is no adapter.
  std::error_code error;
  const std::filesystem::directory_iterator adapters("/sys/class/infiniband", error);
  if (error || adapters == std::filesystem::directory_iterator()) {
    EXPECT_TRUE(Has(far.err, "no fabric reaches 192.0.2.1:7400: verbs: ")) << far.err;
    EXPECT_TRUE(Has(far.err, "soft (the software device): 192.0.2.1 is not an address of this"))
        << far.err;
  }
}

TEST(CliWithoutServer, ServerThatIsStoppedInTheMiddle) {
  auto server = ServerProcess::Start();
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_TRUE((*server)->process().Freeze().ok());
  const auto start = std::chrono::steady_clock::now();
  const ProgramOutcome put =
      Cli({"--server=" + (*server)->address(), "--timeout=300ms", "put", "k", "v"});
  EXPECT_EQ(put.code, 3) << put.err;
  EXPECT_LT(std::chrono::steady_clock::now() - start, kPatience);
  EXPECT_NE(put.err, "");
  EXPECT_FALSE(Has(put.err, "waiting for")) << put.err;
  // Whoever waits for longer is told so, once, and not among the results.
  const ProgramOutcome get =
      Cli({"--server=" + (*server)->address(), "--timeout=2500ms", "--json", "get", "k"});
  EXPECT_EQ(get.code, 3) << get.err;
  const std::string notice = "verbena-cli: waiting for the server at " + (*server)->address();
  const size_t told = get.err.find(notice);
  ASSERT_NE(told, std::string::npos) << get.err;
  EXPECT_EQ(get.err.find(notice, told + 1), std::string::npos) << get.err;
  EXPECT_TRUE(Has(get.err, " at the latest (--timeout=2.5s)\n")) << get.err;
  EXPECT_EQ(Json::parse(get.out, nullptr, false)["error"]["exit_status"], 3) << get.out;
  (*server)->process().Signal(SIGCONT);
}

// A host that there is not is a server that is not there, not a wrong flag.
TEST(CliWithoutServer, NoSuchHost) {
  const ProgramOutcome get = Cli({"--server=no.such.host.invalid:7400", "--json", "get", "k"});
  EXPECT_EQ(get.code, 3) << get.err;
  EXPECT_TRUE(Has(get.err, "'no.such.host.invalid")) << get.err;
  EXPECT_EQ(Json::parse(get.out, nullptr, false)["error"]["exit_status"], 3) << get.out;
}

TEST(CliWithoutServer, OutOfMemoryNamesTheSizes) {
  auto server = ServerProcess::Start({"--memory=16MiB", "--max_value_size=64MiB"});
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string flag = "--server=" + (*server)->address();
  ASSERT_EQ(Cli({flag, "put", "small", "kept"}).code, 0);
  const ProgramOutcome put = Cli({flag, "put", "large"}, std::string(32 << 20, 'v'));
  EXPECT_EQ(put.code, 4) << put.err;
  EXPECT_TRUE(Has(put.err, "33554") || Has(put.err, "32MiB")) << put.err;
  EXPECT_EQ(Cli({flag, "get", "small"}).out, "kept");
}

TEST(CliWithoutServer, TooManyConnections) {
  auto server = ServerProcess::Start({"--max_connections=1"});
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string flag = "--server=" + (*server)->address();
  // One connection after another is well: the first is freed when its client ends.
  for (int i = 0; i < 3; ++i) {
    ProgramOutcome ping = Cli({flag, "ping"});
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (ping.code == 4 && std::chrono::steady_clock::now() < deadline)
      ping = Cli({flag, "ping"});
    EXPECT_EQ(ping.code, 0) << ping.err;
  }
}

}  // namespace
}  // namespace verbena::testing
