#include "bench/baseline/baseline_client.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>

#include "bench/systems/backend_verbena.h"
#include "common/base/clock.h"
#include "common/base/macros.h"
#include "common/base/relaxed_copy.h"

namespace verbena::bench {
namespace {

constexpr size_t kLine = 64;
constexpr uint32_t kWarmDepth = 16;
constexpr std::chrono::seconds kPatience{30};

// When READs that begin now are given up (MonotonicNanos()).
int64_t GiveUpAt() { return MonotonicNanos() + std::chrono::nanoseconds(kPatience).count(); }

}  // namespace

absl::StatusOr<std::unique_ptr<ClientBaseline>> ClientBaseline::Create(const Config& config) {
  Options options = ConnectionOptions(config);
  options.depth = std::max(options.depth, kWarmDepth);
  VERBENA_ASSIGN_OR_RETURN(std::unique_ptr<Connection> connection,
                           Connection::Connect(config.server, options));
  std::unique_ptr<ClientBaseline> client(
      new ClientBaseline(std::move(connection), config.poll.count() == 0));
  VERBENA_RETURN_IF_ERROR(client->Warm(config));
  return client;
}

absl::Status ClientBaseline::PrepareReads(uint32_t depth, uint32_t block_size) {
  block_size_ = block_size;
  VERBENA_ASSIGN_OR_RETURN(reads_, client::RawReads::Create(*connection_, depth, block_size));
  return absl::OkStatus();
}

absl::Status ClientBaseline::Warm(const Config& config) {
  const KeyNames names = config.key_names();
  std::string key(names.max_size(), '\0');
  absl::Status failure;
  for (uint64_t record = 0; record < config.records && failure.ok(); ++record) {
    while (connection_->in_flight() >= kWarmDepth) Turn();
    VERBENA_RETURN_IF_ERROR(
        connection_->SubmitGet({key.data(), names.Write(record, key)},
                               [&failure](const absl::Status& status, const GetResult&) {
                                 if (!status.ok() && failure.ok()) failure = status;
                               }));
  }
  connection_->Drain();
  return failure;
}

// Waiting costs a look at the clock, so pure polling does without.
void ClientBaseline::Turn() {
  if (sleeps_) {
    connection_->Wait(kPatience);
  } else {
    connection_->Poll();
  }
}

void ClientBaseline::ConsumeBlock(uint32_t place) {
  const uint8_t* const bytes = reads_->block(place);
  uint64_t sum = 0;
  for (uint64_t at = 0; at < block_size_; at += kLine) {
    sum += LoadRelaxed(reinterpret_cast<const uint64_t*>(bytes + at));
  }
  consumed_ = sum;
}

void ClientBaseline::Consume(std::string_view value) {
  uint64_t sum = 0;
  for (size_t at = 0; at < value.size(); at += kLine) {
    sum += static_cast<unsigned char>(value[at]);
  }
  consumed_ = sum;
}

absl::Status ClientBaseline::GetOneByOne(const KeySequence& keys, double overhead,
                                         std::span<uint32_t> nanos) {
  absl::Status failure;
  for (size_t i = 0; i < keys.size(); ++i) {
    bool done = false;
    const int64_t begin = clock_.NowSerial();
    const absl::Status submitted = connection_->SubmitGet(
        keys[i], [this, &done, &failure](const absl::Status& status, const GetResult& result) {
          if (!status.ok()) failure = status;
          Consume(result.value);
          done = true;
        });
    VERBENA_RETURN_IF_ERROR(submitted);
    while (!done) Turn();
    const int64_t end = clock_.NowSerial();
    VERBENA_RETURN_IF_ERROR(failure);
    nanos[i] = LessOverhead(clock_.Nanos(begin, end), overhead);
  }
  return absl::OkStatus();
}

absl::Status ClientBaseline::ReadOneByOne(std::span<const uint64_t> offsets, double overhead,
                                          std::span<uint32_t> nanos) {
  constexpr uint32_t kPlace = 0;
  const int64_t deadline = GiveUpAt();
  uint32_t completed;
  for (size_t i = 0; i < offsets.size(); ++i) {
    const int64_t begin = clock_.NowSerial();
    VERBENA_RETURN_IF_ERROR(reads_->Post({&kPlace, 1}, {&offsets[i], 1}));
    VERBENA_RETURN_IF_ERROR(reads_->Await({&completed, 1}, deadline).status());
    ConsumeBlock(kPlace);
    const int64_t end = clock_.NowSerial();
    nanos[i] = LessOverhead(clock_.Nanos(begin, end), overhead);
  }
  return absl::OkStatus();
}

absl::StatusOr<double> ClientBaseline::ReadPipelined(std::span<const uint64_t> offsets) {
  // Places without a READ; the last `count` are those that have just completed.
  std::vector<uint32_t> places(reads_->depth());
  std::iota(places.begin(), places.end(), 0U);
  size_t count = places.size();
  size_t posted = 0;
  size_t done = 0;
  const int64_t deadline = GiveUpAt();
  const int64_t begin = MonotonicNanos();
  while (done < offsets.size()) {
    const size_t more = std::min(count, offsets.size() - posted);
    if (more > 0) {
      VERBENA_RETURN_IF_ERROR(reads_->Post({places.data(), more}, offsets.subspan(posted, more)));
      posted += more;
    }
    VERBENA_ASSIGN_OR_RETURN(count, reads_->Await(places, deadline));
    for (size_t i = 0; i < count; ++i) ConsumeBlock(places[i]);
    done += count;
  }
  return static_cast<double>(done) / (static_cast<double>(MonotonicNanos() - begin) * 1e-9);
}

absl::StatusOr<double> ClientBaseline::GetPipelined(const KeySequence& keys, uint32_t depth) {
  struct Loop {
    ClientBaseline* client;
    const KeySequence* keys;
    size_t next = 0;
    size_t done = 0;
    absl::Status failure;

    void Submit() {
      if (next == keys->size() || !failure.ok()) return;
      const absl::Status submitted = client->connection_->SubmitGet(
          (*keys)[next], [this](const absl::Status& status, const GetResult& result) {
            if (!status.ok()) failure = status;
            client->Consume(result.value);
            ++done;
            Submit();
          });
      if (submitted.ok()) {
        ++next;
      } else {
        failure = submitted;
      }
    }
  };
  Loop loop{this, &keys, 0, 0, absl::OkStatus()};
  const int64_t begin = MonotonicNanos();
  for (uint32_t i = 0; i < depth; ++i) loop.Submit();
  while (connection_->in_flight() > 0) Turn();
  const int64_t end = MonotonicNanos();
  VERBENA_RETURN_IF_ERROR(loop.failure);
  return static_cast<double>(loop.done) / (static_cast<double>(end - begin) * 1e-9);
}

absl::Status ClientBaseline::PutOneByOne(const KeySequence& keys, const ValueSequence& values,
                                         double overhead, std::span<uint32_t> nanos) {
  absl::Status failure;
  for (size_t i = 0; i < keys.size(); ++i) {
    bool done = false;
    const int64_t begin = clock_.NowSerial();
    const absl::Status submitted = connection_->SubmitPut(
        keys[i], values[i], [&done, &failure](const absl::Status& status, const ChangeResult&) {
          if (!status.ok()) failure = status;
          done = true;
        });
    VERBENA_RETURN_IF_ERROR(submitted);
    while (!done) Turn();
    const int64_t end = clock_.NowSerial();
    VERBENA_RETURN_IF_ERROR(failure);
    nanos[i] = LessOverhead(clock_.Nanos(begin, end), overhead);
  }
  return absl::OkStatus();
}

}  // namespace verbena::bench
