// Memory of the caller's: values that land in it, and large values that the server READs from it.
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/src/connection_impl.h"
#include "client/src/registrations.h"
#include "common/base/macros.h"
#include "common/verbs/data_path.h"
#include "common/verbs/errors.h"
#include "verbena/buffer.h"

namespace verbena {

using client::Registration;
using client::Registrations;
using client::SyncCall;

std::span<std::byte> Buffer::bytes() const {
  return registration_ == nullptr ? std::span<std::byte>() : registration_->memory;
}

void Buffer::Reset() {
  const std::shared_ptr<Registrations> registrations = registrations_.lock();
  if (registrations != nullptr && registration_ != nullptr) {
    registrations->Drop(std::move(registration_));
  }
  registration_.reset();
  registrations_.reset();
}

absl::StatusOr<Buffer> Connection::Impl::RegisterBuffer(std::span<std::byte> memory) {
  if (!dead_.ok()) return dead_;
  // Without a connection there is no device to register it with.
  if (!endpoint_->pd().valid()) {
    return absl::UnavailableError(
        "a buffer can be registered only while there is a connection, and it was lost: Poll, or "
        "make "
        "a synchronous call, and try again when another has been made");
  }
  absl::StatusOr<std::shared_ptr<Registration>> registration =
      registrations_->Add(*endpoint_, memory);
  if (!registration.ok()) return verbs::WithoutErrno(registration.status());
  return Buffer(*std::move(registration), registrations_);
}

// Buffers refer weakly to what they are registered with: of one that is gone they know nothing.
void Connection::Impl::ForgetBuffers() {
  if (registrations_->empty()) return;
  registrations_->Unregister();
  registrations_ = std::make_shared<Registrations>();
}

absl::StatusOr<std::shared_ptr<Registration>> Connection::Impl::RegistrationOf(
    std::span<const std::byte> bytes) const {
  std::shared_ptr<Registration> registration = registrations_->Find(bytes);
  if (registration == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("the target of ", bytes.size(),
                     " bytes does not lie within a buffer that is registered with this "
                     "connection (RegisterBuffer)"));
  }
  if (!registration->failure.ok()) return registration->failure;
  return registration;
}

// Whether an operation on registered memory of the caller's may go on. Memory that is not
// mapped any more would else keep the connection from being made, until the deadline.
absl::Status Connection::Impl::MemoryUsable(const Operation& op) const {
  return op.registration == nullptr ? absl::OkStatus() : op.registration->failure;
}

// Takes those that may not go on out of every queue.
void Connection::Impl::TakeOutUnusable(std::vector<verbs::SlotRef>* unusable) {
  pool_.ForEach([&](Operation& op) {
    if (MemoryUsable(op).ok()) return;
    if (op.asked) requests_.Remove(op.slot);
    space_waiters_.RemoveIf([&op](const Operation* waiting) { return waiting == &op; });
    unusable->push_back(client::OperationPool::RefOf(op));
  });
}

absl::Status Connection::Impl::GetInto(std::string_view key, std::span<std::byte> target,
                                       size_t* size, uint64_t* version,
                                       const CallOptions& options) {
  if (version != nullptr) *version = 0;
  if (size == nullptr) return absl::InvalidArgumentError("the place for the size is null");
  *size = 0;
  VERBENA_RETURN_IF_ERROR(CheckKey(key));
  VERBENA_ASSIGN_OR_RETURN(const int64_t timeout_ns, TimeoutOf(options.timeout));
  VERBENA_ASSIGN_OR_RETURN(std::shared_ptr<Registration> registration, RegistrationOf(target));
  SyncCall call;
  VERBENA_ASSIGN_OR_RETURN(Operation* const op, AcquireSync(OperationKind::kGetInto, &call));
  op->timeout_ns = timeout_ns;
  op->registration = std::move(registration);
  op->into = target;
  op->key = key;
  StartGetInto(*op);
  FinishSync(&call);
  *size = static_cast<size_t>(call.change.number);
  if (version != nullptr) *version = call.version;
  return std::move(call.status);
}

absl::Status Connection::Impl::SubmitGetInto(std::string_view key, std::span<std::byte> target,
                                             GetCallback&& callback, const CallOptions& options) {
  VERBENA_RETURN_IF_ERROR(CheckSubmit(key));
  VERBENA_ASSIGN_OR_RETURN(const int64_t timeout_ns, TimeoutOf(options.timeout));
  VERBENA_ASSIGN_OR_RETURN(std::shared_ptr<Registration> registration, RegistrationOf(target));
  Operation& op = pool_.Acquire(OperationKind::kGetInto);
  op.on_get = std::move(callback);
  op.timeout_ns = timeout_ns;
  op.registration = std::move(registration);
  op.into = target;
  op.key = KeepKey(op, key);
  StartGetInto(op);
  return absl::OkStatus();
}

// Where a READ may have two sinks, the value's bytes land where they are wanted; else the whole
// item lands in this connection's memory, and is copied once.
void Connection::Impl::StartGetInto(Operation& op) {
  op.lookup.set_hash(layout::KeyHash::Of(op.key, context_->hash_seed));
  if (!options_.one_sided_reads) {
    Ask(op);
    return;
  }
  // It begins when there is a connection again; or it ends (Resume).
  if (!up_ || !op.registration->failure.ok()) return;
  if (endpoint_->scatters_reads()) {
    op.lookup.SplitInto({reinterpret_cast<uint8_t*>(op.into.data()),
                         op.into.size()});  // its bytes, as the lookup has them
  }
  LookUpInto(op);
}

void Connection::Impl::LookUpInto(Operation& op) {
  ActOtherwise(op, op.lookup.Start(*context_, op.lookup.hash(), op.key));
}

// What cannot be decided with the value in the caller's memory (it may be too large for it) is done
// once more with the whole item in this connection's.
void Connection::Impl::LookUpWhole(Operation& op) {
  op.lookup.SplitInto({});
  LookUpInto(op);
}

// A READ that does not land in the operation's sink, or not all of it.
void Connection::Impl::FillElsewhere(uint32_t i, Operation& op) {
  ibv_sge* const sges = &read_sges_[size_t{2} * i];
  if (!op.lookup.split()) {
    sges[0].lkey = op.space->region.lkey();
    return;
  }
  const uint32_t lkey = op.registration->region.lkey();
  if (!op.lookup.SplitsRead(op.step)) {
    sges[0].lkey = lkey;
    return;
  }
  const auto head = static_cast<uint32_t>(op.lookup.head_size());
  const auto rest =
      static_cast<uint32_t>(std::min<uint64_t>(op.step.length - head, op.into.size()));
  op.step.length = head + rest;
  sges[0].length = head;
  if (rest == 0) return;
  sges[1] = verbs::MakeSge(op.into.data(), rest, lkey);
  read_list_[i].num_sge = 2;
  scattered_ = true;
}

void Connection::Impl::GatherAgain() {
  scattered_ = false;
  for (ibv_send_wr& request : read_list_) request.num_sge = 1;
}

void Connection::Impl::EndGetInto(Operation& op, const absl::Status& status,
                                  const GetResult& found) {
  absl::Status outcome = status;
  GetResult result = found;
  result.size = found.value.size();
  if (status.ok() && op.lookup.split()) {
    ++stats_.gets_without_copy;
  } else if (status.ok() && result.size <= op.into.size()) {
    ++stats_.gets_copied;
    std::memcpy(op.into.data(), found.value.data(), result.size);
    result.value = {reinterpret_cast<const char*>(op.into.data()), result.size};
  } else if (status.ok()) {
    outcome = absl::OutOfRangeError(
        absl::StrCat("the value has ", result.size, " bytes, the buffer for it ", op.into.size()));
    result.value = {};
  }
  ++stats_.gets;
  if (--touch_countdown_ == 0) NoteTouch(op.lookup.hash());
  op.lookup.SplitInto({});
  pool_.Finish(op);
  if (SyncCall* const call = op.sync; call != nullptr) {
    call->status = std::move(outcome);
    call->version = result.version;
    call->change.number = static_cast<int64_t>(result.size);
    call->done = true;
  } else {
    RunCallback(op.on_get, outcome, result);
  }
  if (op.space != nullptr) DropSpace(op);
  if (op.pin != 0) DropPin(op);
  registrations_->Done(std::move(op.registration));
  pool_.Free(op);
}

// A large value that is to be put: where the server finds it.
wire::ValueReference Connection::Impl::ReferenceTo(const Operation& op) {
  wire::ValueReference reference{};
  if (op.registration != nullptr) {
    reference.address = verbs::AddressOf(op.value.data());
    // Without a connection it gets its key with the next one.
    if (op.registration->region.valid()) reference.rkey = op.registration->region.rkey();
  } else {
    reference.address = verbs::AddressOf(op.space->bytes().data());
    reference.rkey = op.space->region.rkey();
  }
  return reference;
}

// The server READs the value where it lies.
void Connection::Impl::PutFromBuffer(Operation& op) {
  ++stats_.puts_without_copy;
  requests_.AddByReference(op.slot, op.request, op.key, static_cast<uint32_t>(op.value.size()),
                           ReferenceTo(op));
}

absl::StatusOr<Buffer> Connection::RegisterBuffer(std::span<std::byte> memory) {
  const Impl::Call call(*impl_);
  return impl_->RegisterBuffer(memory);
}
absl::Status Connection::GetInto(std::string_view key, std::span<std::byte> target, size_t* size,
                                 uint64_t* version, const CallOptions& options) {
  const Impl::Call call(*impl_);
  return impl_->GetInto(key, target, size, version, options);
}
absl::Status Connection::SubmitGetInto(std::string_view key, std::span<std::byte> target,
                                       GetCallback callback, const CallOptions& options) {
  const Impl::Call call(*impl_);
  return impl_->SubmitGetInto(key, target, std::move(callback), options);
}

}  // namespace verbena
