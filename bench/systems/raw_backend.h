// The fabric itself as a backend, with no store around it: what stores on it can reach at best.
// Reads return nothing that could be verified.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "bench/baseline/raw_endpoint.h"
#include "bench/systems/backend.h"

namespace verbena::bench {

// Bytes of what goes over the fabric.
struct RawSizes {
  uint32_t block = 0;          // a READ
  uint64_t region = 0;         // that the READs are spread over
  uint32_t read_request = 0;   // a GET that is sent; its answer is the initiator's long one
  uint32_t write_request = 0;  // a PUT; its answer is the short one
};

class RawBackend final : public Backend {
 public:
  // What a read is: one READ of the block that the key chooses, or a message and its answer. A
  // write is always a message and its answer.
  enum class Reads { kOneSided, kMessages };

  // `initiator` is borrowed and must outlive the backend; `owner` keeps alive whatever it belongs
  // to. `poll_time`: how long Wait polls before it sleeps.
  RawBackend(std::shared_ptr<void> owner, RawInitiator* initiator, Reads reads,
             const RawSizes& sizes, uint32_t depth, std::chrono::nanoseconds poll_time);

  absl::Status SubmitRead(uint32_t slot, std::string_view key) override;
  absl::Status SubmitWrite(uint32_t slot, std::string_view key, std::string_view value) override;
  int Poll() override;
  int Wait(std::chrono::nanoseconds timeout) override;
  bool keeps_values() const override { return false; }
  absl::Status status() const override { return status_; }
  BackendCounters counters() const override { return counters_; }

 private:
  struct Request {
    uint32_t slot;
    bool is_read;
  };
  struct Read {
    uint32_t slot;
    uint64_t offset;
  };

  void PostWhatFits();
  void PostReads();
  int Fail(absl::Status status);

  const std::shared_ptr<void> owner_;
  RawInitiator* const initiator_;
  const Reads reads_;
  const RawSizes sizes_;
  const int64_t poll_nanos_;
  absl::Status status_;
  BackendCounters counters_;
  std::deque<Read> waiting_reads_;
  std::vector<uint32_t> free_places_;  // of READs
  std::vector<uint32_t> slot_of_place_;
  std::vector<uint32_t> places_;   // of the list that is being posted
  std::vector<uint64_t> offsets_;  // likewise
  std::deque<Request> waiting_requests_;
  std::deque<Request> sent_requests_;  // answered in this order
};

}  // namespace verbena::bench
