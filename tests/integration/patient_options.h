// A client's options for tests that are not about deadlines.
#pragma once

#include <chrono>

#include "tests/integration/fabric_under_test.h"
#include "verbena/options.h"

namespace verbena::testing {

// The fabric under test, and time enough for sanitizers and busy machines.
inline Options PatientOptions() {
  Options options;
  options.fabric = FabricName();
  options.connect_timeout = std::chrono::seconds(60);
  options.operation_timeout = std::chrono::seconds(60);
  return options;
}

}  // namespace verbena::testing
