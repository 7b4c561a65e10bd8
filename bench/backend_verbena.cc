#include "bench/backend_verbena.h"

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
  options.poll_time = config.poll;
  return options;
}

absl::Status VerbenaBackend::SubmitRead(uint32_t slot, std::string_view key) {
  return connection_->SubmitGet(key,
                                [this, slot](const absl::Status& status, const GetResult& result) {
                                  if (sink_ != nullptr) sink_->OnRead(slot, status, result.value);
                                });
}

absl::Status VerbenaBackend::SubmitWrite(uint32_t slot, std::string_view key,
                                         std::string_view value) {
  return connection_->SubmitPut(key, value,
                                [this, slot](const absl::Status& status, const ChangeResult&) {
                                  if (sink_ != nullptr) sink_->OnWrite(slot, status);
                                });
}

BackendCounters VerbenaBackend::counters() const {
  const ConnectionStats& stats = connection_->stats();
  return {stats.gets, stats.reads, stats.read_retries, stats.rpc_gets};
}

}  // namespace verbena::bench
