// Worker: what the operations of a request do.
#include <algorithm>
#include <cassert>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"
#include "common/verbs/data_path.h"
#include "server/net/worker.h"

namespace verbena::net {
namespace {

using wire::OpCode;
using wire::Operation;
using wire::ResultCode;

// The longest sum: a minus and 19 digits.
constexpr size_t kLongestNumber = 20;
constexpr size_t kBareResult = wire::ResultSize(0);
// What a result takes at most whose value cannot be left away.
constexpr size_t kReservedResult =
    wire::ResultSize(std::max(sizeof(wire::Location), kLongestNumber));

}  // namespace

// Bytes of value that the next result may carry if each operation after it is left `reserve_each`
// bytes for its own.
size_t Worker::RoomForValue(const Connection& connection, size_t reserve_each) const {
  const size_t room = connection.request.writer->room();
  const size_t reserve = connection.request.left * reserve_each + connection.request.reserved;
  return room > reserve ? room - reserve : 0;
}

void Worker::OweRest(Connection& connection, size_t size) const {
  if (connection.session == nullptr) return;
  const size_t taken = connection.request.writer->size() - size;
  if (taken < kReservedResult) connection.request.owed += kReservedResult - taken;
}

void Worker::AddResult(Connection& connection, const wire::OperationHeader& operation,
                       ResultCode code, std::string_view value, uint64_t version,
                       uint64_t argument) {
  wire::ResultHeader header{};
  header.sequence = operation.sequence;
  header.code = static_cast<uint16_t>(code);
  header.version = version;
  header.argument = argument;
  // Values are measured before; texts for people are left out where they would take what the
  // answers to come cannot do without. The header always fits (StartRequest).
  const bool is_value = code == ResultCode::kOk || code == ResultCode::kLocated;
  const size_t room = RoomForValue(connection, is_value ? kBareResult : kReservedResult);
  if (value.size() > room) value = {};
  [[maybe_unused]] const bool added = connection.request.writer->Add(header, value);
  assert(added);
  counters_
      .operations[std::min<size_t>(operation.code, kOpCodes - 1)]
                 [std::min<size_t>(header.code, kResultCodes - 1)]
      .Add();
}

void Worker::AddChange(Connection& connection, const wire::OperationHeader& operation,
                       const Change& change) {
  KeepChange(connection, operation, change);
  AddResult(connection, operation, change.code, change.text, change.version,
            change.existed ? 1 : 0);
}

Worker::Step Worker::RunOperation(Connection& connection, const Operation& operation) {
  const auto code = static_cast<OpCode>(operation.header.code);
  if ((code == OpCode::kHello) == connection.greeted) {
    return CloseMalformed(connection,
                          connection.greeted ? "a second hello" : "the first one is no hello");
  }
  if (connection.session != nullptr) {
    const absl::Status usable = connection.session->Check(operation.header.sequence);
    if (!usable.ok()) return CloseMalformed(connection, usable.message());
    uint64_t& last = connection.request.last_sequence;
    if (operation.header.sequence <= last) {
      return CloseMalformed(connection, absl::StrCat("sequence number ", operation.header.sequence,
                                                     " comes behind ", last, " in one request"));
    }
    last = operation.header.sequence;
  }
  switch (code) {
    case OpCode::kHello:
      return RunHello(connection, operation);
    case OpCode::kPing:
      if (operation.value.size() > RoomForValue(connection, kBareResult)) {
        AddResult(connection, operation.header, ResultCode::kTooLarge, "no room for the echo");
      } else {
        AddResult(connection, operation.header, ResultCode::kOk, operation.value);
      }
      return Step::kDone;
    case OpCode::kGet: {
      const size_t before = connection.request.writer->size();
      RunGet(connection, operation);
      OweRest(connection, before);
      return Step::kDone;
    }
    case OpCode::kPut:
    case OpCode::kDelete:
    case OpCode::kAdd:
    case OpCode::kAppend:
    case OpCode::kExpire:
    case OpCode::kPersist:
      return RunChange(connection, operation);
    case OpCode::kTtl:
      RunTtl(connection, operation);
      return Step::kDone;
    case OpCode::kScan:
      RunScan(connection, operation);
      return Step::kDone;
    case OpCode::kTouch:
      handler_.Touch(operation.value);
      AddResult(connection, operation.header, ResultCode::kOk, {});
      return Step::kDone;
    case OpCode::kRelease:
      RunRelease(connection, operation.header);
      return Step::kDone;
    case OpCode::kInfo:
      RunInfo(connection, operation.header);
      return Step::kDone;
  }
  return Step::kDone;  // the reader lets no other code through
}

// Where the value of the next result will lie, so that it can be copied there first.
uint8_t* Worker::PlaceForValue(const Connection& connection) const {
  return connection.queues->responses.Buffer(connection.request.buffer).data() +
         connection.request.writer->size() + sizeof(wire::ResultHeader);
}

// A result whose value is in its place already.
void Worker::AddFound(Connection& connection, const wire::OperationHeader& operation,
                      const Lookup& found, uint64_t argument) {
  wire::ResultHeader header{};
  header.sequence = operation.sequence;
  header.version = found.version;
  header.argument = argument;
  connection.request.writer->AddInPlace(header, found.value_len);
  counters_.operations[operation.code][static_cast<size_t>(ResultCode::kOk)].Add();
}

// The value is copied straight into the answer; one that does not fit is located.
void Worker::RunGet(Connection& connection, const Operation& operation) {
  const size_t room = RoomForValue(connection, kReservedResult);
  const bool can_locate = RoomForValue(connection, kBareResult) >= sizeof(wire::Location);
  const Lookup lookup =
      handler_.Get(options_.index, operation.key, {PlaceForValue(connection), room},
                   /*pin=*/can_locate && MayPin(connection));
  switch (lookup.code) {
    case ResultCode::kOk:
      AddFound(connection, operation.header, lookup, /*argument=*/0);
      return;
    case ResultCode::kLocated: {
      if (!can_locate) {
        AddResult(connection, operation.header, ResultCode::kTooLarge, "too many in one request");
        return;
      }
      HoldPin(connection, lookup);
      wire::Location location{};
      location.slot = lookup.slot;
      location.version = lookup.version;
      location.check = lookup.check;
      location.pin = lookup.pin;
      location.value_len = lookup.value_len;
      location.flags = lookup.flags;
      AddResult(connection, operation.header, ResultCode::kLocated, wire::AsValue(location),
                lookup.version);
      return;
    }
    default:
      AddResult(connection, operation.header, lookup.code, lookup.text);
  }
}

Worker::Step Worker::RunChange(Connection& connection, const Operation& operation) {
  const wire::OperationHeader& header = operation.header;
  if (const std::optional<Step> step = AnswerRepeated(connection, header)) return *step;
  if (draining_) {
    AddResult(connection, header, ResultCode::kUnavailable, "the server is stopping");
    return Step::kDone;
  }
  switch (static_cast<OpCode>(header.code)) {
    case OpCode::kPut:
      if (operation.reference.has_value()) return StartTransfer(connection, operation);
      AddChange(connection, header, handler_.Put(options_.index, operation));
      return Step::kDone;
    case OpCode::kDelete:
      if ((header.flags & wire::kOpReturnValue) != 0) {
        RunTake(connection, operation);
      } else {
        AddChange(connection, header, handler_.Delete(options_.index, operation));
      }
      return Step::kDone;
    case OpCode::kAdd: {
      const size_t before = connection.request.writer->size();
      RunAdd(connection, operation);
      OweRest(connection, before);
      return Step::kDone;
    }
    case OpCode::kAppend:
      AddChange(connection, header, handler_.Append(options_.index, operation));
      return Step::kDone;
    default:
      AddChange(connection, header, handler_.Expire(options_.index, operation));
      return Step::kDone;
  }
}

// The sum must reach the client whole: without room for the longest one nothing is added.
void Worker::RunAdd(Connection& connection, const Operation& operation) {
  if (RoomForValue(connection, kBareResult) < kLongestNumber) {
    AddResult(connection, operation.header, ResultCode::kTooLarge, "too many in one request");
  } else {
    AddChange(connection, operation.header, handler_.Add(options_.index, operation));
  }
}

// Like RunGet. The operations behind it in the request are left room for their own answers, and
// those ahead of it what they need if it is repeated with them.
void Worker::RunTake(Connection& connection, const Operation& operation) {
  Session* const session = connection.session;
  size_t room = RoomForValue(connection, kReservedResult);
  // What is deleted must be there for the client if this answer does not reach it.
  if (session != nullptr) {
    room -= std::min(room, connection.request.owed);
    room = std::min(room, session->room_for_value());
  }
  uint8_t* const place = PlaceForValue(connection);
  const Lookup taken = handler_.Take(options_.index, operation, {place, room});
  if (taken.code == ResultCode::kOk) {
    if (session != nullptr) {
      session->KeepValue(operation.header.sequence,
                         {reinterpret_cast<const char*>(place), taken.value_len});
      session->Keep({.sequence = operation.header.sequence,
                     .version = taken.version,
                     .code = OpCode::kDelete,
                     .existed = true,
                     .has_value = true});
    }
    AddFound(connection, operation.header, taken, /*argument=*/1);
  } else {
    AddResult(connection, operation.header, taken.code, taken.text, taken.version,
              taken.version != 0 ? 1 : 0);
  }
}

void Worker::RunTtl(Connection& connection, const Operation& operation) {
  const TimeLeft left = handler_.Ttl(options_.index, operation.key);
  AddResult(connection, operation.header, left.code, left.text, left.version, left.millis);
}

// As many keys as are asked for and fit; the client asks for the rest from the last one on.
void Worker::RunScan(Connection& connection, const Operation& operation) {
  const size_t room = RoomForValue(connection, kReservedResult);
  const ScanPage page = handler_.Scan(operation, {PlaceForValue(connection), room});
  if (page.code != ResultCode::kOk) {
    AddResult(connection, operation.header, page.code, page.text);
    return;
  }
  Lookup found;
  found.value_len = page.bytes;
  AddFound(connection, operation.header, found, page.more ? 1 : 0);
}

// As much as fits. What is left is kept, so that all parts are of one moment.
void Worker::RunInfo(Connection& connection, const wire::OperationHeader& operation) {
  std::string& info = connection.info;
  const uint64_t begin = operation.argument;
  if (begin == 0) info = handler_.Info();
  const size_t room = RoomForValue(connection, kBareResult);
  if (begin >= info.size()) {
    AddResult(connection, operation, ResultCode::kNotFound, {});
  } else if (room == 0) {
    AddResult(connection, operation, ResultCode::kTooLarge, "too many in one request");
  } else {
    const std::string_view part = std::string_view(info).substr(begin, room);
    const uint64_t left = info.size() - begin - part.size();
    AddResult(connection, operation, ResultCode::kOk, part, /*version=*/0, left);
    if (left == 0) info = {};
  }
}

}  // namespace verbena::net
