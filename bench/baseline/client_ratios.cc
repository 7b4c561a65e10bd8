// What the client library costs beside what it is made of: large GETs beside plain READs, PUTs
// beside a ping-pong and the storage, batches beside single operations, two threads beside one.
// Each pair is measured one after the other within a round; a ratio is taken within a round, and
// judged is the median of the rounds' ratios.
#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/baseline/baseline_client.h"
#include "bench/baseline/baseline_keys.h"
#include "bench/baseline/baseline_storage.h"
#include "bench/baseline/raw_side.h"
#include "bench/commands.h"
#include "bench/load/interrupt.h"
#include "bench/measure/ratio.h"
#include "bench/measure/statistics.h"
#include "bench/measure/ticks.h"
#include "bench/systems/backend_verbena.h"
#include "bench/workload/random.h"
#include "common/base/clock.h"
#include "common/base/macros.h"
#include "common/base/sizes.h"
#include "common/wire/messages.h"
#include "verbena/client.h"

namespace verbena::bench {
namespace {

constexpr uint64_t kLargeValue = kMiB;
constexpr uint64_t kLargeRecords = 8;
constexpr size_t kLargeSamples = 64;
constexpr size_t kPuts = 1600;
constexpr size_t kPutsTogether = 16;
constexpr size_t kGetsTogether = 64;
constexpr size_t kGets = 64 * 200;
constexpr size_t kThreadGets = 50'000;
constexpr uint32_t kBlock = 160;

double Seconds(int64_t begin) { return static_cast<double>(MonotonicNanos() - begin) * 1e-9; }

// Times of pieces of work. Compared are medians, since a sum contains whatever the scheduler did
// meanwhile: both ends of a PUT are threads that poll, and the machine may have other work.
class Times {
 public:
  explicit Times(size_t count) { nanos_.reserve(count); }

  // Runs work() and takes its time.
  template <typename Work>
  absl::Status Take(Work&& work) {
    const int64_t begin = clock_.NowSerial();
    absl::Status status = std::forward<Work>(work)();
    nanos_.push_back(LessOverhead(clock_.Nanos(begin, clock_.NowSerial()), overhead_));
    return status;
  }
  double Median() { return GroupedMedian(nanos_); }

 private:
  const TickClock clock_;
  const double overhead_ = clock_.PairOverheadNanos();
  std::vector<uint32_t> nanos_;
};

// One ratio of the table, with its samples, one for each round.
struct Ratio {
  const char* what;
  Bound bound;
  double limit;
  std::vector<double> rounds;

  bool Print() const { return PrintRatio(what, SpreadOf(rounds), bound, limit); }
};

class ClientRatios {
 public:
  static absl::StatusOr<bool> Measure(const Config& config) {
    ClientRatios ratios(config);
    VERBENA_RETURN_IF_ERROR(ratios.Connect());
    VERBENA_RETURN_IF_ERROR(ratios.Round(0));  // to warm up
    for (Ratio* ratio : ratios.all()) ratio->rounds.clear();
    uint32_t done = 0;
    for (; done < config.rounds && !Interrupted(); ++done) {
      VERBENA_RETURN_IF_ERROR(ratios.Round(done + 1));
    }
    if (done == 0) return absl::CancelledError("interrupted before the first round");
    bool met = true;
    for (const Ratio* ratio : ratios.all()) met = ratio->Print() && met;
    return met;
  }

 private:
  explicit ClientRatios(const Config& config) : config_(config) {}

  std::array<Ratio*, 10> all() {
    return {&large_,
            &put_,
            &puts_together_,
            &multi_get_,
            &read_lists_,
            &multi_doorbells_,
            &one_by_one_doorbells_,
            &threads_,
            &client_threads_,
            &read_threads_};
  }

  absl::Status Connect() {
    large_config_ = config_;
    large_config_.records = kLargeRecords;
    large_config_.value_size = kLargeValue;
    large_config_.key_size = 40;  // other names than the small records
    VERBENA_RETURN_IF_ERROR(PutLarge());
    VERBENA_ASSIGN_OR_RETURN(large_client_, ClientBaseline::Create(large_config_));
    VERBENA_RETURN_IF_ERROR(large_client_->PrepareReads(1, kLargeValue));
    VERBENA_ASSIGN_OR_RETURN(client_, ClientBaseline::Create(config_));
    VERBENA_ASSIGN_OR_RETURN(other_client_, ClientBaseline::Create(config_));
    // Of the same bytes as the GETs', in lists and one by one.
    VERBENA_ASSIGN_OR_RETURN(single_client_, ClientBaseline::Create(config_));
    VERBENA_RETURN_IF_ERROR(client_->PrepareReads(16, kBlock));
    VERBENA_RETURN_IF_ERROR(other_client_->PrepareReads(16, kBlock));
    VERBENA_RETURN_IF_ERROR(single_client_->PrepareReads(1, kBlock));
    RawInitiatorOptions raw;
    raw.fabric = client_->connection().fabric();
    raw.request_size = static_cast<uint32_t>(
        sizeof(wire::RequestHeader) +
        wire::OperationSize(config_.key_names().typical_size(), config_.value_size));
    raw.response_size = sizeof(wire::ResponseHeader) + wire::ResultSize(0);
    if (config_.poll.count() == 0) raw.poll_ns = raw.target_poll_ns = 0;
    VERBENA_ASSIGN_OR_RETURN(raw_, RawSide::Start(config_.server, kMiB, raw));
    VERBENA_ASSIGN_OR_RETURN(storage_, StorageBaseline::Create(config_, config_.records * 256));
    ClientOptions options;
    options.connection = ConnectionOptions(config_);
    options.slots = 2;
    VERBENA_ASSIGN_OR_RETURN(shared_client_, Client::Connect(config_.server, options));
    return absl::OkStatus();
  }

  absl::Status PutLarge() {
    VERBENA_ASSIGN_OR_RETURN(const auto connection,
                             Connection::Connect(config_.server, ConnectionOptions(config_)));
    const KeyNames names = large_config_.key_names();
    std::string key(names.max_size(), '\0');
    const std::string value(kLargeValue, 'v');
    for (uint64_t record = 0; record < kLargeRecords; ++record) {
      VERBENA_RETURN_IF_ERROR(
          connection->Put({key.data(), names.Write(record, key)}, value).status());
    }
    return absl::OkStatus();
  }

  absl::Status Round(uint32_t number) {
    std::array<std::function<absl::Status()>, 5> steps = {
        [&] { return Large(number); }, [&] { return Put(number); },
        [&] { return PutsTogether(number); }, [&] { return MultiGet(number); },
        [&] { return Threads(number); }};
    if (number % 2 == 1) std::reverse(steps.begin(), steps.end());
    for (const auto& step : steps) VERBENA_RETURN_IF_ERROR(step());
    return absl::OkStatus();
  }

  // Runs both, in every other round the other way round.
  static absl::Status Both(uint32_t number, const std::function<absl::Status()>& a,
                           const std::function<absl::Status()>& b) {
    VERBENA_RETURN_IF_ERROR(number % 2 == 0 ? a() : b());
    return number % 2 == 0 ? b() : a();
  }

  absl::Status Large(uint32_t number) {
    const KeySequence keys(large_config_, kLargeSamples, number);
    std::vector<uint64_t> offsets(kLargeSamples);
    for (size_t i = 0; i < offsets.size(); ++i) {
      offsets[i] = (i % kLargeRecords) * kLargeValue;
    }
    std::vector<uint32_t> get(kLargeSamples);
    std::vector<uint32_t> read(kLargeSamples);
    VERBENA_RETURN_IF_ERROR(Both(
        number, [&] { return large_client_->GetOneByOne(keys, 0, get); },
        [&] { return large_client_->ReadOneByOne(offsets, 0, read); }));
    large_.rounds.push_back(GroupedMedian(read) / GroupedMedian(get));
    return absl::OkStatus();
  }

  absl::Status Put(uint32_t number) {
    const KeySequence keys(config_, kPuts, number);
    const ValueSequence values(keys, config_.value_size, number);
    std::vector<uint32_t> put(kPuts);
    std::vector<uint32_t> pingpong(kPuts);
    std::vector<uint32_t> stored(kPuts);
    VERBENA_RETURN_IF_ERROR(Both(
        number, [&] { return client_->PutOneByOne(keys, values, overhead_, put); },
        [&] { return raw_->initiator().PingPong(overhead_, pingpong); }));
    VERBENA_RETURN_IF_ERROR(storage_->Put(keys, values, overhead_, stored));
    put_.rounds.push_back((GroupedMedian(put) - GroupedMedian(pingpong)) / GroupedMedian(stored));
    return absl::OkStatus();
  }

  absl::Status PutsTogether(uint32_t number) {
    Connection& connection = client_->connection();
    const KeySequence keys(config_, kPuts, number);
    const ValueSequence values(keys, config_.value_size, number);
    Times single(kPuts);
    Times together(kPuts / kPutsTogether);
    const absl::Status measured = Both(
        number,
        [&] {
          for (size_t i = 0; i < kPuts; ++i) {
            VERBENA_RETURN_IF_ERROR(
                single.Take([&] { return connection.Put(keys[i], values[i]).status(); }));
          }
          return absl::OkStatus();
        },
        [&] {
          std::vector<KeyValue> items(kPutsTogether);
          for (size_t i = 0; i < kPuts; i += kPutsTogether) {
            for (size_t j = 0; j < kPutsTogether; ++j) items[j] = {keys[i + j], values[i + j]};
            VERBENA_RETURN_IF_ERROR(together.Take([&] { return connection.MultiPut(items); }));
          }
          return absl::OkStatus();
        });
    VERBENA_RETURN_IF_ERROR(measured);
    puts_together_.rounds.push_back(kPutsTogether * single.Median() / together.Median());
    return absl::OkStatus();
  }

  // Each of 64 submitted and polled for by itself, so that each READ has its doorbell; then waits
  // for all.
  absl::Status OneByOne(std::span<const std::string_view> keys,
                        std::array<std::string, kGetsTogether>& values) {
    Connection& connection = client_->connection();
    absl::Status failure;
    for (size_t i = 0; i < keys.size(); ++i) {
      VERBENA_RETURN_IF_ERROR(connection.SubmitGet(
          keys[i],
          [&failure, value = &values[i]](const absl::Status& status, const GetResult& result) {
            if (!status.ok()) failure = status;
            value->assign(result.value);
          }));
      connection.Poll();
    }
    connection.Drain();
    return failure;
  }

  // Runs gets(keys), of kGetsTogether keys, for all of them.
  template <typename Gets>
  static absl::Status ByGroups(const KeySequence& keys, Times& times, Gets&& gets) {
    std::array<std::string_view, kGetsTogether> some;
    for (size_t i = 0; i < keys.size(); i += kGetsTogether) {
      for (size_t j = 0; j < kGetsTogether; ++j) some[j] = keys[i + j];
      VERBENA_RETURN_IF_ERROR(times.Take([&] { return gets(some); }));
    }
    return absl::OkStatus();
  }

  absl::Status MultiGet(uint32_t number) {
    Connection& connection = client_->connection();
    const KeySequence keys(config_, kGets, number);
    Times single(kGets / kGetsTogether);
    Times together(kGets / kGetsTogether);
    std::array<std::string, kGetsTogether> values;
    std::vector<GetItem> items;
    const auto doorbells = [&] { return static_cast<double>(connection.stats().doorbells); };
    const absl::Status measured = Both(
        number,
        [&] {
          const double before = doorbells();
          VERBENA_RETURN_IF_ERROR(
              ByGroups(keys, single, [&](const auto& some) { return OneByOne(some, values); }));
          one_by_one_doorbells_.rounds.push_back((doorbells() - before) / kGets);
          return absl::OkStatus();
        },
        [&] {
          const double before = doorbells();
          VERBENA_RETURN_IF_ERROR(ByGroups(
              keys, together, [&](const auto& some) { return connection.MultiGet(some, &items); }));
          multi_doorbells_.rounds.push_back((doorbells() - before) / kGets);
          return absl::OkStatus();
        });
    VERBENA_RETURN_IF_ERROR(measured);
    multi_get_.rounds.push_back(together.Median() / single.Median());
    const std::vector<uint64_t> offsets = Offsets(number);
    VERBENA_ASSIGN_OR_RETURN(const double lists, client_->ReadPipelined(offsets));
    VERBENA_ASSIGN_OR_RETURN(const double singles, single_client_->ReadPipelined(offsets));
    read_lists_.rounds.push_back(singles / lists);
    return absl::OkStatus();
  }

  std::vector<uint64_t> Offsets(uint64_t seed) const {
    Random random(seed);
    std::vector<uint64_t> offsets(kThreadGets);
    for (uint64_t& offset : offsets) offset = random.Below(config_.records) * kBlock;
    return offsets;
  }

  // GETs of `count` threads at once, per second. get(thread, keys) makes all of one thread's.
  template <typename Get>
  absl::StatusOr<double> Rate(size_t count, uint32_t number, Get&& get) {
    std::vector<KeySequence> keys;
    for (size_t i = 0; i < count; ++i) keys.emplace_back(config_, kThreadGets, number + i);
    std::vector<absl::Status> outcomes(count);
    const int64_t begin = MonotonicNanos();
    {
      std::vector<std::jthread> threads;
      for (size_t i = 0; i < count; ++i) {
        threads.emplace_back([&, i] { outcomes[i] = get(i, keys[i]); });
      }
    }
    const double rate = static_cast<double>(count * kThreadGets) / Seconds(begin);
    for (const absl::Status& outcome : outcomes) VERBENA_RETURN_IF_ERROR(outcome);
    return rate;
  }

  absl::Status Threads(uint32_t number) {
    const auto own = [this](size_t thread, const KeySequence& keys) {
      return (thread == 0 ? client_ : other_client_)->GetPipelined(keys, 16).status();
    };
    const auto shared = [this](size_t, const KeySequence& keys) -> absl::Status {
      std::string value;
      for (size_t i = 0; i < keys.size(); ++i) {
        VERBENA_RETURN_IF_ERROR(shared_client_->Get(keys[i], &value));
      }
      return absl::OkStatus();
    };
    const std::vector<uint64_t> offsets = Offsets(number);
    const auto plain = [this, &offsets](size_t thread, const KeySequence&) {
      return (thread == 0 ? client_ : other_client_)->ReadPipelined(offsets).status();
    };
    VERBENA_ASSIGN_OR_RETURN(const double plain_one, Rate(1, number, plain));
    VERBENA_ASSIGN_OR_RETURN(const double plain_two, Rate(2, number, plain));
    read_threads_.rounds.push_back(plain_two / plain_one);
    VERBENA_ASSIGN_OR_RETURN(const double one, Rate(1, number, own));
    VERBENA_ASSIGN_OR_RETURN(const double two, Rate(2, number, own));
    threads_.rounds.push_back(two / one);
    VERBENA_ASSIGN_OR_RETURN(const double client_one, Rate(1, number, shared));
    VERBENA_ASSIGN_OR_RETURN(const double client_two, Rate(2, number, shared));
    client_threads_.rounds.push_back(client_two / client_one);
    return absl::OkStatus();
  }

  const Config& config_;
  Config large_config_;
  const double overhead_ = TickClock().PairOverheadNanos();
  std::unique_ptr<ClientBaseline> large_client_, client_, other_client_, single_client_;
  std::unique_ptr<RawSide> raw_;
  std::unique_ptr<StorageBaseline> storage_;
  std::unique_ptr<Client> shared_client_;

  Ratio large_{"GET of 1 MiB, bandwidth / plain READ of 1 MiB", Bound::kAtLeast, 0.6, {}};
  Ratio put_{"(PUT p50 - SEND ping-pong p50) / PUT in the storage", Bound::kAtMost, 1.3, {}};
  Ratio puts_together_{"rate of PUTs, 16 at once / one at a time", Bound::kAtLeast, 4, {}};
  Ratio multi_get_{"MultiGet of 64 keys, time / 64 GETs one by one", Bound::kAtMost, 0.5, {}};
  Ratio read_lists_{
      "  for scale: plain READs, time in lists of 16 / one by one", Bound::kNone, 0, {}};
  Ratio multi_doorbells_{"doorbells per key of MultiGet", Bound::kAtMost, 1.0 / 16, {}};
  Ratio one_by_one_doorbells_{"doorbells per key one by one", Bound::kAtLeast, 0.9, {}};
  Ratio threads_{"rate of two threads / one (two Connections, depth 16)", Bound::kAtLeast, 1.8, {}};
  Ratio client_threads_{
      "rate of two threads / one (a Client with two slots)", Bound::kAtLeast, 1.8, {}};
  Ratio read_threads_{"  for scale: plain READs of two threads / one", Bound::kNone, 0, {}};
};

}  // namespace

int MeasureClientRatios(const Config& config) {
  const absl::StatusOr<bool> met = ClientRatios::Measure(config);
  if (!met.ok()) {
    std::fprintf(stderr, "verbena-bench: %s\n", met.status().ToString().c_str());
    return kExitConnection;
  }
  return *met ? kExitOk : kExitWrong;
}

}  // namespace verbena::bench
