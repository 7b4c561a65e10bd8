// Clients of tests that are not about deadlines.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string_view>

#include "tests/integration/fabric_under_test.h"
#include "verbena/connection.h"
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

// Null, and the test has failed, if that is not possible.
inline std::unique_ptr<Connection> MustConnect(std::string_view server,
                                               const Options& options = PatientOptions()) {
  auto connection = Connection::Connect(server, options);
  EXPECT_TRUE(connection.ok()) << connection.status();
  return connection.ok() ? *std::move(connection) : nullptr;
}

}  // namespace verbena::testing
