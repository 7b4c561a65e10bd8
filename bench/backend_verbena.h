// Drives a verbena::Connection.
#pragma once

#include <memory>

#include "bench/backend.h"
#include "bench/config.h"
#include "verbena/connection.h"

namespace verbena::bench {

// How the flags ask connections to be.
Options ConnectionOptions(const Config& config);

class VerbenaBackend : public Backend {
 public:
  explicit VerbenaBackend(std::unique_ptr<Connection> connection)
      : connection_(std::move(connection)) {}

  absl::Status SubmitRead(uint32_t slot, std::string_view key) override;
  absl::Status SubmitWrite(uint32_t slot, std::string_view key, std::string_view value) override;
  int Poll() override { return connection_->Poll(); }
  int Wait(std::chrono::nanoseconds timeout) override { return connection_->Wait(timeout); }
  absl::Status status() const override { return connection_->status(); }
  BackendCounters counters() const override;

  Connection& connection() { return *connection_; }

 private:
  std::unique_ptr<Connection> connection_;
};

}  // namespace verbena::bench
