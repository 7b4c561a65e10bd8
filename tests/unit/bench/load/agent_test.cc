// A coordinator and agents in one process, over a store in memory.
#include "bench/load/agent.h"

#include <gflags/gflags.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
Config FromFlags(Command command, const std::vector<std::pair<std::string, std::string>>& flags) {
  for (const auto& [name, value] : flags) {
    EXPECT_FALSE(gflags::SetCommandLineOption(name.c_str(), value.c_str()).empty()) << name;
  }
  const auto config = ConfigFromFlags(command);
  EXPECT_TRUE(config.ok()) << config.status();
  return *config;
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
    EXPECT_TRUE(socket.Write({{"type", "progress"}, {"operations", 3}}).ok());
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
  const auto flags = FlagsForAgents();
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
  result.series.resize(2);
  result.series[1].kinds[0].count = 4;
  RunContext context;
  context.server.items = 5;
  context.server.used_bytes = 500;
  // Through the text, as over the wire.
  const Json wire = Json::parse(
      ResultMessage(result, context).dump(-1, ' ', false, Json::error_handler_t::replace));
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
  EXPECT_EQ(back->result.series[1].kinds[0].count, 4u);
  EXPECT_FALSE(back->result.series[1].kinds[0].percentiles);
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
  Json series = good;
  series["series"] = Json::parse(R"([{"end":1,"seconds":1,"kinds":[[1,2,3]]}])");
  EXPECT_FALSE(ParseResult(series).ok());
  series["series"] = Json::parse(R"([{"end":-1,"seconds":1,"kinds":[]}])");
  EXPECT_FALSE(ParseResult(series).ok());
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
}

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
