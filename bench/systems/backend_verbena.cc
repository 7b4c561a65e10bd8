#include "bench/systems/backend_verbena.h"

namespace verbena::bench {

Options ConnectionOptions(const Config& config) {
  Options options;
  options.fabric = config.fabric;
  options.tos = config.connect.tos;
  options.ack_timeout = config.connect.ack_timeout;
  options.retry_count = config.connect.retry_count;
  options.rnr_timer = config.connect.min_rnr_timer;
  options.depth = config.depth;
  options.cache_bytes = config.cache_bytes;
  options.preload = config.preload;
  options.poll_time = config.poll;
  options.connect_timeout = options.operation_timeout = config.timeout;
  return options;
}

// Its figures would be of something else: a server that has restarted holds nothing of the run's.
void VerbenaBackend::LookAtNewConnection() {
  reconnects_ = connection_->stats().reconnects;
  if (connection_->server_epoch() == epoch_ || !gone_.ok()) return;
  gone_ = absl::UnavailableError(
      "the server has restarted: what it holds now is not what the run began with");
}

absl::Status VerbenaBackend::SubmitRead(uint32_t slot, std::string_view key) {
  Began(slot);
  return connection_->SubmitGet(key,
                                [this, slot](const absl::Status& status, const GetResult& result) {
                                  Ended(slot, status);
                                  if (sink_ != nullptr) sink_->OnRead(slot, status, result.value);
                                });
}

ChangeCallback VerbenaBackend::BeginChange(uint32_t slot) {
  Began(slot);
  return [this, slot](const absl::Status& status, const ChangeResult&) {
    Ended(slot, status);
    if (sink_ != nullptr) sink_->OnWrite(slot, status);
  };
}

absl::Status VerbenaBackend::SubmitWrite(uint32_t slot, std::string_view key,
                                         std::string_view value) {
  return connection_->SubmitPut(key, value, BeginChange(slot));
}

absl::Status VerbenaBackend::SubmitWriteWith(uint32_t slot, std::string_view key,
                                             std::string_view value, const WriteOptions& options) {
  PutOptions put;
  switch (options.condition) {
    case WriteOptions::Condition::kNone:
      break;
    case WriteOptions::Condition::kIfAbsent:
      put.condition = Condition::IfAbsent();
      break;
    case WriteOptions::Condition::kIfPresent:
      put.condition = Condition::IfPresent();
      break;
  }
  if (options.ttl.count() > 0) put.ttl = options.ttl;
  return connection_->SubmitPut(key, value, BeginChange(slot), put);
}

absl::Status VerbenaBackend::SubmitDelete(uint32_t slot, std::string_view key) {
  return connection_->SubmitDelete(key, BeginChange(slot));
}

absl::Status VerbenaBackend::SubmitScan(uint32_t slot, std::string_view start,
                                        std::string_view prefix, uint32_t count) {
  if (!connection_->status().ok()) return connection_->status();
  Began(slot);
  scan_ = {.slot = slot, .range = {.start = start, .prefix = prefix}, .count = count};
  return absl::OkStatus();
}

int VerbenaBackend::Scan() {
  // Taken out first: the sink may submit the next one.
  const PendingScan scan = *scan_;
  scan_.reset();
  const absl::Status status = connection_->Scan(scan.range, scan.count, &items_);
  Ended(scan.slot, status);
  records_.clear();
  for (const ScanItem& item : items_) records_.push_back({item.key, item.value});
  if (sink_ != nullptr) sink_->OnScan(scan.slot, status, records_);
  return 1;
}

BackendCounters VerbenaBackend::counters() const {
  const ConnectionStats& stats = connection_->stats();
  BackendCounters counters;
  counters.gets = stats.gets;
  counters.reads = stats.reads;
  counters.read_retries = stats.read_retries;
  counters.rpc_gets = stats.rpc_gets;
  counters.doorbells = stats.doorbells;
  counters.sends = stats.sends;
  counters.completions = stats.completions;
  counters.bytes_read = stats.bytes_read;
  counters.bytes_sent = stats.bytes_sent;
  counters.reconnects = stats.reconnects;
  return counters;
}

}  // namespace verbena::bench
