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

absl::StatusOr<ChangeResult> Connection::Put(std::string_view key, std::string_view value) {
  return impl_->Put(key, value);
}
absl::StatusOr<ChangeResult> Connection::Delete(std::string_view key) { return impl_->Delete(key); }
absl::Status Connection::Ping() { return impl_->Ping(); }
absl::StatusOr<std::string> Connection::Info() { return impl_->Info(); }

absl::Status Connection::SubmitPut(std::string_view key, std::string_view value,
                                   ChangeCallback callback) {
  return impl_->SubmitPut(key, value, std::move(callback));
}
absl::Status Connection::SubmitDelete(std::string_view key, ChangeCallback callback) {
  return impl_->SubmitDelete(key, std::move(callback));
}

int Connection::Wait(std::chrono::nanoseconds timeout) { return impl_->Wait(timeout); }
void Connection::Drain() { impl_->Drain(); }

size_t Connection::in_flight() const { return impl_->in_flight(); }
absl::Status Connection::status() const { return impl_->status(); }
std::string Connection::fabric() const { return impl_->endpoint().fabric(); }
std::string Connection::device() const { return impl_->endpoint().device(); }
uint64_t Connection::server_epoch() const { return impl_->server_epoch(); }
const ServerLimits& Connection::limits() const { return impl_->limits(); }
const ConnectionStats& Connection::stats() const { return impl_->stats(); }

}  // namespace verbena
