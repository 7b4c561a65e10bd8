// Programs that a test runs to their end.
#pragma once

#include <string>
#include <vector>

#include "tests/integration/process.h"

namespace verbena::testing {

struct Outcome {
  int code = -1;  // exit status; -1: it did not end by itself, which is a failed expectation
  std::string out;
  std::string err;
};

Outcome RunProgram(ProcessOptions options);
// verbena-cli with these arguments.
Outcome Cli(std::vector<std::string> args, std::string input = {});

inline bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace verbena::testing
