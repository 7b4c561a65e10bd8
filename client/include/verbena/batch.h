/// \file
/// Several operations at once: see Connection::MultiGet, MultiPut, MultiDelete and Execute, and
/// SubmitMultiGet and so on, which do not wait.
#include "verbena/cxx20.h"  // ahead of all else
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "verbena/export.h"
#include "verbena/types.h"

namespace verbena {

/// What MultiPut and SubmitMultiPut put. The views are borrowed until the call returns.
struct KeyValue {
  std::string_view key;    ///< any bytes
  std::string_view value;  ///< any bytes
};

/// What MultiGet found of one key.
struct GetItem {
  absl::Status status;   ///< as Get's
  std::string value;     ///< unspecified on errors
  uint64_t version = 0;  ///< 0 on errors
};

/// What one operation of a Batch led to.
struct BatchResult {
  absl::Status status;  ///< as that of the operation by itself
  std::string value;    ///< of Get and GetAndDelete; unspecified on errors
  ChangeResult change;  ///< of a change; of Get and GetAndDelete only the version
};

/// A list of operations of any kinds, to be carried out together by Connection::Execute.
///
///     verbena::Batch batch;
///     const size_t got = batch.Get("key");
///     batch.Put("other", "value");
///     absl::Status status = connection->Execute(batch);
///     if (batch.result(got).status.ok()) ... batch.result(got).value ...
///
/// Each call that adds an operation returns its number, which counts from 0. Keys and values are
/// copied. The operations are checked when they are carried out. Not thread-safe.
class VERBENA_EXPORT Batch {
 public:
  /// \name What is to be carried out
  /// @{

  /// As the call of Connection of this name; returns the operation's number.
  size_t Get(std::string_view key, const CallOptions& options = {});
  size_t Put(std::string_view key, std::string_view value, const PutOptions& options = {});
  size_t Delete(std::string_view key, const ChangeOptions& options = {});
  size_t Add(std::string_view key, int64_t summand, const ChangeOptions& options = {});
  size_t Append(std::string_view key, std::string_view suffix, const ChangeOptions& options = {});
  size_t GetAndDelete(std::string_view key, const CallOptions& options = {});
  size_t Expire(std::string_view key, std::chrono::milliseconds ttl,
                const CallOptions& options = {});
  size_t Persist(std::string_view key, const CallOptions& options = {});
  /// @}

  /// Operations.
  size_t size() const { return entries_.size(); }
  /// Whether there are none.
  bool empty() const { return entries_.empty(); }
  /// Forgets all operations and results; keeps the memory.
  void Clear();

  /// Of operation `i`; valid until the batch is changed or carried out again. Before Execute, and
  /// of operations that were added after it: FailedPrecondition; OutOfRange if there is no such
  /// one.
  const BatchResult& result(size_t i) const;

 private:
  friend class Connection;
  friend class Client;

  enum class Kind : uint8_t {
    kGet,
    kPut,
    kDelete,
    kAdd,
    kAppend,
    kGetAndDelete,
    kExpire,
    kPersist,
  };
  struct Entry {
    Kind kind = Kind::kGet;
    size_t at = 0;  // in bytes_: the key, then the value
    size_t key_size = 0;
    size_t value_size = 0;
    int64_t summand = 0;
    PutOptions options;  // condition, ttl and timeout of whatever kind it is
  };

  // No operation was carried out, for this reason.
  void Refuse(const absl::Status& why) { results_.assign(size(), BatchResult{why, {}, {}}); }
  size_t AddEntry(Kind kind, std::string_view key, std::string_view value,
                  const PutOptions& options);
  std::string_view KeyOf(const Entry& entry) const {
    return std::string_view(bytes_).substr(entry.at, entry.key_size);
  }
  std::string_view ValueOf(const Entry& entry) const {
    return std::string_view(bytes_).substr(entry.at + entry.key_size, entry.value_size);
  }

  std::string bytes_;
  std::vector<Entry> entries_;
  std::vector<BatchResult> results_;
};

}  // namespace verbena
