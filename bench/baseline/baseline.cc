#include "bench/baseline/baseline.h"

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "bench/baseline/baseline_client.h"
#include "bench/baseline/baseline_keys.h"
#include "bench/baseline/baseline_storage.h"
#include "bench/baseline/raw_side.h"
#include "bench/load/interrupt.h"
#include "bench/measure/ticks.h"
#include "bench/workload/random.h"
#include "common/base/macros.h"
#include "common/base/sizes.h"
#include "common/wire/messages.h"

namespace verbena::bench {
namespace {

// Samples of each kind in a round: at most so many, no more bytes of values and, on slow fabrics,
// no more time than this.
constexpr uint64_t kReadSamples = 10'000;
constexpr uint64_t kRateSamples = 100'000;
constexpr uint64_t kChangeSamples = 4'000;
constexpr uint64_t kLeastSamples = 100;
constexpr uint64_t kRoundBytes = 64 * kMiB;
constexpr double kStepNanos = 100e6;

// `nanos`: what one takes.
uint64_t SampleCount(const Config& config, uint64_t most, double nanos) {
  const auto by_time = static_cast<uint64_t>(kStepNanos / std::max(nanos, 1.0));
  return std::clamp<uint64_t>(std::min(kRoundBytes / config.value_size, by_time), kLeastSamples,
                              most);
}

// Runs the rounds and keeps their figures.
class Rounds {
 public:
  Rounds(const Config& config, BaselineResult* result, RawInitiator* raw, ClientBaseline* client,
         StorageBaseline* storage)
      : config_(config), result_(result), raw_(raw), client_(client), storage_(storage) {}

  absl::Status Run() {
    VERBENA_RETURN_IF_ERROR(ChooseSamples());
    // One round to warm up, not counted.
    VERBENA_RETURN_IF_ERROR(Round(0));
    figures_ = {};
    uint32_t done = 0;
    for (; done < config_.rounds && !Interrupted(); ++done)
      VERBENA_RETURN_IF_ERROR(Round(done + 1));
    if (done == 0) return absl::CancelledError("interrupted before the baseline's first round");
    result_->rounds = done;
    Summarize();
    return absl::OkStatus();
  }

 private:
  struct Figures {
    std::vector<double> raw_read, get, raw_rate, get_rate, pingpong, put, storage_put;
  };

  absl::Status ChooseSamples() {
    std::vector<uint32_t> nanos(kLeastSamples);
    VERBENA_RETURN_IF_ERROR(client_->ReadOneByOne(Offsets(nanos.size(), config_.seed), 0, nanos));
    const double read = GroupedMedian(nanos);
    VERBENA_RETURN_IF_ERROR(raw_->PingPong(0, nanos));
    const double pingpong = GroupedMedian(nanos);
    read_samples_ = SampleCount(config_, kReadSamples, read);
    rate_samples_ = SampleCount(config_, kRateSamples, read / 4);
    change_samples_ = SampleCount(config_, kChangeSamples, pingpong);
    return absl::OkStatus();
  }

  // Each pair that is compared is measured back to back, and in every other round the other way
  // round, so that a drift of the machine favours neither.
  absl::Status Round(uint32_t number) {
    const uint64_t seed = Mix64(config_.seed ^ (uint64_t{number} << 32));
    const KeySequence keys(config_, read_samples_, seed);
    const KeySequence more_keys(config_, rate_samples_, seed + 1);
    const KeySequence changed_keys(config_, change_samples_, seed + 4);
    const ValueSequence values(changed_keys, config_.value_size, seed);
    const std::vector<uint64_t> offsets = Offsets(keys.size(), seed + 2);
    const std::vector<uint64_t> more_offsets = Offsets(more_keys.size(), seed + 3);
    std::vector<uint32_t> all_nanos(std::max(keys.size(), changed_keys.size()));
    const std::span<uint32_t> read_nanos(all_nanos.data(), keys.size());
    const std::span<uint32_t> change_nanos(all_nanos.data(), changed_keys.size());
    const double overhead = result_->clock_ns;
    std::vector<std::function<absl::Status()>> steps = {
        [&] {
          VERBENA_RETURN_IF_ERROR(client_->ReadOneByOne(offsets, overhead, read_nanos));
          figures_.raw_read.push_back(GroupedMedian(read_nanos));
          return absl::OkStatus();
        },
        [&] {
          VERBENA_RETURN_IF_ERROR(client_->GetOneByOne(keys, overhead, read_nanos));
          figures_.get.push_back(GroupedMedian(read_nanos));
          return absl::OkStatus();
        },
        [&] {
          VERBENA_ASSIGN_OR_RETURN(const double rate, client_->ReadPipelined(more_offsets));
          figures_.raw_rate.push_back(rate);
          return absl::OkStatus();
        },
        [&] {
          VERBENA_ASSIGN_OR_RETURN(const double rate,
                                   client_->GetPipelined(more_keys, result_->depth));
          figures_.get_rate.push_back(rate);
          return absl::OkStatus();
        },
        [&] {
          VERBENA_RETURN_IF_ERROR(raw_->PingPong(overhead, change_nanos));
          figures_.pingpong.push_back(GroupedMedian(change_nanos));
          return absl::OkStatus();
        },
        [&] {
          VERBENA_RETURN_IF_ERROR(
              client_->PutOneByOne(changed_keys, values, overhead, change_nanos));
          figures_.put.push_back(GroupedMedian(change_nanos));
          return absl::OkStatus();
        },
        [&] {
          VERBENA_RETURN_IF_ERROR(storage_->Put(changed_keys, values, overhead, change_nanos));
          figures_.storage_put.push_back(GroupedMedian(change_nanos));
          return absl::OkStatus();
        },
    };
    if (number % 2 == 1) std::reverse(steps.begin(), steps.end());
    for (const auto& step : steps) VERBENA_RETURN_IF_ERROR(step());
    return absl::OkStatus();
  }

  std::vector<uint64_t> Offsets(size_t count, uint64_t seed) const {
    Random random(seed);
    const uint64_t blocks = result_->region_size / result_->block_size;
    std::vector<uint64_t> offsets(count);
    for (uint64_t& offset : offsets) offset = random.Below(blocks) * result_->block_size;
    return offsets;
  }

  static Spread Ratio(const std::vector<double>& above, const std::vector<double>& below) {
    std::vector<double> ratios;
    for (size_t i = 0; i < above.size(); ++i) {
      if (below[i] > 0) ratios.push_back(above[i] / below[i]);
    }
    return SpreadOf(std::move(ratios));
  }

  void Summarize() {
    result_->raw_read_ns = SpreadOf(figures_.raw_read);
    result_->get_ns = SpreadOf(figures_.get);
    result_->raw_read_rate = SpreadOf(figures_.raw_rate);
    result_->get_rate = SpreadOf(figures_.get_rate);
    result_->pingpong_ns = SpreadOf(figures_.pingpong);
    result_->put_ns = SpreadOf(figures_.put);
    result_->storage_put_ns = SpreadOf(figures_.storage_put);
    result_->get_over_raw_read = Ratio(figures_.get, figures_.raw_read);
    result_->get_rate_over_raw_read = Ratio(figures_.get_rate, figures_.raw_rate);
    std::vector<double> extra = figures_.put;
    for (size_t i = 0; i < extra.size(); ++i) extra[i] -= figures_.pingpong[i];
    result_->put_over_storage = Ratio(extra, figures_.storage_put);
    result_->put_over_pingpong = Ratio(figures_.put, figures_.pingpong);
  }

  const Config& config_;
  BaselineResult* const result_;
  RawInitiator* const raw_;
  ClientBaseline* const client_;
  StorageBaseline* const storage_;
  uint64_t read_samples_ = 0;
  uint64_t rate_samples_ = 0;
  uint64_t change_samples_ = 0;
  Figures figures_;
};

}  // namespace

absl::StatusOr<BaselineResult> MeasureBaseline(const Config& config, const ServerFacts& facts) {
  BaselineResult result;
  result.block_size = BlockSizeFor(config);
  const size_t key_size = config.key_names().typical_size();
  result.request_size =
      sizeof(wire::RequestHeader) + wire::OperationSize(key_size, config.value_size);
  result.response_size = sizeof(wire::ResponseHeader) + wire::ResultSize(0);
  result.clock = TickSource();
  result.clock_ns = TickClock().PairOverheadNanos();

  VERBENA_ASSIGN_OR_RETURN(const auto client, ClientBaseline::Create(config));
  VERBENA_RETURN_IF_ERROR(
      client->PrepareReads(config.depth, static_cast<uint32_t>(result.block_size)));
  result.depth = client->read_depth();
  // The READs go over as much memory as the store's GETs, since caches and page tables care.
  const uint64_t used = facts.used_bytes.value_or(config.records * result.block_size);
  result.region_size = std::clamp(used, std::min(result.block_size * 64, client->slice_size()),
                                  client->slice_size());
  RawInitiatorOptions raw_options;
  raw_options.fabric = client->connection().fabric();
  raw_options.request_size = static_cast<uint32_t>(result.request_size);
  raw_options.response_size = static_cast<uint32_t>(result.response_size);
  if (config.poll.count() == 0) raw_options.poll_ns = raw_options.target_poll_ns = 0;
  VERBENA_ASSIGN_OR_RETURN(const auto raw, RawSide::Start(config.server, kMiB, raw_options));
  VERBENA_ASSIGN_OR_RETURN(const auto storage, StorageBaseline::Create(config, used));
  Rounds rounds(config, &result, &raw->initiator(), client.get(), storage.get());
  VERBENA_RETURN_IF_ERROR(rounds.Run());
  return result;
}

}  // namespace verbena::bench
