// A coordinator and agents in one process, over a store in memory.
#include "bench/load/agent.h"

#include <gflags/gflags.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "bench/load/agent_messages.h"
#include "bench/load/coordinator.h"
#include "bench/load/line_socket.h"
#include "tests/unit/bench/load/memory_backend.h"

namespace verbena::bench {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;
constexpr std::chrono::seconds kPatience{20};

// Serves what comes to it, once, in a thread.
class OneAgent {
 public:
  explicit OneAgent(std::function<void(LineSocket&)> serve) {
    auto listener = LineListener::Listen("127.0.0.1:0");
    EXPECT_TRUE(listener.ok()) << listener.status();
    address_ = listener->address().ToString();
    thread_ = std::thread([listener = *std::move(listener), serve = std::move(serve)]() mutable {
      auto socket = listener.Accept(kPatience);
      ASSERT_TRUE(socket.ok() && socket->has_value());
      serve(**socket);
    });
  }
  ~OneAgent() { thread_.join(); }
  const std::string& address() const { return address_; }

 private:
  std::string address_;
  std::thread thread_;
};

ConnectBackends Over(MemoryStore* store) {
  return [store](const Config& config) -> absl::StatusOr<AgentBackends> {
    AgentBackends agent;
    for (uint32_t i = 0; i < config.connections; ++i) {
      agent.backends.push_back(std::make_unique<MemoryBackend>(store));
    }
    agent.context.fabric = "memory";
    return agent;
  };
}

// A configuration as the command line would make it. Flags are the process's, and those of the
// agents too, which here are in the same one: they all set the same values.
Config FromFlags(Command command, const std::vector<std::pair<std::string, std::string>>& flags,
                 const Properties& properties = {}) {
  for (const auto& [name, value] : flags) {
    EXPECT_FALSE(gflags::SetCommandLineOption(name.c_str(), value.c_str()).empty()) << name;
  }
  const auto config = ConfigFromFlags(command, properties);
  EXPECT_TRUE(config.ok()) << config.status();
  return *config;
}

// One second with three reads and an error, the reads of 1, 2 and 3 us.
std::vector<SeriesPart> SomeParts() {
  std::vector<SeriesPart> parts(1);
  parts[0].end = parts[0].seconds = 1;
  parts[0].kinds[0] = std::make_unique<SeriesPart::Kind>();
  parts[0].kinds[0]->errors = 1;
  for (uint64_t i = 1; i <= 3; ++i) parts[0].kinds[0]->latency.Record(i * 1000);
  return parts;
}

TEST(Agents, LoadTheirShares) {
  const gflags::FlagSaver saver;
  MemoryStore store;
  OneAgent one(
      [&](LineSocket& socket) { EXPECT_TRUE(ServeCoordinator(socket, Over(&store)).ok()); });
  const Config config = FromFlags(Command::kLoad, {{"server", "127.0.0.1:1"},
                                                   {"records", "1001"},
                                                   {"threads", "2"},
                                                   {"agents", one.address()}});
  auto coordinator = Coordinator::Start(config);
  ASSERT_TRUE(coordinator.ok()) << coordinator.status();
  const auto result = (*coordinator)->Run(config);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->operations(), 1001u);
  EXPECT_EQ(store.map.size(), 1001u);
  EXPECT_EQ((*coordinator)->context().fabric, "memory");
}

// Of two processes with two threads each, each loads half of the records, none twice.
TEST(Agents, ProcessesShareRecordsAndRate) {
  MemoryStore store;
  uint64_t done = 0;
  for (uint32_t process = 0; process < 2; ++process) {
    Config config;
    config.command = Command::kLoad;
    config.records = 1001;
    config.threads = config.connections = 2;
    config.depth = 2;
    config.value_size = 50;
    config.processes = 2;
    config.process = process;
    config.workload = *FindWorkload("a");
    std::vector<std::unique_ptr<Backend>> backends;
    for (int i = 0; i < 2; ++i) backends.push_back(std::make_unique<MemoryBackend>(&store));
    done += RunWorkload(config, backends, {}).operations();
  }
  EXPECT_EQ(done, 1001u);
  EXPECT_EQ(store.map.size(), 1001u);
}

// One that closes the connection in the middle of the run: the result is the other's, and it is
// named.
TEST(Agents, OneThatDiesIsNamed) {
  const gflags::FlagSaver saver;
  OneAgent dying([](LineSocket& socket) {
    EXPECT_TRUE(socket.Read(kPatience).ok());
    EXPECT_TRUE(socket.Write({{"type", "ready"}}).ok());
    EXPECT_TRUE(socket.Read(kPatience).ok());  // run
  });
  RunResult part;
  part.seconds = 1;
  part.ops[0].count = 7;
  for (int i = 0; i < 7; ++i) part.ops[0].latency.Record(1000);
  OneAgent working([&](LineSocket& socket) {
    EXPECT_TRUE(socket.Read(kPatience).ok());
    EXPECT_TRUE(socket.Write({{"type", "ready"}}).ok());
    EXPECT_TRUE(socket.Read(kPatience).ok());
    EXPECT_TRUE(socket.Write(ProgressMessage(3, SomeParts())).ok());
    EXPECT_TRUE(socket.Write(ResultMessage(part, {})).ok());
    // Until the coordinator goes.
    while (true) {
      const auto more = socket.Read(kPatience);
      if (!more.ok() || !more->has_value()) break;
    }
  });
  const Config config =
      FromFlags(Command::kRun,
                {{"server", "127.0.0.1:1"}, {"agents", dying.address() + "," + working.address()}});
  auto coordinator = Coordinator::Start(config);
  ASSERT_TRUE(coordinator.ok()) << coordinator.status();
  const auto result = (*coordinator)->Run(config);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->operations(), 7u);
  ASSERT_EQ(result->agent_errors.size(), 1u);
  EXPECT_THAT(result->agent_errors[0], HasSubstr("agent " + dying.address()));
  EXPECT_THAT(result->agent_errors[0], HasSubstr("closed the connection"));
  EXPECT_EQ(ExitStatusOf(config, *result), 3);
}

TEST(Agents, WhatTheyCannotDoIsToldWithTheirName) {
  const gflags::FlagSaver saver;
  OneAgent agent([](LineSocket& socket) {
    EXPECT_FALSE(ServeCoordinator(socket, [](const Config&) -> absl::StatusOr<AgentBackends> {
                   return absl::UnavailableError("no server there");
                 }).ok());
  });
  const Config config =
      FromFlags(Command::kRun, {{"server", "127.0.0.1:1"}, {"agents", agent.address()}});
  const auto coordinator = Coordinator::Start(config);
  ASSERT_FALSE(coordinator.ok());
  EXPECT_TRUE(absl::IsUnavailable(coordinator.status()));
  EXPECT_THAT(std::string(coordinator.status().message()),
              HasSubstr("agent " + agent.address() + ": no server there"));
}

TEST(Agents, FlagsThatTheyCannotHaveAreRefused) {
  const gflags::FlagSaver saver;
  gflags::SetCommandLineOption("baseline", "true");
  const auto flags = FlagsForAgents({});
  ASSERT_FALSE(flags.ok());
  EXPECT_THAT(std::string(flags.status().message()),
              HasSubstr("--baseline=true cannot be used with --agents"));
}

TEST(AgentMessages, ResultsComeBackAsTheyWere) {
  RunResult result;
  result.seconds = 1.5;
  OpResult& reads = result.ops[0];
  for (uint64_t i = 0; i < 5000; ++i) {
    reads.latency.Record(i * i);
    reads.response.Record(i * i * 3);
  }
  reads.failed.Record(9);
  reads.count = 5001;
  reads.errors = 1;
  reads.statuses[5] = 1;
  result.verify = {5000, 2};
  result.counters.reads = 77;
  result.counters.bytes_sent = 88;
  result.first_error = "what \xff went wrong";
  result.open_loop.emplace();
  result.open_loop->due = 6000;
  result.open_loop->backlog_most = 10;
  result.parts = 40;
  result.part_errors = 1;
  result.counters.completions = 99;
  result.server_verbs = {1, 2, 3, 4, 5, 6};
  RunContext context;
  context.server.items = 5;
  context.server.used_bytes = 500;
  // Through the text, as over the wire.
  const Json wire = Json::parse(ResultMessage(result, context, SomeParts())
                                    .dump(-1, ' ', false, Json::error_handler_t::replace));
  const auto back = ParseResult(wire);
  ASSERT_TRUE(back.ok()) << back.status();
  const OpResult& got = back->result.ops[0];
  EXPECT_EQ(got.count, 5001u);
  EXPECT_EQ(got.statuses[5], 1u);
  for (double percent = 0; percent <= 100; percent += 0.5) {
    EXPECT_EQ(got.latency.Percentile(percent), reads.latency.Percentile(percent));
    EXPECT_EQ(got.response.Percentile(percent), reads.response.Percentile(percent));
  }
  EXPECT_DOUBLE_EQ(got.latency.mean(), reads.latency.mean());
  EXPECT_EQ(got.failed.count(), 1u);
  EXPECT_EQ(back->result.verify.wrong, 2u);
  EXPECT_EQ(back->result.counters.reads, 77u);
  EXPECT_EQ(back->result.counters.bytes_sent, 88u);
  EXPECT_EQ(back->result.open_loop->due, 6000u);
  EXPECT_EQ(back->result.parts, 40u);
  EXPECT_EQ(back->result.part_errors, 1u);
  EXPECT_EQ(back->result.counters.completions, 99u);
  EXPECT_EQ(back->result.server_verbs->bytes_sent, 6u);
  ASSERT_EQ(back->parts.size(), 1u);
  const SeriesRow row = back->parts[0].Row();
  EXPECT_EQ(row.kinds[0].count, 3u);
  EXPECT_EQ(row.kinds[0].errors, 1u);
  EXPECT_EQ(row.kinds[0].p50, 2000u);
  EXPECT_EQ(*back->context.server.used_bytes, 500u);
}

// Each member in turn is left out, or is of another type, or too large.
TEST(AgentMessages, WrongResultsAreRefused) {
  const Json good = ResultMessage(RunResult{}, {});
  ASSERT_TRUE(ParseResult(good).ok());
  for (const auto& [name, value] : good.items()) {
    if (name == "type") continue;
    Json absent = good;
    absent.erase(name);
    // A result without items has no use of its memory either.
    if (name != "used_bytes") {
      EXPECT_FALSE(ParseResult(absent).ok()) << name;
    }
    Json other = good;
    other[name] = nullptr;
    if (name != "used_bytes") {
      EXPECT_FALSE(ParseResult(other).ok()) << name;
    }
  }
  const auto with_cells = [&good](const Json& cells) {
    Json json = good;
    json["ops"][0]["latency"]["cells"] = cells;
    return ParseResult(json).ok();
  };
  EXPECT_TRUE(with_cells(Json::parse("[[5,1],[7,2]]")));
  for (const char* cells : {"[[100000000,1]]", "[[-1,1]]", "[[5]]", "[5]", "[[5,-1]]", "[[5,1.5]]",
                            "{}", "[[18446744073709551615,1]]"}) {
    EXPECT_FALSE(with_cells(Json::parse(cells))) << cells;
  }
  const auto with_parts = [&good](const char* parts) {
    Json json = good;
    json["parts"] = Json::parse(parts);
    return ParseResult(json).ok();
  };
  EXPECT_TRUE(with_parts(R"([{"end":1,"seconds":1,"operations":1,"kinds":{}}])"));
  EXPECT_TRUE(
      with_parts(R"([{"end":1,"seconds":1,"operations":1,"kinds":{"read":{"errors":0,"latency":
      {"cells":[[5,1]],"sum":5,"max":5}}}}])"));
  for (
      const char* parts :
      {R"([{"end":-1,"seconds":1,"operations":1,"kinds":{}}])",
       R"([{"end":1,"seconds":1,"operations":1}])", R"([5])",
       R"([{"end":1,"seconds":1,"operations":1,"kinds":{"walk":{"errors":0}}}])",
       R"([{"end":1,"seconds":1,"operations":1,"kinds":{"read":5}}])",
       R"([{"end":1,"seconds":1,"operations":1,"kinds":{"read":{"errors":0,"latency":{"cells":[[5]]}}}}])"}) {
    EXPECT_FALSE(with_parts(parts)) << parts;
  }
  Json more = good;
  more["rmw_parts"] = 1U;  // of no operations
  EXPECT_FALSE(ParseResult(more).ok());
  more = good;
  more["server_verbs"] = {{"sends", 1U}};
  EXPECT_FALSE(ParseResult(more).ok());
}

TEST(AgentMessages, PreparationsAreChecked) {
  Preparation preparation;
  preparation.process = 1;
  preparation.processes = 2;
  preparation.flags["depth"] = "4";
  const Json good = Json::parse(PreparationMessage(preparation).dump());
  const auto parsed = ParsePreparation(good);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->process, 1u);
  EXPECT_EQ(parsed->flags.at("depth"), "4");
  const auto error = [&good](const char* name, const Json& value) {
    Json json = good;
    json[name] = value;
    return std::string(ParsePreparation(json).status().message());
  };
  EXPECT_THAT(error("verbena_bench", 99U), HasSubstr("speaks version 99"));
  EXPECT_THAT(error("verbena_bench", "1"), HasSubstr("verbena_bench"));
  EXPECT_THAT(error("process", 2), HasSubstr("process"));
  EXPECT_THAT(error("processes", 1e9), HasSubstr("processes"));
  EXPECT_THAT(error("type", "run"), HasSubstr("type"));
  // A coordinator has no files on an agent's host.
  EXPECT_THAT(error("flags", {{"json", "/etc/passwd"}}), HasSubstr("may not set --json"));
  EXPECT_THAT(error("flags", {{"flagfile", "/etc/passwd"}}), HasSubstr("may not set --flagfile"));
  EXPECT_THAT(error("flags", {{"depth", 4}}), HasSubstr("flags"));
  EXPECT_THAT(error("flags", {{"value_size", "file:/etc/passwd"}}), HasSubstr("name a file"));
  EXPECT_THAT(error("properties", {{"fieldlengthhistogram", "/etc/passwd"}}),
              HasSubstr("name a file"));
  EXPECT_THAT(error("properties", {{"fieldlengthdistribution", "histogram"}}),
              HasSubstr("name a file"));
  EXPECT_THAT(error("properties", {{"fieldcount", 4}}), HasSubstr("properties"));
  EXPECT_THAT(error("has_properties", 1), HasSubstr("has_properties"));
}

// What a coordinator was told by properties and files, its agents do, without the files.
TEST(Agents, HaveThePropertiesToo) {
  const gflags::FlagSaver saver;
  MemoryStore store;
  OneAgent one(
      [&](LineSocket& socket) { EXPECT_TRUE(ServeCoordinator(socket, Over(&store)).ok()); });
  const std::string path = ::testing::TempDir() + "/verbena_agent_sizes";
  std::ofstream(path) << "10 1\n";
  Properties properties;
  for (const std::string text :
       {"recordcount=60", "insertstart=10", "fieldcount=3", "fieldlengthdistribution=histogram"}) {
    ASSERT_TRUE(properties.AddAssignment(text).ok());
  }
  ASSERT_TRUE(properties.AddAssignment("fieldlengthhistogram=" + path).ok());
  const Config config =
      FromFlags(Command::kLoad, {{"server", "127.0.0.1:1"}, {"agents", one.address()}}, properties);
  std::remove(path.c_str());
  auto coordinator = Coordinator::Start(config);
  ASSERT_TRUE(coordinator.ok()) << coordinator.status();
  const auto result = (*coordinator)->Run(config);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(store.map.size(), 50u);
  const RecordValues values = config.record_values();
  for (const auto& [key, value] : store.map) {
    EXPECT_EQ(value.size(), values.MeanSize());
    EXPECT_TRUE(values.Verify(key, value)) << key;
  }
}

TEST(CheckAgentCommandLineTest, LeavesToTheCoordinatorWhatIsIts) {
  const gflags::FlagSaver saver;
  EXPECT_TRUE(CheckAgentCommandLine({}).ok());
  Properties properties;
  ASSERT_TRUE(properties.AddAssignment("fieldcount=3").ok());
  EXPECT_THAT(CheckAgentCommandLine(properties).ToString(), HasSubstr("-p and -P are not for"));
  gflags::SetCommandLineOption("depth", "4");
  EXPECT_THAT(CheckAgentCommandLine({}).ToString(), HasSubstr("--depth=4 is not for agents"));
}

TEST(FlagsForAgentsTest, FilesGoAsLists) {
  const gflags::FlagSaver saver;
  const std::string path = ::testing::TempDir() + "/verbena_flag_sizes";
  std::ofstream(path) << "10 1\n20 3\n";
  const Config config =
      FromFlags(Command::kRun,
                {{"server", "127.0.0.1:1"}, {"agents", "h:1"}, {"value_size", "file:" + path}});
  std::remove(path.c_str());
  const auto flags = FlagsForAgents(config);
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->at("value_size"), "list:10:0.25,20:0.75");
}

SeriesPart PartOf(uint64_t nanos, int count) {
  SeriesPart part;
  part.end = part.seconds = 1;
  part.kinds[0] = std::make_unique<SeriesPart::Kind>();
  for (int i = 0; i < count; ++i) part.kinds[0]->latency.Record(nanos);
  return part;
}

// Percentiles of a second are those of all processes' operations, not a mean of theirs.
TEST(SeriesMergerTest, SettlesARowWhenAllHaveGivenTheirs) {
  SeriesMerger merger(2);
  EXPECT_TRUE(merger.Add(0, PartOf(1000, 97)));
  EXPECT_TRUE(merger.Add(0, PartOf(1000, 1)));
  EXPECT_EQ(merger.last(), nullptr);
  EXPECT_TRUE(merger.Add(1, PartOf(2000, 3)));
  ASSERT_NE(merger.last(), nullptr);
  EXPECT_EQ(merger.last()->Latency().count(), 100u);
  // One that is lost is waited for no longer.
  merger.End(1);
  EXPECT_EQ(merger.last()->Latency().count(), 1u);
  EXPECT_FALSE(merger.Add(1, PartOf(1, 1)));
  const auto rows = merger.TakeRows();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].kinds[0].count, 100u);
  EXPECT_EQ(rows[0].kinds[0].p50, 1000u);
  EXPECT_EQ(rows[0].kinds[0].p99, 2000u);
}

TEST(SeriesMergerTest, HoldsOnlySoMuch) {
  SeriesMerger merger(2);
  for (size_t i = 0; i < SeriesMerger::kMostAhead; ++i) ASSERT_TRUE(merger.Add(0, PartOf(1, 1)));
  EXPECT_FALSE(merger.Add(0, PartOf(1, 1)));
  EXPECT_TRUE(merger.Add(1, PartOf(1, 1)));
  EXPECT_TRUE(merger.Add(0, PartOf(1, 1)));
  EXPECT_EQ(merger.TakeRows().size(), SeriesMerger::kMostAhead + 1);
}

TEST(SeriesMergerTest, OfNobodyIsEmpty) { EXPECT_TRUE(SeriesMerger(0).TakeRows().empty()); }

TEST(LineSockets, RefuseWhatIsNoObject) {
  auto listener = LineListener::Listen("127.0.0.1:0");
  ASSERT_TRUE(listener.ok()) << listener.status();
  const std::string address = listener->address().ToString();
  auto client = LineSocket::Connect(address, kPatience);
  ASSERT_TRUE(client.ok()) << client.status();
  auto server = listener->Accept(kPatience);
  ASSERT_TRUE(server.ok() && server->has_value());
  ASSERT_TRUE(client->Write({{"a", 1}}).ok());
  ASSERT_TRUE(client->Write({{"b", 2}}).ok());
  EXPECT_EQ((**(*server)->Read(kPatience))["a"], 1);
  EXPECT_EQ((**(*server)->Read(kPatience))["b"], 2);
  EXPECT_FALSE((*server)->Read(std::chrono::milliseconds(1))->has_value());
  ASSERT_TRUE(client->Write(Json(5)).ok());
  EXPECT_TRUE(absl::IsInvalidArgument((*server)->Read(kPatience).status()));
  *client = LineSocket(UniqueFd());
  EXPECT_TRUE(absl::IsUnavailable((*server)->Read(kPatience).status()));
  EXPECT_FALSE(LineSocket::Connect("127.0.0.1:1", kPatience).ok());
  EXPECT_FALSE(LineListener::Listen("nowhere").ok());
  EXPECT_FALSE(LineListener::Listen(address).ok());  // it is in use
}

TEST(Agents, ServeNobodyWhoSpeaksOtherwise) {
  for (const Json& first : {Json{{"type", "prepare"}}, Json{{"verbena_bench", 7}}}) {
    absl::Status served;
    std::string answer;
    {
      OneAgent agent([&](LineSocket& socket) {
        served = ServeCoordinator(socket, [](const Config&) -> absl::StatusOr<AgentBackends> {
          return absl::InternalError("not reached");
        });
      });
      auto client = LineSocket::Connect(agent.address(), kPatience);
      ASSERT_TRUE(client.ok()) << client.status();
      ASSERT_TRUE(client->Write(first).ok());
      const auto message = client->Read(kPatience);
      ASSERT_TRUE(message.ok() && message->has_value());
      answer = MessageType(**message);
    }
    EXPECT_TRUE(absl::IsInvalidArgument(served)) << served;
    EXPECT_EQ(answer, "error");
  }
}

}  // namespace
}  // namespace verbena::bench
