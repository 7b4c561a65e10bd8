// What the network side asks of a store. server/store_handler.h joins the two; nothing in
// server/net knows how data is kept.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "common/wire/messages.h"

namespace verbena::net {

// What became of a change.
struct Change {
  wire::ResultCode code = wire::ResultCode::kOk;
  bool existed = false;  // the key was there before
  uint64_t version = 0;  // of the key after the change; of the present item if there was none
  int64_t number = 0;    // after kAdd: the sum, as in `text`
  std::string text;      // after kOk the answer's value (kAdd); else for people
};

// What a lookup, or a deletion that returns the value, found.
struct Lookup {
  // kOk: the value is in the room given; kNotFound; kLocated: it does not fit there, and what is
  // below says where it lies and how to know it; or an error (kTooLarge if it should have been
  // deleted and does not fit).
  wire::ResultCode code = wire::ResultCode::kNotFound;
  uint32_t value_len = 0;
  uint64_t version = 0;
  uint64_t slot = 0;  // layout::Slot bits
  uint64_t check = 0;
  uint16_t flags = 0;
  uint64_t pin = 0;  // for Release; 0: not pinned
  std::string text;
};

// How long a key stays.
struct TimeLeft {
  wire::ResultCode code = wire::ResultCode::kNotFound;
  uint64_t version = 0;
  uint64_t millis = 0;  // rounded up; 0: for ever
  std::string text;
};

// What a scan has put into the room given.
struct ScanPage {
  wire::ResultCode code = wire::ResultCode::kOk;
  uint32_t bytes = 0;  // of wire::ScanEntries
  bool more = false;   // there may be further keys behind them
  std::string text;
};

// A change whose value arrives later, directly in the slice. Dropping it undoes the preparation; so
// it must not be dropped before whatever writes there has stopped.
class PendingChange {
 public:
  virtual ~PendingChange() = default;
  // Where the value goes, inside the memory that Slice names.
  virtual std::span<uint8_t> value() const = 0;
  // The next `bytes` of it are there and will not change any more: a hint, which leaves less to do
  // for Publish.
  virtual void Filled(uint64_t bytes) = 0;
};

// Called by the workers, each with its own index (0 to workers - 1); calls with different indices
// run at the same time. Keys and values are only valid during the call. An operation's flags, codes
// and fields go together as wire::RequestReader has checked.
class RequestHandler {
 public:
  virtual ~RequestHandler() = default;

  // Operations on these keys come next: a hint, so that what they will touch is fetched for all of
  // them at once rather than for one after the other.
  virtual void Expect(std::span<const std::string_view> keys) = 0;

  // With `pin`, an item whose value does not fit is pinned, if there are not too many pins: it can
  // be READ where it lies, whatever becomes of it, until Release.
  virtual Lookup Get(int worker, std::string_view key, std::span<uint8_t> room, bool pin) = 0;
  virtual void Release(int worker, uint64_t pin) = 0;
  virtual Change Put(int worker, const wire::Operation& operation) = 0;
  virtual Change Delete(int worker, const wire::Operation& operation) = 0;
  // kDelete with kOpReturnValue. If the value does not fit the room nothing is deleted.
  virtual Lookup Take(int worker, const wire::Operation& operation, std::span<uint8_t> room) = 0;
  virtual Change Add(int worker, const wire::Operation& operation) = 0;
  virtual Change Append(int worker, const wire::Operation& operation) = 0;

  // kExpire and kPersist: `existed` tells whether the key had a time to live before.
  virtual Change Expire(int worker, const wire::Operation& operation) = 0;
  virtual TimeLeft Ttl(int worker, std::string_view key) = 0;
  virtual ScanPage Scan(const wire::Operation& operation, std::span<uint8_t> room) = 0;
  // Keys with these hashes were read. May be called by any thread.
  virtual void Touch(std::string_view hashes) = 0;

  // The two halves of a change whose value is READ from the client. Prepare sets `*pending` if and
  // only if it returns kOk. Publish judges the condition; it and the destruction of the pending
  // change must use the worker that prepared it.
  virtual Change Prepare(int worker, const wire::Operation& operation,
                         std::unique_ptr<PendingChange>* pending) = 0;
  virtual Change Publish(int worker, std::unique_ptr<PendingChange> pending) = 0;

  // Each second, and when the worker has no client (any more): memory that it keeps at hand for
  // itself goes back to where all have it from.
  virtual void ReturnSpare(int worker) = 0;
  // A JSON object about the server. May be called by any thread.
  virtual std::string Info() = 0;
};

// The memory that clients READ, and what they are told about it.
struct Slice {
  std::span<uint8_t> memory;
  uint64_t epoch = 0;
  uint64_t max_value_size = 0;  // bytes
  uint32_t max_key_size = 0;    // bytes
  uint16_t layout_version = 0;
  uint32_t features = 0;  // wire::kFeature... bits
};

}  // namespace verbena::net
