// Drives a verbena::Connection.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "bench/config.h"
#include "bench/systems/backend.h"
#include "verbena/connection.h"

namespace verbena::bench {

// How the flags ask connections to be.
Options ConnectionOptions(const Config& config);

class VerbenaBackend : public Backend {
 public:
  explicit VerbenaBackend(std::unique_ptr<Connection> connection)
      : connection_(std::move(connection)), epoch_(connection_->server_epoch()) {}

  absl::Status SubmitRead(uint32_t slot, std::string_view key) override;
  absl::Status SubmitWrite(uint32_t slot, std::string_view key, std::string_view value) override;
  absl::Status SubmitWriteWith(uint32_t slot, std::string_view key, std::string_view value,
                               const WriteOptions& options) override;
  absl::Status SubmitDelete(uint32_t slot, std::string_view key) override;
  // Scans are synchronous calls of the client library: Poll and Wait make the one that was
  // submitted and return when it is over, whatever the timeout.
  absl::Status SubmitScan(uint32_t slot, std::string_view start, std::string_view prefix,
                          uint32_t count) override;
  int Poll() override {
    const int finished = scan_.has_value() ? Scan() : connection_->Poll();
    LookAtServer();
    return finished;
  }
  int Wait(std::chrono::nanoseconds timeout) override {
    const int finished = scan_.has_value() ? Scan() : connection_->Wait(timeout);
    LookAtServer();
    return finished;
  }
  // A connection that was lost is made again, and its operations go on: that is what a network does
  // which loses packets. The server is gone when an operation has waited for all of its time and
  // nothing was answered meanwhile, or when it is another one than before.
  absl::Status status() const override { return gone_.ok() ? connection_->status() : gone_; }
  BackendCounters counters() const override;

  Connection& connection() { return *connection_; }

 private:
  struct PendingScan {
    uint32_t slot = 0;
    ScanRange range;
    uint32_t count = 0;
  };

  int Scan();
  // What the change that begins now ends with.
  ChangeCallback BeginChange(uint32_t slot);
  void Began(uint32_t slot) {
    if (slot >= answers_before_.size()) answers_before_.resize(slot + 1);
    answers_before_[slot] = answers_;
  }
  void Ended(uint32_t slot, const absl::Status& status) {
    if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) {
      ++answers_;
    } else if (answers_before_[slot] == answers_ && gone_.ok()) {
      gone_ = status;
    }
  }
  void LookAtServer() {
    if (connection_->stats().reconnects != reconnects_) LookAtNewConnection();
  }
  void LookAtNewConnection();

  std::unique_ptr<Connection> connection_;
  uint64_t epoch_;           // of the server that the run began with
  uint64_t reconnects_ = 0;  // when the epoch was looked at last
  absl::Status gone_;
  uint64_t answers_ = 0;                  // operations that the server has answered
  std::vector<uint64_t> answers_before_;  // what it was when the slot's operation began
  std::optional<PendingScan> scan_;
  std::vector<ScanItem> items_;  // of the last scan, and the same for the sink
  std::vector<ScannedRecord> records_;
};

}  // namespace verbena::bench
