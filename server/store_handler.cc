#include "server/store_handler.h"

#include <utility>

#include "absl/status/status.h"

namespace verbena::server {
namespace {

using wire::ResultCode;

class PendingPut : public net::PendingChange {
 public:
  explicit PendingPut(storage::PreparedPut put) : put_(std::move(put)) {}
  std::span<uint8_t> value() const override { return put_.value(); }
  storage::PreparedPut Take() { return std::move(put_); }

 private:
  storage::PreparedPut put_;
};

// The store says InvalidArgument for sizes only.
ResultCode CodeOf(const absl::Status& status, std::string_view key) {
  if (absl::IsInvalidArgument(status)) {
    return key.empty() ? ResultCode::kInvalid : ResultCode::kTooLarge;
  }
  return absl::IsResourceExhausted(status) ? ResultCode::kNoSpace : ResultCode::kInternal;
}

net::Change Failed(const absl::Status& status, std::string_view key) {
  net::Change change;
  change.code = CodeOf(status, key);
  change.text = std::string(status.message());
  return change;
}

net::Change Done(const storage::PutResult& result) {
  net::Change change;
  change.existed = result.existed;
  change.version = result.version;
  return change;
}

}  // namespace

net::Lookup StoreHandler::Get(int worker, std::string_view key, std::span<uint8_t> room) {
  net::Lookup lookup;
  const absl::StatusOr<storage::GetResult> got = store_.Get(worker, key, room);
  if (!got.ok()) {
    lookup.code = CodeOf(got.status(), key);
    lookup.text = std::string(got.status().message());
    return lookup;
  }
  if (!got->found) return lookup;
  lookup.code = got->copied ? ResultCode::kOk : ResultCode::kLocated;
  lookup.value_len = got->value_len;
  lookup.version = got->version;
  lookup.slot = got->slot.bits;
  return lookup;
}

net::Change StoreHandler::Put(int worker, std::string_view key, std::string_view value) {
  const absl::StatusOr<storage::PutResult> put =
      store_.Put(worker, key, {reinterpret_cast<const uint8_t*>(value.data()), value.size()});
  return put.ok() ? Done(*put) : Failed(put.status(), key);
}

net::Change StoreHandler::Delete(int worker, std::string_view key) {
  const absl::StatusOr<storage::DeleteResult> deleted = store_.Delete(worker, key);
  if (!deleted.ok()) return Failed(deleted.status(), key);
  net::Change change;
  change.code = deleted->existed ? ResultCode::kOk : ResultCode::kNotFound;
  change.existed = deleted->existed;
  change.version = deleted->version;
  return change;
}

net::Change StoreHandler::Prepare(int worker, std::string_view key, uint32_t value_len,
                                  std::unique_ptr<net::PendingChange>* pending) {
  absl::StatusOr<storage::PreparedPut> prepared = store_.PreparePutInto(worker, key, value_len);
  if (!prepared.ok()) return Failed(prepared.status(), key);
  *pending = std::make_unique<PendingPut>(*std::move(prepared));
  return net::Change{};
}

net::Change StoreHandler::Publish(int /*worker*/, std::unique_ptr<net::PendingChange> pending) {
  const absl::StatusOr<storage::PutResult> put =
      store_.Publish(static_cast<PendingPut&>(*pending).Take());
  // The key was judged when the change was prepared.
  return put.ok() ? Done(*put) : Failed(put.status(), "key");
}

}  // namespace verbena::server
