#include "verbena/connection.h"

#include <utility>

#include "client/src/connection_impl.h"
#include "common/verbs/errors.h"

namespace verbena {

absl::StatusOr<std::unique_ptr<Connection>> Connection::Connect(std::string_view server,
                                                                const Options& options) {
  absl::StatusOr<std::unique_ptr<Impl>> impl = Impl::Connect(server, options);
  if (!impl.ok()) return verbs::WithoutErrno(impl.status());
  return std::unique_ptr<Connection>(new Connection(*std::move(impl)));
}

Connection::Connection(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Connection::~Connection() = default;

absl::StatusOr<ChangeResult> Connection::Put(std::string_view key, std::string_view value,
                                             const PutOptions& options, uint64_t* present) {
  return impl_->Put(key, value, options, present);
}
absl::StatusOr<ChangeResult> Connection::Delete(std::string_view key, const Condition& condition,
                                                uint64_t* present) {
  return impl_->Delete(key, condition, present);
}
absl::StatusOr<ChangeResult> Connection::Add(std::string_view key, int64_t summand,
                                             const Condition& condition) {
  return impl_->Add(key, summand, condition);
}
absl::StatusOr<ChangeResult> Connection::Append(std::string_view key, std::string_view suffix,
                                                const Condition& condition) {
  return impl_->Append(key, suffix, condition);
}
absl::Status Connection::GetAndDelete(std::string_view key, std::string* value, uint64_t* version) {
  return impl_->GetAndDelete(key, value, version);
}
absl::StatusOr<ChangeResult> Connection::Expire(std::string_view key,
                                                std::chrono::milliseconds ttl) {
  return impl_->Expire(key, ttl);
}
absl::StatusOr<ChangeResult> Connection::Persist(std::string_view key) {
  return impl_->Expire(key, std::nullopt);
}
absl::StatusOr<std::optional<std::chrono::milliseconds>> Connection::Ttl(std::string_view key) {
  return impl_->Ttl(key);
}
absl::Status Connection::Scan(const ScanRange& range, size_t limit, std::vector<ScanItem>* items) {
  return impl_->Scan(range, limit, items);
}
absl::Status Connection::Ping() { return impl_->Ping(); }
absl::StatusOr<std::string> Connection::Info() { return impl_->Info(); }

absl::Status Connection::SubmitPut(std::string_view key, std::string_view value,
                                   ChangeCallback callback, const PutOptions& options) {
  return impl_->SubmitPut(key, value, std::move(callback), options);
}
absl::Status Connection::SubmitDelete(std::string_view key, ChangeCallback callback,
                                      const Condition& condition) {
  return impl_->SubmitDelete(key, std::move(callback), condition);
}
absl::Status Connection::SubmitAdd(std::string_view key, int64_t summand, ChangeCallback callback,
                                   const Condition& condition) {
  return impl_->SubmitAdd(key, summand, std::move(callback), condition);
}
absl::Status Connection::SubmitAppend(std::string_view key, std::string_view suffix,
                                      ChangeCallback callback, const Condition& condition) {
  return impl_->SubmitAppend(key, suffix, std::move(callback), condition);
}
absl::Status Connection::SubmitGetAndDelete(std::string_view key, GetCallback callback) {
  return impl_->SubmitGetAndDelete(key, std::move(callback));
}

absl::Status Connection::SubmitExpire(std::string_view key, std::chrono::milliseconds ttl,
                                      ChangeCallback callback) {
  return impl_->SubmitExpire(key, ttl, std::move(callback));
}
absl::Status Connection::SubmitPersist(std::string_view key, ChangeCallback callback) {
  return impl_->SubmitExpire(key, std::nullopt, std::move(callback));
}

int Connection::Wait(std::chrono::nanoseconds timeout) { return impl_->Wait(timeout); }
int Connection::event_fd() const { return impl_->event_fd(); }
int Connection::PollAndArm() { return impl_->PollAndArm(); }
void Connection::Drain() { impl_->Drain(); }

size_t Connection::in_flight() const { return impl_->in_flight(); }
absl::Status Connection::status() const { return impl_->status(); }
std::string Connection::fabric() const { return impl_->endpoint().fabric(); }
std::string Connection::device() const { return impl_->endpoint().device(); }
uint64_t Connection::server_epoch() const { return impl_->server_epoch(); }
const ServerLimits& Connection::limits() const { return impl_->limits(); }
const ConnectionStats& Connection::stats() const { return impl_->stats(); }

}  // namespace verbena
