#include "verbena/client.h"

#include <atomic>
#include <cassert>
#include <condition_variable>
#include <iterator>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/access.h"
#include "client/src/causes.h"
#include "client/src/connection_impl.h"
#include "client/src/process_forks.h"
#include "client/src/shared_cache.h"
#include "client/src/thread_number.h"
#include "common/base/macros.h"
#include "verbena/connection.h"

namespace verbena {
namespace {

absl::Status ClosedError() { return absl::FailedPreconditionError("the client was closed"); }

constexpr uint64_t ConnectionStats::*kCounters[] = {
    &ConnectionStats::gets,         &ConnectionStats::changes,
    &ConnectionStats::reads,        &ConnectionStats::read_retries,
    &ConnectionStats::rpc_gets,     &ConnectionStats::pinned_gets,
    &ConnectionStats::cache_hits,   &ConnectionStats::cache_stale,
    &ConnectionStats::cache_misses, &ConnectionStats::directory_reads,
    &ConnectionStats::sends,        &ConnectionStats::doorbells,
    &ConnectionStats::completions,  &ConnectionStats::bytes_read,
    &ConnectionStats::bytes_sent,   &ConnectionStats::gets_without_copy,
    &ConnectionStats::gets_copied,  &ConnectionStats::puts_without_copy,
    &ConnectionStats::reconnects,
};
static_assert(std::size(kCounters) * sizeof(uint64_t) == sizeof(ConnectionStats));

void AddTo(ConnectionStats& sum, const ConnectionStats& stats) {
  for (const auto counter : kCounters) sum.*counter += stats.*counter;
}

// In the child of a fork everything is the parent's, and stays as it is: so a reference to it is
// never given up.
template <typename T>
void LeaveIfForked(const std::shared_ptr<T>& impl) {
  if (!impl->forked()) return;
  [[maybe_unused]] const auto* const left = new std::shared_ptr<T>(impl);
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
  // A line of its own, so that threads do not take each other's. No mutex, since who has taken it
  // may hand it on to another thread.
  struct alignas(64) Slot {
    std::atomic<bool> taken{false};  // by whoever may use what is below
    bool closed = false;
    std::unique_ptr<Connection> connection;
    ConnectionStats earlier;  // of connections that have died

    bool TryTake() { return !taken.exchange(true, std::memory_order_acquire); }
  };

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
  // be made of a status. Where there is no connection, refused(const absl::Status&) leaves the
  // places for results as `use` would.
  template <typename Use, typename Refused>
  auto With(Use&& use, Refused&& refused) -> decltype(use(std::declval<Connection&>())) {
    // Before any lock: another thread may have held it when the process was forked.
    if (forked_) {
      absl::Status why = client::ForkedError("client", options_.fabric);
      refused(why);
      return why;
    }
    const Hold slot(*this, TakeSlot());
    if (absl::Status alive = Revive(*slot); !alive.ok()) {
      refused(alive);
      return alive;
    }
    return use(*slot->connection);
  }
  template <typename Use>
  auto With(Use&& use) {
    return With(std::forward<Use>(use), [](const absl::Status&) {});
  }
  // The same, for a call that sets a version, to 0 on errors.
  template <typename Use>
  auto WithVersion(uint64_t* version, Use&& use) {
    return With(std::forward<Use>(use), [version](const absl::Status&) {
      if (version != nullptr) *version = 0;
    });
  }

  void Close() {
    if (forked_) return;
    for (Slot& each : slots_) {
      const Hold slot(*this, Take([&each] { return each.TryTake() ? &each : nullptr; }));
      Bury(*slot);
      slot->closed = true;
    }
  }

  uint32_t slots() const { return static_cast<uint32_t>(slots_.size()); }

  bool forked() const { return forked_; }

  // Waits for no slot and makes no connection.
  ServerLimits limits() {
    if (forked_) return {};
    for (Slot& each : slots_) {
      if (!each.TryTake()) continue;
      const Hold slot(*this, &each);
      if (slot->closed) return {};
      if (slot->connection == nullptr) continue;
      const std::lock_guard limits_lock(limits_mutex_);
      return limits_ = slot->connection->limits();
    }
    const std::lock_guard lock(limits_mutex_);
    return limits_;
  }

  // A slot with a connection, which is the caller's until Return.
  absl::StatusOr<Slot*> Borrow() {
    if (forked_) return client::ForkedError("client", options_.fabric);
    Slot* const slot = TakeSlot();
    if (absl::Status alive = Revive(*slot); !alive.ok()) {
      Free(*slot);
      return alive;
    }
    return slot;
  }
  void Return(Slot& slot) {
    // A callback cannot wait for what else is in flight.
    if (client::Access::ImplOf(*slot.connection).in_callback()) {
      slot.connection->Close();
      Bury(slot);
    } else {
      Clear(*slot.connection);
    }
    Free(slot);
  }

  ConnectionStats stats() {
    ConnectionStats sum;
    if (forked_) return sum;
    for (Slot& each : slots_) {
      const Hold slot(*this, Take([&each] { return each.TryTake() ? &each : nullptr; }));
      AddTo(sum, slot->earlier);
      if (slot->connection != nullptr) AddTo(sum, slot->connection->stats());
    }
    return sum;
  }

 private:
  void OnForkInChild() override { forked_ = true; }

  // A slot that this thread has taken, until the end of the scope.
  class Hold {
   public:
    Hold(Impl& impl, Slot* slot) : impl_(impl), slot_(slot) {}
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    ~Hold() { impl_.Free(*slot_); }
    Slot& operator*() const { return *slot_; }
    Slot* operator->() const { return slot_; }

   private:
    Impl& impl_;
    Slot* const slot_;
  };

  // This thread's own, or another one that is free; taken. Null if all are.
  Slot* TryTakeSlot() {
    const size_t own = client::ThreadNumber() % slots_.size();
    for (size_t i = 0; i < slots_.size(); ++i) {
      Slot& slot = slots_[(own + i) % slots_.size()];
      if (slot.TryTake()) return &slot;
    }
    return nullptr;
  }

  // Whichever is free first.
  Slot* TakeSlot() {
    return Take([this] { return TryTakeSlot(); });
  }

  // What `try_take()` gives, which is null while there is nothing to be had. A slot is freed and
  // then waiting_ is read; here waiting_ is written and then the slots are tried. With a fence
  // between the two on either side one of both sees what the other has done: either a slot is had,
  // or its last user tells, under the lock, which it gets only when this thread is asleep.
  template <typename TryTake>
  Slot* Take(TryTake&& try_take) {
    if (Slot* const slot = try_take(); slot != nullptr) return slot;
    std::unique_lock lock(freed_mutex_);
    waiting_.fetch_add(1, std::memory_order_relaxed);
    Slot* slot = nullptr;
    while (true) {
      std::atomic_thread_fence(std::memory_order_seq_cst);
      if ((slot = try_take()) != nullptr) break;
      freed_.wait(lock);
    }
    waiting_.fetch_sub(1, std::memory_order_relaxed);
    return slot;
  }

  // Nobody frees a slot in another way, so that who waits learns of it. All are told: some wait for
  // another one than this.
  void Free(Slot& slot) {
    slot.taken.store(false, std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (waiting_.load(std::memory_order_relaxed) == 0) return;
    const std::lock_guard lock(freed_mutex_);
    freed_.notify_all();
  }

  // Of what its borrower has left.
  static void Clear(Connection& connection) {
    connection.Drain();
    client::Access::ImplOf(connection).ForgetBuffers();
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
  std::mutex freed_mutex_;  // of those who wait for a slot
  std::condition_variable freed_;
  std::atomic<uint32_t> waiting_{0};
  std::mutex limits_mutex_;         // the last one taken
  ServerLimits limits_;             // as last seen
  bool forked_ = false;             // this is a child of the process that made it
  client::ForkWatch forks_{*this};  // last: see there
};

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(std::string_view server,
                                                        const ClientOptions& options) {
  VERBENA_RETURN_IF_ERROR(client::CheckConnections(options.slots, "slots"));
  auto impl = std::make_shared<Impl>(server, options);
  VERBENA_RETURN_IF_ERROR(impl->ConnectAll());
  return std::unique_ptr<Client>(new Client(std::move(impl)));
}

Client::Client(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Client::~Client() { LeaveIfForked(impl_); }
void Client::Close() { impl_->Close(); }

absl::StatusOr<Client::Lease> Client::Borrow() {
  VERBENA_ASSIGN_OR_RETURN(Impl::Slot* const slot, impl_->Borrow());
  return Lease(impl_, slot);
}
Connection& Client::Lease::operator*() const {
  assert(slot_ != nullptr);
  return *static_cast<Impl::Slot*>(slot_)->connection;
}
// Callbacks run in here, and may use the connection, or end the lease, which has no effect then.
void Client::Lease::Return() {
  const std::shared_ptr<Impl> impl = std::move(impl_);
  if (impl == nullptr) return;
  LeaveIfForked(impl);
  if (!impl->forked()) impl->Return(*static_cast<Impl::Slot*>(slot_));
  slot_ = nullptr;
}

absl::Status Client::Get(std::string_view key, std::string* value, uint64_t* version,
                         const CallOptions& options) {
  return impl_->WithVersion(version, [&](Connection& connection) {
    return connection.Get(key, value, version, options);
  });
}
absl::StatusOr<ChangeResult> Client::Put(std::string_view key, std::string_view value,
                                         const PutOptions& options, uint64_t* present) {
  return impl_->WithVersion(present, [&](Connection& connection) {
    return connection.Put(key, value, options, present);
  });
}
absl::StatusOr<ChangeResult> Client::Delete(std::string_view key, const ChangeOptions& options,
                                            uint64_t* present) {
  return impl_->WithVersion(
      present, [&](Connection& connection) { return connection.Delete(key, options, present); });
}
absl::StatusOr<ChangeResult> Client::Add(std::string_view key, int64_t summand,
                                         const ChangeOptions& options, uint64_t* present) {
  return impl_->WithVersion(present, [&](Connection& connection) {
    return connection.Add(key, summand, options, present);
  });
}
absl::StatusOr<ChangeResult> Client::Append(std::string_view key, std::string_view suffix,
                                            const ChangeOptions& options, uint64_t* present) {
  return impl_->WithVersion(present, [&](Connection& connection) {
    return connection.Append(key, suffix, options, present);
  });
}
absl::Status Client::GetAndDelete(std::string_view key, std::string* value, uint64_t* version,
                                  const CallOptions& options) {
  return impl_->WithVersion(version, [&](Connection& connection) {
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
      [&](Connection& connection) { return connection.Scan(range, limit, items, options); },
      [&](const absl::Status&) {
        if (items != nullptr) items->clear();
      });
}
absl::Status Client::Ping(const CallOptions& options) {
  return impl_->With([&](Connection& connection) { return connection.Ping(options); });
}
absl::StatusOr<std::string> Client::Info(const CallOptions& options) {
  return impl_->With([&](Connection& connection) { return connection.Info(options); });
}

absl::Status Client::MultiGet(std::span<const std::string_view> keys, std::vector<GetItem>* results,
                              const CallOptions& options) {
  return impl_->With(
      [&](Connection& connection) { return connection.MultiGet(keys, results, options); },
      [&](const absl::Status& why) {
        if (results != nullptr) results->assign(keys.size(), GetItem{why, {}, 0});
      });
}
absl::Status Client::MultiPut(std::span<const KeyValue> items, const PutOptions& options,
                              std::vector<absl::StatusOr<ChangeResult>>* results) {
  return impl_->With(
      [&](Connection& connection) { return connection.MultiPut(items, options, results); },
      [&](const absl::Status& why) {
        if (results != nullptr) results->assign(items.size(), why);
      });
}
absl::Status Client::MultiDelete(std::span<const std::string_view> keys, const CallOptions& options,
                                 std::vector<absl::StatusOr<ChangeResult>>* results) {
  return impl_->With(
      [&](Connection& connection) { return connection.MultiDelete(keys, options, results); },
      [&](const absl::Status& why) {
        if (results != nullptr) results->assign(keys.size(), why);
      });
}
absl::Status Client::Execute(Batch& batch, const CallOptions& options) {
  return impl_->With([&](Connection& connection) { return connection.Execute(batch, options); },
                     [&](const absl::Status& why) { batch.Refuse(why); });
}

uint32_t Client::slots() const { return impl_->slots(); }
ServerLimits Client::limits() { return impl_->limits(); }
ConnectionStats Client::stats() { return impl_->stats(); }

}  // namespace verbena
