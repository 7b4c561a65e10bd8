#include <fcntl.h>
#include <gflags/gflags.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "client/cli/arguments.h"
#include "client/cli/exit_status.h"
#include "client/cli/output.h"
#include "common/base/unique_fd.h"

namespace verbena::cli {
namespace {

using std::chrono::milliseconds;

class ArgumentsTest : public ::testing::Test {
 protected:
  static absl::StatusOr<Arguments> Parse(std::vector<std::string> args) {
    const gflags::FlagSaver saver;
    return ParseArguments(std::move(args));
  }
  // The text of the refusal; "" if it was not refused.
  static std::string Refusal(std::vector<std::string> args) {
    const auto parsed = Parse(std::move(args));
    EXPECT_TRUE(parsed.ok() || absl::IsInvalidArgument(parsed.status())) << parsed.status();
    return std::string(parsed.status().message());
  }
  static bool Has(const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  }
};

constexpr char kServer[] = "--server=127.0.0.1:7400";

TEST_F(ArgumentsTest, Commands) {
  auto get = Parse({kServer, "get", "key"});
  ASSERT_TRUE(get.ok()) << get.status();
  EXPECT_EQ(get->command, Command::kGet);
  EXPECT_EQ(get->key, "key");
  EXPECT_EQ(get->server, "127.0.0.1:7400");
  EXPECT_EQ(get->fabric, "auto");
  EXPECT_EQ(get->timeout, milliseconds(5000));
  EXPECT_FALSE(get->json);

  auto put = Parse({kServer, "put", "key", "a value"});
  ASSERT_TRUE(put.ok()) << put.status();
  EXPECT_EQ(put->command, Command::kPut);
  EXPECT_EQ(put->value, "a value");
  put = Parse({kServer, "put", "key"});
  ASSERT_TRUE(put.ok());
  EXPECT_FALSE(put->value.has_value());
  put = Parse({kServer, "put", "key", ""});
  ASSERT_TRUE(put.ok());
  EXPECT_EQ(put->value, "");  // an empty value is not "standard input"

  EXPECT_EQ(Parse({kServer, "del", "key"})->command, Command::kDelete);
  EXPECT_EQ(Parse({kServer, "info"})->command, Command::kInfo);
  EXPECT_EQ(Parse({kServer, "ping"})->command, Command::kPing);
  EXPECT_EQ(Parse({kServer, "doctor"})->command, Command::kDoctor);
}

TEST_F(ArgumentsTest, ChangesThatDependOnWhatIsThere) {
  EXPECT_EQ(Parse({kServer, "take", "key"})->command, Command::kTake);
  EXPECT_EQ(Parse({kServer, "append", "key", "more"})->value, "more");
  EXPECT_FALSE(Parse({kServer, "append", "key"})->value.has_value());
  EXPECT_EQ(Parse({kServer, "add", "key", "12"})->summand, 12);
  EXPECT_EQ(Parse({kServer, "add", "--", "key", "-9223372036854775808"})->summand, INT64_MIN);
  for (const char* number : {"", "x", "1.5", "9223372036854775808"}) {
    EXPECT_TRUE(Has(Refusal({kServer, "add", "key", number}), "whole number")) << number;
  }
  EXPECT_TRUE(Has(Refusal({kServer, "add", "key"}), "add KEY NUMBER"));

  EXPECT_EQ(Parse({kServer, "put", "k", "v"})->condition.kind, Condition::Kind::kNone);
  EXPECT_EQ(Parse({kServer, "put", "k", "v", "--if-absent"})->condition.kind,
            Condition::Kind::kIfAbsent);
  EXPECT_EQ(Parse({kServer, "add", "k", "1", "--if_present"})->condition.kind,
            Condition::Kind::kIfPresent);
  const auto if_version = Parse({kServer, "del", "k", "--if-version=18446744073709551615"});
  EXPECT_EQ(if_version->condition.kind, Condition::Kind::kIfVersion);
  EXPECT_EQ(if_version->condition.version, UINT64_MAX);

  EXPECT_TRUE(Has(Refusal({kServer, "put", "k", "v", "--if-absent", "--if-present"}), "only one"));
  EXPECT_TRUE(Has(Refusal({kServer, "add", "k", "1", "--if-absent"}), "put only"));
  EXPECT_TRUE(Has(Refusal({kServer, "del", "k", "--if-present"}), "put, add and append"));
  EXPECT_TRUE(Has(Refusal({kServer, "get", "k", "--if-version=1"}), "put, del, add and append"));
  for (const char* version : {"0", "-1", "new", "18446744073709551616"}) {
    const std::string flag = std::string("--if-version=") + version;
    EXPECT_TRUE(Has(Refusal({kServer, "put", "k", "v", flag}), "it must be a version")) << version;
  }
}

TEST_F(ArgumentsTest, TimesToLive) {
  EXPECT_FALSE(Parse({kServer, "put", "k", "v"})->ttl.has_value());
  EXPECT_EQ(Parse({kServer, "put", "k", "v", "--ttl=30s"})->ttl, milliseconds(30'000));
  const auto lock = Parse({kServer, "put", "k", "v", "--ttl=500ms", "--if-absent"});
  EXPECT_EQ(lock->ttl, milliseconds(500));
  EXPECT_EQ(lock->condition.kind, Condition::Kind::kIfAbsent);
  const auto expire = Parse({kServer, "expire", "k", "2h"});
  ASSERT_TRUE(expire.ok()) << expire.status();
  EXPECT_EQ(expire->command, Command::kExpire);
  EXPECT_EQ(expire->ttl, milliseconds(7'200'000));
  EXPECT_EQ(Parse({kServer, "persist", "k"})->command, Command::kPersist);
  EXPECT_EQ(Parse({kServer, "ttl", "k"})->command, Command::kTtl);
  EXPECT_EQ(*ParseTtl("7d"), milliseconds(604'800'000));
  EXPECT_EQ(*ParseTtl("1ms"), milliseconds(1));
  EXPECT_EQ(*ParseTtl("36500d"), milliseconds(3'153'600'000'000));

  for (const char* ttl : {"", "0", "0ms", "0.4ms", "-1s", "36501d", "1e9", "1e400", "soon", "1y",
                          "99999999999999999999999"}) {
    const std::string flag = Refusal({kServer, "put", "k", "v", std::string("--ttl=") + ttl});
    EXPECT_TRUE(Has(flag, "--ttl=") && Has(flag, "1ms to 100 years")) << ttl << ": " << flag;
    const std::string operand = Refusal({kServer, "expire", "--", "k", ttl});
    EXPECT_TRUE(Has(operand, "1ms to 100 years")) << ttl << ": " << operand;
  }
  EXPECT_TRUE(Has(Refusal({kServer, "append", "k", "v", "--ttl=1s"}), "expire KEY DURATION"));
  EXPECT_TRUE(Has(Refusal({kServer, "expire", "k"}), "expire KEY DURATION"));
  EXPECT_TRUE(Has(Refusal({kServer, "persist"}), "persist KEY"));
  EXPECT_TRUE(Has(Refusal({kServer, "ttl", "k", "1s"}), "ttl KEY"));
}

TEST_F(ArgumentsTest, Scans) {
  const auto all = Parse({kServer, "scan"});
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->command, Command::kScan);
  EXPECT_EQ(all->key, "");
  EXPECT_EQ(all->scan.prefix, "");
  EXPECT_FALSE(all->scan.limit.has_value());
  EXPECT_FALSE(all->scan.after);
  EXPECT_FALSE(all->scan.keys_only);
  const auto some =
      Parse({kServer, "scan", "from", "--prefix=f", "--limit=7", "--after", "--keys-only"});
  ASSERT_TRUE(some.ok()) << some.status();
  EXPECT_EQ(some->key, "from");
  EXPECT_EQ(some->scan.prefix, "f");
  EXPECT_EQ(some->scan.limit, 7U);
  EXPECT_TRUE(some->scan.after);
  EXPECT_TRUE(some->scan.keys_only);
  EXPECT_EQ(Parse({kServer, "scan", "--limit=0"})->scan.limit, 0U);
  // A script's cursor is empty before the first page.
  EXPECT_TRUE(Parse({kServer, "scan", "", "--after"})->scan.after);

  for (const char* limit : {"", "-1", "many", "1.5", "18446744073709551616"}) {
    const std::string text = Refusal({kServer, "scan", std::string("--limit=") + limit});
    EXPECT_TRUE(Has(text, "--limit=") && Has(text, "0 for all")) << limit << ": " << text;
  }
  EXPECT_TRUE(Has(Refusal({kServer, "scan", "--after"}), "scan START --after"));
  EXPECT_TRUE(Has(Refusal({kServer, "scan", "a", "b"}), "scan [START]"));
  for (const char* flag : {"--prefix=a", "--limit=1", "--after", "--keys_only"}) {
    EXPECT_TRUE(Has(Refusal({kServer, "get", "k", flag}), "for scan only")) << flag;
  }
}

TEST_F(ArgumentsTest, FlagsStandAnywhere) {
  const auto parsed =
      Parse({"get", "--json", "key", "--timeout", "250ms", "-fabric=soft", "--server", "[::1]:9"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->key, "key");
  EXPECT_TRUE(parsed->json);
  EXPECT_EQ(parsed->timeout, milliseconds(250));
  EXPECT_EQ(parsed->fabric, "soft");
  EXPECT_EQ(parsed->server, "[::1]:9");
}

TEST_F(ArgumentsTest, DoubleDashEndsTheFlags) {
  const auto parsed = Parse({kServer, "put", "--", "-key", "--value=5"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->key, "-key");
  EXPECT_EQ(parsed->value, "--value=5");
  const auto dash = Parse({kServer, "put", "key", "-"});
  ASSERT_TRUE(dash.ok()) << dash.status();
  EXPECT_EQ(dash->value, "-");
}

TEST_F(ArgumentsTest, HelpAndVersionNeedNothingElse) {
  EXPECT_EQ(Parse({"--help"})->command, Command::kHelp);
  EXPECT_EQ(Parse({"help"})->command, Command::kHelp);
  EXPECT_EQ(Parse({"help", "get"})->command, Command::kHelp);
  EXPECT_EQ(Parse({"--version"})->command, Command::kVersion);
  EXPECT_EQ(Parse({kServer, "get", "--help"})->command, Command::kHelp);
}

TEST_F(ArgumentsTest, HelpOfACommand) {
  EXPECT_EQ(Parse({"--help"})->topic, Command::kHelp);
  EXPECT_EQ(Parse({"doctor", "--help"})->topic, Command::kDoctor);
  EXPECT_EQ(Parse({"help", "doctor"})->topic, Command::kDoctor);
  EXPECT_EQ(Parse({"help", "get"})->topic, Command::kGet);
}

TEST_F(ArgumentsTest, Doctor) {
  // No server is needed, and what its address is worth is the doctor's to say.
  auto doctor = Parse({"doctor"});
  ASSERT_TRUE(doctor.ok()) << doctor.status();
  EXPECT_EQ(doctor->server, "");
  EXPECT_EQ(doctor->memory, uint64_t{1} << 30);
  doctor = Parse({"doctor", "--server=nowhere", "--memory=0", "--json"});
  ASSERT_TRUE(doctor.ok()) << doctor.status();
  EXPECT_EQ(doctor->server, "nowhere");
  EXPECT_EQ(doctor->memory, 0U);
  EXPECT_EQ(doctor->workers, 0U);
  EXPECT_EQ(Parse({"doctor", "--workers=256"})->workers, 256U);
  for (const char* value : {"257", "many", "-1"}) {
    const std::string text = Refusal({"doctor", std::string("--workers=") + value});
    EXPECT_TRUE(Has(text, value) && Has(text, "1 to 256")) << text;
  }
  EXPECT_TRUE(Has(Refusal({"doctor", "--memory=much"}), "--memory: "));
  EXPECT_TRUE(Has(Refusal({"doctor", "mlx5_0"}), "too many"));
}

TEST_F(ArgumentsTest, UnknownFlagsAreNamed) {
  EXPECT_TRUE(Has(Refusal({kServer, "get", "key", "--colour=red"}), "--colour;"));
  EXPECT_TRUE(Has(Refusal({kServer, "get", "key", "--colour"}), "--server"));
  EXPECT_TRUE(Has(Refusal({kServer, "put", "number", "-5"}), "-5"));
  EXPECT_TRUE(Has(Refusal({kServer, "put", "number", "-5"}), " -- "));
  EXPECT_TRUE(Has(Refusal({"--nocolour"}), "--nocolour"));
  EXPECT_TRUE(Has(Refusal({"--noserver"}), "--noserver"));
}

TEST_F(ArgumentsTest, WrongValuesAreRefusedWithNameAndRange) {
  for (const char* value : {"", "0", "0s", "-1s", "1us", "2h", "3601", "5x", "s", "1e3", "nan"}) {
    const std::string text = Refusal({kServer, std::string("--timeout=") + value, "ping"});
    EXPECT_TRUE(Has(text, "--timeout=") && Has(text, "1ms to 1h")) << value << ": " << text;
  }
  const std::string fabric = Refusal({kServer, "--fabric=tcp", "ping"});
  EXPECT_TRUE(Has(fabric, "--fabric=tcp") && Has(fabric, "auto, verbs or soft")) << fabric;
  const std::string json = Refusal({kServer, "--json=maybe", "ping"});
  EXPECT_TRUE(Has(json, "--json=maybe") && Has(json, "true or false")) << json;
  EXPECT_TRUE(Parse({kServer, "--json=TRUE", "ping"}).ok());
  EXPECT_FALSE(Parse({kServer, "--nojson", "ping"})->json);
  for (const char* value :
       {"127.0.0.1", ":", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000", "127.0.0.1:0", "::1:7"}) {
    const std::string text = Refusal({std::string("--server=") + value, "ping"});
    EXPECT_TRUE(Has(text, "--server=") && Has(text, "ADDR:PORT")) << value << ": " << text;
  }
  EXPECT_TRUE(Has(Refusal({"--server=[fe80::1]:7400", "ping"}), "write [fe80::1%INTERFACE]:7400"));
  // Whether there is such a host is no question of usage.
  EXPECT_EQ(Refusal({"--server=no.such.host.invalid:7400", "ping"}), "");
  EXPECT_TRUE(Has(Refusal({"ping"}), "--server is missing"));
  EXPECT_TRUE(Has(Refusal({"ping", "--server"}), "--server needs a value"));
}

TEST_F(ArgumentsTest, WrongCommandsAreRefusedWithTheUsage) {
  EXPECT_TRUE(Has(Refusal({kServer}),
                  "get, put, del, take, add, append, expire, persist, ttl, scan, info"));
  EXPECT_TRUE(Has(Refusal({}), "a command is needed"));
  EXPECT_TRUE(Has(Refusal({kServer, "set", "a", "b"}), "'set'"));
  EXPECT_TRUE(Has(Refusal({kServer, "get"}), "get KEY"));
  EXPECT_TRUE(Has(Refusal({kServer, "put"}), "put KEY [VALUE]"));
  EXPECT_TRUE(Has(Refusal({kServer, "put", "a", "b", "c"}), "in quotes"));
  EXPECT_TRUE(Has(Refusal({kServer, "info", "a"}), "too many"));
}

TEST_F(ArgumentsTest, FlagsFromAFile) {
  const std::string path = ::testing::TempDir() + "/cli_test.flags";
  std::ofstream(path) << "--server=127.0.0.1:7411\n--json\n";
  const auto parsed = Parse({"--flagfile=" + path, "ping"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->server, "127.0.0.1:7411");
  EXPECT_TRUE(parsed->json);
}

TEST_F(ArgumentsTest, OptionsOfConnections) {
  auto parsed = Parse({kServer, "ping"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_FALSE(parsed->connect.tos.has_value());
  EXPECT_EQ(parsed->connect.ack_timeout, 14);
  EXPECT_EQ(parsed->connect.retry_count, 6);
  EXPECT_EQ(parsed->connect.min_rnr_timer, 12);
  parsed =
      Parse({kServer, "--tos=104", "--ack_timeout=31", "--retry_count=0", "--rnr_timer=1", "ping"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->connect.tos, 104);
  EXPECT_EQ(parsed->connect.ack_timeout, 31);
  EXPECT_EQ(parsed->connect.retry_count, 0);
  EXPECT_EQ(parsed->connect.min_rnr_timer, 1);
  EXPECT_EQ(Parse({kServer, "--tos=0", "ping"})->connect.tos, 0);
  for (const auto& [flag, range] : {std::pair{"--tos=256", "0 to 255"},
                                    {"--tos=x", "0 to 255"},
                                    {"--ack_timeout=0", "1 to 31"},
                                    {"--ack_timeout=32", "1 to 31"},
                                    {"--retry_count=8", "0 to 7"},
                                    {"--retry_count=-1", "0 to 7"},
                                    {"--rnr_timer=32", "0 to 31"},
                                    {"--rnr_timer=", "0 to 31"}}) {
    const std::string text = Refusal({kServer, flag, "ping"});
    EXPECT_TRUE(Has(text, flag) && Has(text, range)) << text;
  }
}

TEST_F(ArgumentsTest, Timeouts) {
  EXPECT_EQ(*ParseTimeout("500ms"), milliseconds(500));
  EXPECT_EQ(*ParseTimeout("1.5s"), milliseconds(1500));
  EXPECT_EQ(*ParseTimeout("2m"), milliseconds(120'000));
  EXPECT_EQ(*ParseTimeout("1h"), milliseconds(3'600'000));
  EXPECT_EQ(*ParseTimeout("3"), milliseconds(3000));
  EXPECT_FALSE(ParseTimeout("1.2.3s").ok());
}

TEST(HelpText, ShowsEveryCommandFlagAndExitStatus) {
  const std::string text = HelpText();
  for (const char* part :
       {"get KEY",       "put KEY [VALUE]", "del KEY",      "expire KEY DURATION",
        "persist KEY",   "ttl KEY",         "scan [START]", "info",
        "ping",          "--server",        "--fabric",     "--timeout",
        "--json",        "--flagfile",      "--tos",        "--ack_timeout",
        "--retry_count", "--rnr_timer",     "--ttl",        "--prefix",
        "--limit",       "--after",         "--keys_only",  "Exit status"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part;
  }
  for (int status = kExitOk; status <= kExitIo; ++status) {
    EXPECT_NE(text.find("\n  " + std::to_string(status) + "  "), std::string::npos) << status;
  }
}

TEST(ExitStatus, EveryCodeHasOne) {
  EXPECT_EQ(ExitStatusFor(absl::OkStatus()), kExitOk);
  EXPECT_EQ(ExitStatusFor(absl::NotFoundError("")), kExitNotFound);
  EXPECT_EQ(ExitStatusFor(absl::AlreadyExistsError("")), kExitCondition);
  EXPECT_EQ(ExitStatusFor(absl::UnavailableError("")), kExitConnection);
  EXPECT_EQ(ExitStatusFor(absl::DeadlineExceededError("")), kExitConnection);
  EXPECT_EQ(ExitStatusFor(absl::InvalidArgumentError("")), kExitRefused);
  EXPECT_EQ(ExitStatusFor(absl::ResourceExhaustedError("")), kExitRefused);
  EXPECT_EQ(ExitStatusFor(absl::FailedPreconditionError("")), kExitRefused);
  EXPECT_EQ(ExitStatusFor(absl::InternalError("")), kExitInternal);
  EXPECT_EQ(ExitStatusFor(absl::DataLossError("")), kExitInternal);
}

TEST(Output, Utf8) {
  for (const char* text :
       {"", "plain", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x8c\xbf", "\xed\x9f\xbf"}) {
    EXPECT_TRUE(IsUtf8(text)) << text;
  }
  EXPECT_TRUE(IsUtf8(std::string_view("a\0b", 3)));
  for (const char* text :
       {"\x80", "\xc3", "\xc0\xaf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf5\x80\x80\x80",
        "\xf4\x90\x80\x80", "\xf0\x80\x80\x80", "a\xff", "\xe2\x82"}) {
    EXPECT_FALSE(IsUtf8(text)) << text;
  }
}

TEST(Output, EscapedField) {
  EXPECT_EQ(EscapedField(""), "");
  EXPECT_EQ(EscapedField("plain 'text' \"quoted\""), "plain 'text' \"quoted\"");
  EXPECT_EQ(EscapedField("a\tb\nc\rd\\e"), "a\\tb\\nc\\rd\\\\e");
  EXPECT_EQ(EscapedField(std::string_view("\0\x1b[2J\x7f", 6)), "\\x00\\x1b[2J\\x7f");
  EXPECT_EQ(EscapedField("caf\xc3\xa9 \xe2\x82\xac"), "caf\xc3\xa9 \xe2\x82\xac");
  // One byte that is no text, and all of them over 127 are numbers.
  EXPECT_EQ(EscapedField("caf\xc3\xa9\xff"), "caf\\xc3\\xa9\\xff");
  // U+009B begins a control sequence on some terminals; U+00A0 is a blank.
  EXPECT_EQ(EscapedField("\xc2\x9b\x31\xc2\xa0"), "\\xc2\\x9b\x31\xc2\xa0");
}

TEST(Output, InfoTable) {
  const std::string table =
      InfoTable(R"({"items":3,"memory":{"used_bytes":1048576,"small_bytes":5},"list":["a"]})");
  EXPECT_NE(table.find("items  "), std::string::npos);
  EXPECT_NE(table.find("memory.used_bytes"), std::string::npos);
  EXPECT_NE(table.find("1048576  (1MiB)\n"), std::string::npos) << table;
  EXPECT_NE(table.find(" 5\n"), std::string::npos) << table;
  EXPECT_NE(table.find("list.0"), std::string::npos) << table;
  EXPECT_EQ(InfoTable("no json"), "no json");
  const std::string forged = InfoTable(R"({"a\u001b[2J":"x\nfake: line"})");
  EXPECT_EQ(forged.find('\x1b'), std::string::npos) << forged;
  EXPECT_EQ(std::count(forged.begin(), forged.end(), '\n'), 1) << forged;
}

struct Pipe {
  Pipe() {
    int fds[2];
    EXPECT_EQ(pipe2(fds, O_CLOEXEC), 0);
    read_end = UniqueFd(fds[0]);
    write_end = UniqueFd(fds[1]);
  }
  UniqueFd read_end;
  UniqueFd write_end;
};

TEST(Output, WritesAndReadsEveryByte) {
  std::string bytes(3'000'000, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 + i / 256);
  Pipe pipe;
  std::thread writer([&] {
    EXPECT_TRUE(WriteAll(pipe.write_end.get(), bytes).ok());
    pipe.write_end.Reset();
  });
  const auto read = ReadAll(pipe.read_end.get(), bytes.size());
  writer.join();
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(*read == bytes);
}

TEST(Output, ReadStopsAtTheLimit) {
  Pipe pipe;
  ASSERT_TRUE(WriteAll(pipe.write_end.get(), "12345").ok());
  const auto read = ReadAll(pipe.read_end.get(), 4);
  EXPECT_TRUE(absl::IsResourceExhausted(read.status())) << read.status();
}

TEST(Output, FailuresOfTheSystem) {
  std::signal(SIGPIPE, SIG_IGN);
  Pipe pipe;
  pipe.read_end.Reset();
  EXPECT_TRUE(absl::IsUnavailable(WriteAll(pipe.write_end.get(), "x")));
  const UniqueFd full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  const absl::Status status = WriteAll(full.get(), "x");
  EXPECT_TRUE(absl::IsInternal(status) && status.message().find("space") != absl::string_view::npos)
      << status;
  EXPECT_TRUE(absl::IsInternal(ReadAll(-1, 10).status()));
}

}  // namespace
}  // namespace verbena::cli
