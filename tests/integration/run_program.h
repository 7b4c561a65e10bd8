// Programs that a test runs to their end.
#pragma once

#include <string>
#include <vector>

#include "tests/integration/process.h"

namespace verbena::testing {

struct ProgramOutcome {
  int code = -1;  // exit status; -1: it did not end by itself, which is a failed expectation
  std::string out;
  std::string err;
};

ProgramOutcome RunProgram(ProcessOptions options);
// Large values take long where packets are lost, and few tests are about deadlines.
inline constexpr const char* kLongTimeout = "--timeout=60s";
// verbena-cli with these arguments, and kLongTimeout if there is a server and no other time-out.
ProgramOutcome Cli(std::vector<std::string> args, std::string input = {});

inline bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace verbena::testing
