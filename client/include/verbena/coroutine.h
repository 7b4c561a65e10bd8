/// \file
/// A connection's operations for C++20 coroutines. Optional: nothing else includes it.
///
///     verbena::Task<absl::Status> Copy(verbena::AsyncClient client) {
///       absl::StatusOr<verbena::Value> got = co_await client.Get("from");
///       if (!got.ok()) co_return got.status();
///       co_return (co_await client.Put("to", got->bytes)).status();
///     }
///     ...
///     absl::Status status = verbena::Run(*connection, Copy(verbena::AsyncClient(*connection)));
///
/// A coroutine goes on in the callback of the operation that it has waited for (connection.h), so
/// what holds of callbacks holds of it: it runs inside Poll, PollAndArm, Wait, Drain or a
/// synchronous call, it may begin further operations, and it must not make synchronous calls. Any
/// number may be under way at once; those beyond Options::depth get ResourceExhausted.
///
/// **Threads**: as the connection, one at a time.
#include "verbena/cxx20.h"  // ahead of all else
#pragma once

#include <chrono>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "verbena/batch.h"
#include "verbena/connection.h"
#include "verbena/types.h"

namespace verbena {

/// What a GET found.
struct Value {
  std::string bytes;     ///< the value
  uint64_t version = 0;  ///< as GetResult::version
};

/// What a coroutine that co_awaits this library's operations may return. It begins when it is
/// awaited, or given to Run or Spawn, and is destroyed with the Task that stands for it: an
/// operation that it waits for then goes on without it. (A value that it puts must not go before:
/// Close the connection first.) An exception that leaves a
/// coroutine ends the process.
template <typename T = void>
class [[nodiscard]] Task;

namespace coroutine_internal {

template <typename Promise>
struct FinalAwaiter {
  bool await_ready() const noexcept { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> handle) const noexcept {
    const std::coroutine_handle<> next = handle.promise().continuation;
    if (next) return next;
    if (handle.promise().detached) handle.destroy();
    return std::noop_coroutine();
  }
  void await_resume() const noexcept {}
};

struct PromiseBase {
  std::coroutine_handle<> continuation;
  bool detached = false;  // nobody has the task any more

  std::suspend_always initial_suspend() const noexcept { return {}; }
  void unhandled_exception() const noexcept { std::terminate(); }
};

template <typename T>
struct Promise : PromiseBase {
  std::optional<T> value;

  Task<T> get_return_object();
  FinalAwaiter<Promise> final_suspend() const noexcept { return {}; }
  template <typename U>
  void return_value(U&& result) {
    value.emplace(std::forward<U>(result));
  }
  T Take() { return *std::move(value); }
};

template <>
struct Promise<void> : PromiseBase {
  Task<void> get_return_object();
  FinalAwaiter<Promise> final_suspend() const noexcept { return {}; }
  void return_void() const noexcept {}
  void Take() const noexcept {}
};

template <typename T>
class Awaiter;

// What awaiting gives.
template <typename T>
using OutcomeOf =
    std::conditional_t<std::is_same_v<T, absl::Status>, absl::Status, absl::StatusOr<T>>;

// The callback of an operation that a coroutine waits for. Both know where the other one is, so
// that either may go first.
template <typename T>
class Resumer {
 public:
  explicit Resumer(Awaiter<T>* awaiter) : awaiter_(awaiter) { Link(); }
  Resumer(Resumer&& other) noexcept : awaiter_(std::exchange(other.awaiter_, nullptr)) { Link(); }
  Resumer& operator=(Resumer&&) = delete;
  ~Resumer() {
    if (awaiter_ != nullptr) awaiter_->resumer_ = nullptr;
  }

  // Whether the coroutine still waits: what its call has borrowed may be written to only then.
  bool awaited() const { return awaiter_ != nullptr; }

  void operator()(const absl::Status& status) { Resume(status); }
  void operator()(const absl::Status& status, const GetResult& result) {
    if (status.ok()) return Resume(Value{std::string(result.value), result.version});
    Resume(status);
  }
  void operator()(const absl::Status& status, const ChangeResult& result) {
    if (status.ok()) return Resume(result);
    Resume(status);
  }
  void operator()(const absl::Status& status, std::optional<std::chrono::milliseconds> left) {
    if (status.ok()) return Resume(left);
    Resume(status);
  }
  void operator()(const absl::Status& status, std::string text) {
    if (status.ok()) return Resume(std::move(text));
    Resume(status);
  }
  void operator()(const absl::Status& status, std::vector<ScanItem> items) {
    if (status.ok()) return Resume(std::move(items));
    Resume(status);
  }

 private:
  friend class Awaiter<T>;

  void Link() {
    if (awaiter_ != nullptr) awaiter_->resumer_ = this;
  }
  template <typename Outcome>
  void Resume(Outcome&& outcome) {
    if constexpr (std::is_constructible_v<OutcomeOf<T>, Outcome&&>) {
      if (awaiter_ == nullptr) return;
      Awaiter<T>* const awaiter = std::exchange(awaiter_, nullptr);
      awaiter->resumer_ = nullptr;
      awaiter->outcome_.emplace(std::forward<Outcome>(outcome));
      // The awaiter goes with this, and this may go as well.
      awaiter->handle_.resume();
    }
  }

  Awaiter<T>* awaiter_;
};

template <typename T>
class Awaiter {
 public:
  Awaiter() = default;
  Awaiter(const Awaiter&) = delete;
  Awaiter& operator=(const Awaiter&) = delete;
  ~Awaiter() {
    if (resumer_ != nullptr) resumer_->awaiter_ = nullptr;
  }

  bool await_ready() const noexcept { return false; }
  OutcomeOf<T> await_resume() { return *std::move(outcome_); }

 protected:
  // Whether to wait: `submitted` is what Submit... has returned.
  bool Suspend(const absl::Status& submitted) {
    if (!submitted.ok()) outcome_.emplace(submitted);
    return submitted.ok();
  }

  std::coroutine_handle<> handle_;

 private:
  friend class Resumer<T>;

  Resumer<T>* resumer_ = nullptr;
  std::optional<OutcomeOf<T>> outcome_;
};

// `submit` takes the callback and returns what Submit... has returned.
template <typename T, typename Submit>
class SubmitAwaiter : public Awaiter<T> {
 public:
  explicit SubmitAwaiter(Submit&& submit) : submit_(std::move(submit)) {}
  bool await_suspend(std::coroutine_handle<> handle) {
    this->handle_ = handle;
    return this->Suspend(submit_(Resumer<T>(this)));
  }

 private:
  Submit submit_;
};

}  // namespace coroutine_internal

/// An operation, to be awaited where it is made: what it was given is borrowed until then. The
/// outcome is an absl::StatusOr<T>, or the absl::Status where T is that.
template <typename T, typename Submit>
class [[nodiscard]] AsyncOperation {
 public:
  /// By AsyncClient.
  explicit AsyncOperation(Submit submit) : submit_(std::move(submit)) {}
  /// To be awaited once.
  auto operator co_await() && {
    return coroutine_internal::SubmitAwaiter<T, Submit>(std::move(submit_));
  }

 private:
  Submit submit_;
};

/// The operations of a connection, which is borrowed. Cheap to copy. Each call stands for the one
/// of Connection of the same name.
class AsyncClient {
 public:
  /// The connection must outlive what is awaited.
  explicit AsyncClient(Connection& connection) : connection_(&connection) {}

  /// \name Operations
  /// @{

  /// As Connection's of the same name.
  auto Get(std::string_view key, CallOptions options = {}) const {
    return Make<Value>([c = connection_, key, options](auto callback) {
      return c->SubmitGet(key, std::move(callback), options);
    });
  }
  auto Put(std::string_view key, std::string_view value, PutOptions options = {}) const {
    return Make<ChangeResult>([c = connection_, key, value, options](auto callback) {
      return c->SubmitPut(key, value, std::move(callback), options);
    });
  }
  auto Delete(std::string_view key, ChangeOptions options = {}) const {
    return Make<ChangeResult>([c = connection_, key, options](auto callback) {
      return c->SubmitDelete(key, std::move(callback), options);
    });
  }
  auto Add(std::string_view key, int64_t summand, ChangeOptions options = {}) const {
    return Make<ChangeResult>([c = connection_, key, summand, options](auto callback) {
      return c->SubmitAdd(key, summand, std::move(callback), options);
    });
  }
  auto Append(std::string_view key, std::string_view suffix, ChangeOptions options = {}) const {
    return Make<ChangeResult>([c = connection_, key, suffix, options](auto callback) {
      return c->SubmitAppend(key, suffix, std::move(callback), options);
    });
  }
  auto GetAndDelete(std::string_view key, CallOptions options = {}) const {
    return Make<Value>([c = connection_, key, options](auto callback) {
      return c->SubmitGetAndDelete(key, std::move(callback), options);
    });
  }
  auto Expire(std::string_view key, std::chrono::milliseconds ttl, CallOptions options = {}) const {
    return Make<ChangeResult>([c = connection_, key, ttl, options](auto callback) {
      return c->SubmitExpire(key, ttl, std::move(callback), options);
    });
  }
  auto Persist(std::string_view key, CallOptions options = {}) const {
    return Make<ChangeResult>([c = connection_, key, options](auto callback) {
      return c->SubmitPersist(key, std::move(callback), options);
    });
  }
  auto Ttl(std::string_view key, CallOptions options = {}) const {
    using Left = std::optional<std::chrono::milliseconds>;
    return Make<Left>([c = connection_, key, options](auto callback) {
      return c->SubmitTtl(key, std::move(callback), options);
    });
  }
  /// `range`'s views are borrowed like everything else.
  auto Scan(ScanRange range, size_t limit, CallOptions options = {}) const {
    return Make<std::vector<ScanItem>>([c = connection_, range, limit, options](auto callback) {
      return c->SubmitScan(range, limit, std::move(callback), options);
    });
  }
  auto Ping(CallOptions options = {}) const {
    return Make<absl::Status>([c = connection_, options](auto callback) {
      return c->SubmitPing(std::move(callback), options);
    });
  }
  auto Info(CallOptions options = {}) const {
    return Make<std::string>([c = connection_, options](auto callback) {
      return c->SubmitInfo(std::move(callback), options);
    });
  }
  /// As Connection's: `*size`, where given, tells what the value takes also where it does not fit.
  auto GetInto(std::string_view key, std::span<std::byte> target, size_t* size,
               uint64_t* version = nullptr, CallOptions options = {}) const {
    return Make<absl::Status>(
        [c = connection_, key, target, size, version, options](auto callback) {
          return c->SubmitGetInto(
              key, target,
              [size, version, callback = std::move(callback)](const absl::Status& status,
                                                              const GetResult& result) mutable {
                if (callback.awaited() && size != nullptr) *size = result.size;
                if (callback.awaited() && version != nullptr) *version = result.version;
                callback(status);
              },
              options);
        });
  }
  /// @}

  /// \name Several operations at once
  /// As Connection's of the same name; each takes as many places of the depth as are free. The
  /// batch, and the places for results, are borrowed like everything else. What is refused
  /// (ResourceExhausted, say) leaves them as they were.
  /// @{

  /// As Connection's of the same name.
  auto Execute(Batch& batch, CallOptions options = {}) const {
    return Make<absl::Status>([c = connection_, to = &batch, options](auto callback) {
      return c->SubmitExecute(std::move(*to), Keeping<Batch>(to, std::move(callback)), options);
    });
  }
  auto MultiGet(std::span<const std::string_view> keys, std::vector<GetItem>* results,
                CallOptions options = {}) const {
    return Make<absl::Status>([c = connection_, keys, results, options](auto callback) {
      return c->SubmitMultiGet(keys, Keeping<std::vector<GetItem>>(results, std::move(callback)),
                               options);
    });
  }
  auto MultiPut(std::span<const KeyValue> items, PutOptions options = {},
                std::vector<absl::StatusOr<ChangeResult>>* results = nullptr) const {
    using Results = std::vector<absl::StatusOr<ChangeResult>>;
    return Make<absl::Status>([c = connection_, items, options, results](auto callback) {
      return c->SubmitMultiPut(items, Keeping<Results>(results, std::move(callback)), options);
    });
  }
  auto MultiDelete(std::span<const std::string_view> keys, CallOptions options = {},
                   std::vector<absl::StatusOr<ChangeResult>>* results = nullptr) const {
    using Results = std::vector<absl::StatusOr<ChangeResult>>;
    return Make<absl::Status>([c = connection_, keys, options, results](auto callback) {
      return c->SubmitMultiDelete(keys, Keeping<Results>(results, std::move(callback)), options);
    });
  }
  /// @}

 private:
  // A callback that moves what it is given to `to`, where given, and resumes.
  template <typename Results, typename Resumer>
  static auto Keeping(Results* to, Resumer resumer) {
    return [to, resumer = std::move(resumer)](const absl::Status& status, Results results) mutable {
      if (to != nullptr && resumer.awaited()) *to = std::move(results);
      resumer(status);
    };
  }
  template <typename T, typename Submit>
  static AsyncOperation<T, Submit> Make(Submit submit) {
    return AsyncOperation<T, Submit>(std::move(submit));
  }

  Connection* connection_;
};

template <typename T>
class [[nodiscard]] Task {
 public:
  /// As the language wants it.
  using promise_type = coroutine_internal::Promise<T>;

  /// `other` stands for no coroutine then.
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  /// Destroys the coroutine that this stood for.
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      if (handle_) handle_.destroy();
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  /// Destroys the coroutine.
  ~Task() {
    if (handle_) handle_.destroy();
  }

  /// Begins it, and waits for its end. Once.
  auto operator co_await() && {
    struct Awaiter {
      std::coroutine_handle<promise_type> handle;
      bool await_ready() const noexcept { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<> waiting) const noexcept {
        handle.promise().continuation = waiting;
        return handle;
      }
      T await_resume() const { return handle.promise().Take(); }
    };
    return Awaiter{handle_};
  }

 private:
  friend promise_type;
  template <typename U>
  friend U Run(Connection& connection, Task<U> task);
  friend void Spawn(Task<void> task);

  explicit Task(std::coroutine_handle<promise_type> handle) : handle_(handle) {}

  std::coroutine_handle<promise_type> handle_;
};

namespace coroutine_internal {

template <typename T>
Task<T> Promise<T>::get_return_object() {
  return Task<T>(std::coroutine_handle<Promise>::from_promise(*this));
}
inline Task<void> Promise<void>::get_return_object() {
  return Task<void>(std::coroutine_handle<Promise>::from_promise(*this));
}

}  // namespace coroutine_internal

/// Begins the task and waits on `connection`, which must be the one that it waits for, until it has
/// come to its end. Not in a callback or another coroutine, which would wait for itself: co_await
/// the task there. Where the task cannot come to its end so, the process ends.
template <typename T>
T Run(Connection& connection, Task<T> task) {
  task.handle_.resume();
  while (!task.handle_.done()) {
    // Operations end by their deadlines: without any callback there is none that it waits for.
    if (connection.Wait(std::chrono::hours(24 * 365)) == 0 && !task.handle_.done()) {
      std::terminate();
    }
  }
  return task.handle_.promise().Take();
}

/// Begins the task and leaves it to itself: it goes on whenever its connection is polled, and is
/// destroyed at its end.
inline void Spawn(Task<void> task) {
  const auto handle = std::exchange(task.handle_, nullptr);
  handle.promise().detached = true;
  handle.resume();
}

}  // namespace verbena
