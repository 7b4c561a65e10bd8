// Drives a verbena::Connection.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "bench/config.h"
#include "bench/systems/backend.h"
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
  absl::Status SubmitDelete(uint32_t slot, std::string_view key) override;
  // Scans are synchronous calls of the client library: Poll and Wait make the one that was
  // submitted and return when it is over, whatever the timeout.
  absl::Status SubmitScan(uint32_t slot, std::string_view start, std::string_view prefix,
                          uint32_t count) override;
  int Poll() override { return scan_.has_value() ? Scan() : connection_->Poll(); }
  int Wait(std::chrono::nanoseconds timeout) override {
    return scan_.has_value() ? Scan() : connection_->Wait(timeout);
  }
  absl::Status status() const override { return connection_->status(); }
  BackendCounters counters() const override;

  Connection& connection() { return *connection_; }

 private:
  struct PendingScan {
    uint32_t slot = 0;
    ScanRange range;
    uint32_t count = 0;
  };

  int Scan();

  std::unique_ptr<Connection> connection_;
  std::optional<PendingScan> scan_;
  std::vector<ScanItem> items_;  // of the last scan, and the same for the sink
  std::vector<ScannedRecord> records_;
};

}  // namespace verbena::bench
