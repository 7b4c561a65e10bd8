// The C API for many threads: a number of connections, each lent to one thread at a time. A thread
// gets its own one as long as there are not more threads than connections.
#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "client/src/access.h"
#include "client/src/c_api.h"
#include "client/src/causes.h"
#include "client/src/connection_impl.h"
#include "client/src/process_forks.h"
#include "client/src/shared_cache.h"
#include "client/src/thread_number.h"
#include "common/base/macros.h"

struct verbena_client final : private verbena::client::ForkObserver {
 public:
  verbena_client(std::string server, verbena::Options options, uint32_t connections)
      : server_(std::move(server)),
        options_(std::move(options)),
        cache_(std::make_shared<verbena::client::SharedCache>(
            options_.one_sided_reads ? options_.cache_bytes : 0)),
        slots_(connections) {}

  absl::Status ConnectAll() {
    for (Slot& slot : slots_) VERBENA_RETURN_IF_ERROR(Connect(slot.handle));
    return absl::OkStatus();
  }

  bool forked() const { return forked_; }

  absl::StatusOr<verbena_connection*> Borrow() {
    // Before any lock: another thread may have held it when the process was forked.
    if (forked_) return verbena::client::ForkedError("client", options_.fabric);
    Slot& slot = Take();
    // Without memory for another connection, too.
    absl::Cleanup free = [&] { Free(slot); };
    if (!slot.handle.connection->status().ok()) VERBENA_RETURN_IF_ERROR(Connect(slot.handle));
    std::move(free).Cancel();
    return &slot.handle;
  }

  // Nothing happens if it is not lent: it was returned before, and may be in use again soon.
  void Return(verbena_connection& handle) {
    Slot* const slot = TakeBack(handle);
    if (slot == nullptr) return;
    handle.connection->Drain();
    // They are the last borrower's, whose later calls would meet the next one's.
    verbena::client::Access::ImplOf(*handle.connection).ForgetBuffers();
    handle.timeout.reset();
    handle.error.clear();
    handle.outcome_unknown = false;
    Free(*slot);
  }

  // Until nobody has any of them.
  void AwaitAll() {
    std::unique_lock lock(mutex_);
    freed_.wait(lock, [this] { return lent_ == 0; });
  }

 private:
  // Returning: by one thread, and by no other one a second time.
  enum class Loan { kFree, kLent, kReturning };
  struct Slot {
    verbena_connection handle;
    Loan loan = Loan::kFree;
  };

  absl::Status Connect(verbena_connection& handle) {
    VERBENA_ASSIGN_OR_RETURN(auto made,
                             verbena::client::Access::Connect(server_, options_, cache_));
    handle.connection = std::move(made);
    handle.fabric = handle.connection->fabric();
    handle.device = handle.connection->device();
    handle.owner = this;
    return absl::OkStatus();
  }

  Slot& Take() {
    const size_t own = verbena::client::ThreadNumber() % slots_.size();
    std::unique_lock lock(mutex_);
    freed_.wait(lock, [this] { return lent_ < slots_.size(); });
    size_t i = own;
    while (slots_[i].loan != Loan::kFree) i = (i + 1) % slots_.size();
    slots_[i].loan = Loan::kLent;
    ++lent_;
    return slots_[i];
  }

  // Null if it is not lent, or must stay with its borrower for the moment.
  Slot* TakeBack(verbena_connection& handle) {
    const std::lock_guard lock(mutex_);
    const auto slot = std::find_if(slots_.begin(), slots_.end(),
                                   [&](const Slot& of) { return &of.handle == &handle; });
    if (slot == slots_.end() || slot->loan == Loan::kFree) return nullptr;
    if (handle.in_callback || handle.scans > 0) {
      verbena::c_api::SetError(handle,
                               "verbena_client_return was called within a callback, and did "
                               "nothing: return the connection when the call has returned that "
                               "runs it");
      return nullptr;
    }
    if (slot->loan == Loan::kReturning) return nullptr;
    slot->loan = Loan::kReturning;
    return &*slot;
  }

  void Free(Slot& slot) {
    const std::lock_guard lock(mutex_);
    slot.loan = Loan::kFree;
    --lent_;
    // Within the lock: the client may be gone as soon as who waits in AwaitAll has seen it.
    freed_.notify_all();
  }

  void OnForkInChild() override { forked_ = true; }

  const std::string server_;
  const verbena::Options options_;
  const std::shared_ptr<verbena::client::SharedCache> cache_;  // of all connections
  std::mutex mutex_;                                           // guards what is lent
  std::condition_variable freed_;
  std::vector<Slot> slots_;
  size_t lent_ = 0;
  bool forked_ = false;                      // this is a child of the process that made it
  verbena::client::ForkWatch forks_{*this};  // last: see there
};

using verbena::c_api::Guarded;

verbena_code verbena_client_connect(const char* server, const verbena_options* options,
                                    uint32_t connections, verbena_client** client, char* error,
                                    size_t error_size) {
  if (client != nullptr) *client = nullptr;
  return Guarded(error, error_size, [&]() -> absl::Status {
    if (client == nullptr) return absl::InvalidArgumentError("the place for the client is NULL");
    if (server == nullptr) return absl::InvalidArgumentError("the server's address is NULL");
    VERBENA_RETURN_IF_ERROR(verbena::client::CheckConnections(connections, "connections"));
    VERBENA_ASSIGN_OR_RETURN(verbena::Options converted, verbena::c_api::OptionsFrom(options));
    auto made = std::make_unique<verbena_client>(server, std::move(converted), connections);
    VERBENA_RETURN_IF_ERROR(made->ConnectAll());
    *client = made.release();
    return absl::OkStatus();
  });
}

// In the child of a fork everything is the parent's, and stays as it is.
void verbena_client_close(verbena_client* client) {
  if (client == nullptr || client->forked()) return;
  verbena::c_api::Wholly([client] {
    client->AwaitAll();
    delete client;
  });
}

verbena_code verbena_client_borrow(verbena_client* client, verbena_connection** connection,
                                   char* error, size_t error_size) {
  if (connection != nullptr) *connection = nullptr;
  return Guarded(error, error_size, [&]() -> absl::Status {
    if (client == nullptr) return absl::InvalidArgumentError("the client is NULL");
    if (connection == nullptr) {
      return absl::InvalidArgumentError("the place for the connection is NULL");
    }
    VERBENA_ASSIGN_OR_RETURN(*connection, client->Borrow());
    return absl::OkStatus();
  });
}

void verbena_client_return(verbena_client* client, verbena_connection* connection) {
  if (client == nullptr || connection == nullptr || client->forked()) return;
  if (connection->owner != client) {
    verbena::c_api::SetError(*connection,
                             "verbena_client_return was called with a connection that the client "
                             "has not lent, and did nothing");
    return;
  }
  verbena::c_api::Wholly([&] { client->Return(*connection); });
}
