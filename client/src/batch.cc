#include "verbena/batch.h"

namespace verbena {

size_t Batch::AddEntry(Kind kind, std::string_view key, std::string_view value,
                       const PutOptions& options) {
  Entry entry;
  entry.kind = kind;
  entry.at = bytes_.size();
  entry.key_size = key.size();
  entry.value_size = value.size();
  entry.options = options;
  bytes_.append(key);
  bytes_.append(value);
  entries_.push_back(entry);
  return entries_.size() - 1;
}

size_t Batch::Get(std::string_view key, const CallOptions& options) {
  return AddEntry(Kind::kGet, key, {}, {.timeout = options.timeout});
}

size_t Batch::Put(std::string_view key, std::string_view value, const PutOptions& options) {
  return AddEntry(Kind::kPut, key, value, options);
}

size_t Batch::Delete(std::string_view key, const ChangeOptions& options) {
  return AddEntry(Kind::kDelete, key, {},
                  {.condition = options.condition, .timeout = options.timeout});
}

size_t Batch::Add(std::string_view key, int64_t summand, const ChangeOptions& options) {
  const size_t i =
      AddEntry(Kind::kAdd, key, {}, {.condition = options.condition, .timeout = options.timeout});
  entries_[i].summand = summand;
  return i;
}

size_t Batch::Append(std::string_view key, std::string_view suffix, const ChangeOptions& options) {
  return AddEntry(Kind::kAppend, key, suffix,
                  {.condition = options.condition, .timeout = options.timeout});
}

size_t Batch::GetAndDelete(std::string_view key, const CallOptions& options) {
  return AddEntry(Kind::kGetAndDelete, key, {}, {.timeout = options.timeout});
}

size_t Batch::Expire(std::string_view key, std::chrono::milliseconds ttl,
                     const CallOptions& options) {
  return AddEntry(Kind::kExpire, key, {}, {.ttl = ttl, .timeout = options.timeout});
}

size_t Batch::Persist(std::string_view key, const CallOptions& options) {
  return AddEntry(Kind::kPersist, key, {}, {.timeout = options.timeout});
}

void Batch::Clear() {
  bytes_.clear();
  entries_.clear();
  results_.clear();
}

const BatchResult& Batch::result(size_t i) const {
  static const BatchResult& not_yet =
      *new BatchResult{absl::FailedPreconditionError("the batch has not been carried out"), {}, {}};
  static const BatchResult& nothing =
      *new BatchResult{absl::OutOfRangeError("the batch has no operation of this number"), {}, {}};
  if (i >= entries_.size()) return nothing;
  return i < results_.size() ? results_[i] : not_yet;
}

}  // namespace verbena
