// The side that has others do a run and puts their results together.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/config.h"
#include "bench/load/line_socket.h"
#include "bench/load/result.h"

namespace verbena::bench {

// One thread.
class Coordinator {
 public:
  // Connects to every agent of config.load.agents and has it connect to the server. Errors name the
  // agent. `config` is borrowed.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Start(const Config& config);

  // One run, by all agents that are left. Those that are lost meanwhile are named in agent_errors,
  // and the result is that of the others. An interrupt ends the run early. Unavailable: nobody is
  // left.
  absl::StatusOr<RunResult> Run(const Config& config);

  // As the first agent has it.
  const RunContext& context() const { return context_; }

 private:
  struct Agent {
    std::string address;
    LineSocket socket;
    bool done = false;        // with the present run
    int64_t heard_nanos = 0;  // when something came from it last
    uint64_t operations = 0;  // that it has done in this run, as it told last
    size_t place = 0;         // in the present run's series
  };
  struct Gathering;  // what has come of a run so far

  explicit Coordinator(const Config& config);

  absl::Status Prepare(const std::string& address, uint32_t number);
  absl::Status AwaitReady(Agent& agent);
  // Has all begin; those that cannot be reached are lost.
  void StartAll(const Config& config, Gathering& gathering);
  // A message, if one has come. An error: the agent is lost.
  absl::Status Listen(Agent& agent, Gathering& gathering);
  absl::Status TakeParts(Agent& agent, const std::vector<SeriesPart>& parts, Gathering& gathering);
  void Lose(size_t agent, const absl::Status& status, Gathering& gathering);
  void StopAll();
  void ShowProgress(const Config& config, int64_t begin_nanos, const Gathering& gathering);

  const Config& config_;
  std::vector<std::unique_ptr<Agent>> agents_;
  RunContext context_;
  const bool in_place_;  // whether lines of progress are rewritten: on a terminal
  int64_t next_line_nanos_ = 0;
};

}  // namespace verbena::bench
