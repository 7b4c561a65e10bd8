#include "verbena/client.h"

#include <iterator>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/access.h"
#include "client/src/causes.h"
#include "client/src/process_forks.h"
#include "client/src/shared_cache.h"
#include "client/src/thread_number.h"
#include "common/base/macros.h"
#include "verbena/connection.h"

namespace verbena {
namespace {

absl::Status ClosedError() { return absl::FailedPreconditionError("the client was closed"); }

constexpr uint64_t ConnectionStats::*kCounters[] = {
    &ConnectionStats::gets,
    &ConnectionStats::changes,
    &ConnectionStats::reads,
    &ConnectionStats::read_retries,
    &ConnectionStats::rpc_gets,
    &ConnectionStats::pinned_gets,
    &ConnectionStats::cache_hits,
    &ConnectionStats::cache_stale,
    &ConnectionStats::cache_misses,
    &ConnectionStats::directory_reads,
    &ConnectionStats::sends,
    &ConnectionStats::doorbells,
    &ConnectionStats::bytes_read,
    &ConnectionStats::bytes_sent,
    &ConnectionStats::gets_without_copy,
    &ConnectionStats::gets_copied,
    &ConnectionStats::puts_without_copy,
    &ConnectionStats::reconnects,
};
static_assert(std::size(kCounters) * sizeof(uint64_t) == sizeof(ConnectionStats));

void AddTo(ConnectionStats& sum, const ConnectionStats& stats) {
  for (const auto counter : kCounters) sum.*counter += stats.*counter;
}

}  // namespace

absl::Status client::CheckConnections(uint32_t number, const char* name) {
  constexpr uint32_t kMost = 1024;
  if (number >= 1 && number <= kMost) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", number, "; it must be 1 to ", kMost));
}

class VERBENA_LOCAL Client::Impl final : private client::ForkObserver {
 public:
  Impl(std::string_view server, const ClientOptions& options)
      : server_(server),
        options_(options.connection),
        cache_(std::make_shared<client::SharedCache>(options_.one_sided_reads ? options_.cache_bytes
                                                                              : 0)),
        slots_(options.slots) {}

  absl::Status ConnectAll() {
    for (Slot& slot : slots_) {
      VERBENA_ASSIGN_OR_RETURN(slot.connection, client::Access::Connect(server_, options_, cache_));
    }
    limits_ = slots_.front().connection->limits();
    return absl::OkStatus();
  }

  // Calls use(Connection&) in a slot that is this thread's as long as it lasts. What it returns can
  // be made of a status.
  template <typename Use>
  auto With(Use&& use) -> decltype(use(std::declval<Connection&>())) {
    // Before any lock: another thread may have held it when the process was forked.
    if (forked_) {
      return client::ForkedError("client", options_.fabric);
    }
    auto [slot, lock] = TakeSlot();
    VERBENA_RETURN_IF_ERROR(Revive(*slot));
    return use(*slot->connection);
  }

  void Close() {
    if (forked_) return;
    for (Slot& slot : slots_) {
      const std::lock_guard lock(slot.mutex);
      Bury(slot);
      slot.closed = true;
    }
  }

  uint32_t slots() const { return static_cast<uint32_t>(slots_.size()); }

  bool forked() const { return forked_; }

  // Waits for no slot and makes no connection.
  ServerLimits limits() {
    if (forked_) return {};
    for (Slot& slot : slots_) {
      const std::unique_lock lock(slot.mutex, std::try_to_lock);
      if (!lock.owns_lock()) continue;
      if (slot.closed) return {};
      if (slot.connection == nullptr) continue;
      const std::lock_guard limits_lock(limits_mutex_);
      return limits_ = slot.connection->limits();
    }
    const std::lock_guard lock(limits_mutex_);
    return limits_;
  }

  ConnectionStats stats() {
    ConnectionStats sum;
    if (forked_) return sum;
    for (Slot& slot : slots_) {
      const std::lock_guard lock(slot.mutex);
      AddTo(sum, slot.earlier);
      if (slot.connection != nullptr) AddTo(sum, slot.connection->stats());
    }
    return sum;
  }

 private:
  void OnForkInChild() override { forked_ = true; }

  // A line of its own, so that threads do not take each other's.
  struct alignas(64) Slot {
    std::mutex mutex;  // guards all below
    bool closed = false;
    std::unique_ptr<Connection> connection;
    ConnectionStats earlier;  // of connections that have died
  };

  std::pair<Slot*, std::unique_lock<std::mutex>> TakeSlot() {
    const size_t own = client::ThreadNumber() % slots_.size();
    for (size_t i = 0; i < slots_.size(); ++i) {
      Slot& slot = slots_[(own + i) % slots_.size()];
      std::unique_lock lock(slot.mutex, std::try_to_lock);
      if (lock.owns_lock()) return {&slot, std::move(lock)};
    }
    return {&slots_[own], std::unique_lock(slots_[own].mutex)};
  }

  static void Bury(Slot& slot) {
    if (slot.connection == nullptr) return;
    AddTo(slot.earlier, slot.connection->stats());
    slot.connection.reset();
  }

  absl::Status Revive(Slot& slot) {
    if (slot.closed) return ClosedError();
    if (slot.connection != nullptr && slot.connection->status().ok()) return absl::OkStatus();
    Bury(slot);
    VERBENA_ASSIGN_OR_RETURN(slot.connection, client::Access::Connect(server_, options_, cache_));
    return absl::OkStatus();
  }

  const std::string server_;
  const Options options_;
  const std::shared_ptr<client::SharedCache> cache_;  // of all connections
  std::vector<Slot> slots_;
  std::mutex limits_mutex_;         // the last one taken
  ServerLimits limits_;             // as last seen
  bool forked_ = false;             // this is a child of the process that made it
  client::ForkWatch forks_{*this};  // last: see there
};

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(std::string_view server,
                                                        const ClientOptions& options) {
  VERBENA_RETURN_IF_ERROR(client::CheckConnections(options.slots, "slots"));
  auto impl = std::make_unique<Impl>(server, options);
  VERBENA_RETURN_IF_ERROR(impl->ConnectAll());
  return std::unique_ptr<Client>(new Client(std::move(impl)));
}

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
// In the child of a fork everything is the parent's, and stays as it is.
Client::~Client() {
  if (!impl_->forked()) return;
  [[maybe_unused]] Impl* const left = impl_.release();
}
void Client::Close() { impl_->Close(); }

absl::Status Client::Get(std::string_view key, std::string* value, uint64_t* version,
                         const CallOptions& options) {
  return impl_->With(
      [&](Connection& connection) { return connection.Get(key, value, version, options); });
}
absl::StatusOr<ChangeResult> Client::Put(std::string_view key, std::string_view value,
                                         const PutOptions& options, uint64_t* present) {
  return impl_->With(
      [&](Connection& connection) { return connection.Put(key, value, options, present); });
}
absl::StatusOr<ChangeResult> Client::Delete(std::string_view key, const ChangeOptions& options,
                                            uint64_t* present) {
  return impl_->With(
      [&](Connection& connection) { return connection.Delete(key, options, present); });
}
absl::StatusOr<ChangeResult> Client::Add(std::string_view key, int64_t summand,
                                         const ChangeOptions& options) {
  return impl_->With([&](Connection& connection) { return connection.Add(key, summand, options); });
}
absl::StatusOr<ChangeResult> Client::Append(std::string_view key, std::string_view suffix,
                                            const ChangeOptions& options) {
  return impl_->With(
      [&](Connection& connection) { return connection.Append(key, suffix, options); });
}
absl::Status Client::GetAndDelete(std::string_view key, std::string* value, uint64_t* version,
                                  const CallOptions& options) {
  return impl_->With([&](Connection& connection) {
    return connection.GetAndDelete(key, value, version, options);
  });
}
absl::StatusOr<ChangeResult> Client::Expire(std::string_view key, std::chrono::milliseconds ttl,
                                            const CallOptions& options) {
  return impl_->With([&](Connection& connection) { return connection.Expire(key, ttl, options); });
}
absl::StatusOr<ChangeResult> Client::Persist(std::string_view key, const CallOptions& options) {
  return impl_->With([&](Connection& connection) { return connection.Persist(key, options); });
}
absl::StatusOr<std::optional<std::chrono::milliseconds>> Client::Ttl(std::string_view key,
                                                                     const CallOptions& options) {
  return impl_->With([&](Connection& connection) { return connection.Ttl(key, options); });
}
absl::Status Client::Scan(const ScanRange& range, size_t limit, std::vector<ScanItem>* items,
                          const CallOptions& options) {
  return impl_->With(
      [&](Connection& connection) { return connection.Scan(range, limit, items, options); });
}
absl::Status Client::Ping() {
  return impl_->With([](Connection& connection) { return connection.Ping(); });
}
absl::StatusOr<std::string> Client::Info() {
  return impl_->With([](Connection& connection) { return connection.Info(); });
}

absl::Status Client::MultiGet(std::span<const std::string_view> keys, std::vector<GetItem>* results,
                              const CallOptions& options) {
  return impl_->With(
      [&](Connection& connection) { return connection.MultiGet(keys, results, options); });
}
absl::Status Client::MultiPut(std::span<const KeyValue> items, const PutOptions& options,
                              std::vector<absl::StatusOr<ChangeResult>>* results) {
  return impl_->With(
      [&](Connection& connection) { return connection.MultiPut(items, options, results); });
}
absl::Status Client::MultiDelete(std::span<const std::string_view> keys, const CallOptions& options,
                                 std::vector<absl::StatusOr<ChangeResult>>* results) {
  return impl_->With(
      [&](Connection& connection) { return connection.MultiDelete(keys, options, results); });
}
absl::Status Client::Execute(Batch& batch) {
  return impl_->With([&](Connection& connection) { return connection.Execute(batch); });
}

uint32_t Client::slots() const { return impl_->slots(); }
ServerLimits Client::limits() { return impl_->limits(); }
ConnectionStats Client::stats() { return impl_->stats(); }

}  // namespace verbena
