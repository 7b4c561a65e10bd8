#include "verbena/connection.h"

#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "client/src/access.h"
#include "client/src/causes.h"
#include "client/src/connection_impl.h"

namespace verbena {
namespace {

// change(&version) with the caller's `present`, which may be null: on every error it is the version
// that is there, 0 also where the operation was not begun.
template <typename Change>
absl::StatusOr<ChangeResult> TellPresent(uint64_t* present, Change&& change) {
  uint64_t found = 0;
  absl::StatusOr<ChangeResult> changed = change(&found);
  if (present != nullptr && !changed.ok()) *present = found;
  return changed;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Connection>> Connection::Connect(std::string_view server,
                                                                const Options& options) {
  return client::Access::Connect(server, options, nullptr);
}

absl::StatusOr<std::unique_ptr<Connection>> client::Access::Connect(
    std::string_view server, const Options& options, std::shared_ptr<SharedCache> cache) {
  absl::StatusOr<std::unique_ptr<Connection::Impl>> impl =
      Connection::Impl::Connect(server, options, std::move(cache));
  if (!impl.ok()) return ForUsers(impl.status());
  return std::unique_ptr<Connection>(new Connection(*std::move(impl)));
}

Connection::Connection(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

// In a callback the call that runs it still needs what is behind the connection. In the child of a
// fork, perhaps by one of the callbacks that run here, everything behind it is the parent's, and
// stays as it is.
Connection::~Connection() {
  if (!impl_->forked()) {
    // With assertions on: no other thread is in a call. (After a fork the parent's may be.)
    [[maybe_unused]] const Impl::Use alone(*impl_);
  }
  impl_->Close();
  if (impl_->forked()) {
    [[maybe_unused]] Impl* const left = impl_.release();
    return;
  }
  if (impl_->in_callback()) impl_.release()->Orphan();
}

void Connection::Close() {
  const Impl::Call call(*impl_);
  impl_->Close();
}

absl::Status Connection::Get(std::string_view key, std::string* value, uint64_t* version,
                             const CallOptions& options) {
  const Impl::Call call(*impl_);
  return impl_->Get(key, value, version, options);
}
absl::StatusOr<ChangeResult> Connection::Put(std::string_view key, std::string_view value,
                                             const PutOptions& options, uint64_t* present) {
  const Impl::Call call(*impl_);
  return TellPresent(present,
                     [&](uint64_t* found) { return impl_->Put(key, value, options, found); });
}
absl::StatusOr<ChangeResult> Connection::Delete(std::string_view key, const ChangeOptions& options,
                                                uint64_t* present) {
  const Impl::Call call(*impl_);
  return TellPresent(present, [&](uint64_t* found) { return impl_->Delete(key, options, found); });
}
absl::StatusOr<ChangeResult> Connection::Add(std::string_view key, int64_t summand,
                                             const ChangeOptions& options, uint64_t* present) {
  const Impl::Call call(*impl_);
  return TellPresent(present,
                     [&](uint64_t* found) { return impl_->Add(key, summand, options, found); });
}
absl::StatusOr<ChangeResult> Connection::Append(std::string_view key, std::string_view suffix,
                                                const ChangeOptions& options, uint64_t* present) {
  const Impl::Call call(*impl_);
  return TellPresent(present,
                     [&](uint64_t* found) { return impl_->Append(key, suffix, options, found); });
}
absl::Status Connection::GetAndDelete(std::string_view key, std::string* value, uint64_t* version,
                                      const CallOptions& options) {
  const Impl::Call call(*impl_);
  return impl_->GetAndDelete(key, value, version, options);
}
absl::StatusOr<ChangeResult> Connection::Expire(std::string_view key, std::chrono::milliseconds ttl,
                                                const CallOptions& options) {
  const Impl::Call call(*impl_);
  return impl_->Expire(key, ttl, options);
}
absl::StatusOr<ChangeResult> Connection::Persist(std::string_view key, const CallOptions& options) {
  const Impl::Call call(*impl_);
  return impl_->Expire(key, std::nullopt, options);
}
absl::StatusOr<std::optional<std::chrono::milliseconds>> Connection::Ttl(
    std::string_view key, const CallOptions& options) {
  const Impl::Call call(*impl_);
  return impl_->Ttl(key, options);
}
absl::Status Connection::Scan(const ScanRange& range, size_t limit, std::vector<ScanItem>* items,
                              const CallOptions& options) {
  const Impl::Call call(*impl_);
  return impl_->Scan(range, limit, items, options);
}
absl::Status Connection::Ping(const CallOptions& options) {
  const Impl::Call call(*impl_);
  return impl_->Ping(options);
}

absl::Status Connection::SubmitGet(std::string_view key, GetCallback callback,
                                   const CallOptions& options) {
  const Impl::Call call(*impl_);
  return impl_->SubmitGet(key, std::move(callback), options);
}
absl::Status Connection::SubmitPut(std::string_view key, std::string_view value,
                                   ChangeCallback callback, const PutOptions& options) {
  const Impl::Call call(*impl_);
  return impl_->SubmitPut(key, value, std::move(callback), options);
}
absl::Status Connection::SubmitDelete(std::string_view key, ChangeCallback callback,
                                      const ChangeOptions& options) {
  const Impl::Call call(*impl_);
  return impl_->SubmitDelete(key, std::move(callback), options);
}
absl::Status Connection::SubmitAdd(std::string_view key, int64_t summand, ChangeCallback callback,
                                   const ChangeOptions& options) {
  const Impl::Call call(*impl_);
  return impl_->SubmitAdd(key, summand, std::move(callback), options);
}
absl::Status Connection::SubmitAppend(std::string_view key, std::string_view suffix,
                                      ChangeCallback callback, const ChangeOptions& options) {
  const Impl::Call call(*impl_);
  return impl_->SubmitAppend(key, suffix, std::move(callback), options);
}
absl::Status Connection::SubmitGetAndDelete(std::string_view key, GetCallback callback,
                                            const CallOptions& options) {
  const Impl::Call call(*impl_);
  return impl_->SubmitGetAndDelete(key, std::move(callback), options);
}
absl::Status Connection::SubmitExpire(std::string_view key, std::chrono::milliseconds ttl,
                                      ChangeCallback callback, const CallOptions& options) {
  const Impl::Call call(*impl_);
  return impl_->SubmitExpire(key, ttl, std::move(callback), options);
}
absl::Status Connection::SubmitPersist(std::string_view key, ChangeCallback callback,
                                       const CallOptions& options) {
  const Impl::Call call(*impl_);
  return impl_->SubmitExpire(key, std::nullopt, std::move(callback), options);
}
absl::Status Connection::SubmitTtl(std::string_view key, TtlCallback callback,
                                   const CallOptions& options) {
  const Impl::Call call(*impl_);
  return impl_->SubmitTtl(key, std::move(callback), options);
}
absl::Status Connection::SubmitScan(const ScanRange& range, size_t limit, ScanCallback callback,
                                    const CallOptions& options) {
  const Impl::Call call(*impl_);
  return impl_->SubmitScan(range, limit, std::move(callback), options);
}

int Connection::Wait(std::chrono::nanoseconds timeout) {
  const Impl::Call call(*impl_);
  return impl_->Wait(timeout);
}
void Connection::Drain() {
  const Impl::Call call(*impl_);
  impl_->Drain();
}
int Connection::event_fd() const {
  const Impl::Use use(*impl_);
  return impl_->event_fd();
}
int Connection::PollAndArm() {
  const Impl::Call call(*impl_);
  return impl_->PollAndArm();
}

size_t Connection::in_flight() const {
  const Impl::Use use(*impl_);
  return impl_->in_flight();
}
bool Connection::has_room() const {
  const Impl::Use use(*impl_);
  return impl_->has_room();
}
absl::Status Connection::status() const {
  const Impl::Use use(*impl_);
  return impl_->status();
}
std::string Connection::fabric() const {
  const Impl::Use use(*impl_);
  return impl_->endpoint().fabric();
}
std::string Connection::device() const {
  const Impl::Use use(*impl_);
  return impl_->endpoint().device();
}
uint64_t Connection::server_epoch() const {
  const Impl::Use use(*impl_);
  return impl_->server_epoch();
}
const ServerLimits& Connection::limits() const { return impl_->limits(); }
const ConnectionStats& Connection::stats() const {
  const Impl::Use use(*impl_);
  return impl_->stats();
}

#ifndef NDEBUG
void Connection::Impl::Use::Enter() {
  const uint64_t self = pthread_self();
  uint64_t nobody = 0;
  if (!impl_.user_.compare_exchange_strong(nobody, self) && nobody != self) {
    std::fputs("verbena: two threads use a Connection at once; give each its own, or use Client\n",
               stderr);
    std::abort();
  }
  ++impl_.calls_;
}

void Connection::Impl::Use::Leave() {
  if (--impl_.calls_ == 0) impl_.user_.store(0);
}
#endif

}  // namespace verbena
