#include "tests/integration/run_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace verbena::testing {

ProgramOutcome RunProgram(ProcessOptions options) {
  auto process = Process::Run(std::move(options));
  if (!process.ok()) {
    ADD_FAILURE() << process.status();
    return {};
  }
  const auto exit = (*process)->WaitForExit();
  if (!exit.ok() || !exit->exited) {
    ADD_FAILURE() << "signal " << (exit.ok() ? exit->signal : 0) << "\n" << (*process)->err();
    return {};
  }
  return {exit->code, (*process)->out(), (*process)->err()};
}

ProgramOutcome Cli(std::vector<std::string> args, std::string input) {
  const auto given = [&](const char* flag) {
    return std::any_of(args.begin(), args.end(),
                       [flag](const std::string& arg) { return arg.starts_with(flag); });
  };
  if (given("--server") && !given("--timeout")) args.insert(args.begin(), kLongTimeout);
  ProcessOptions options;
  options.program = ProgramPath("verbena-cli");
  options.args = std::move(args);
  options.input = std::move(input);
  return RunProgram(std::move(options));
}

}  // namespace verbena::testing
