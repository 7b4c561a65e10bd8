// Worker: hello, and changes that a client repeats after it has lost a connection.
//
// A change is applied once because
//   - its answer is kept (KeepChange) by the thread that has made it, before the answer is posted
//     and before that thread looks at anything else of the connection;
//   - a later connection of the session gets the session only when that thread has said that the
//     earlier one is fenced (SessionTable), so it finds every answer that there is;
//   - an operation whose answer is found is answered with it (AnswerRepeated), and never made.
#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/macros.h"
#include "common/verbs/data_path.h"
#include "server/net/worker.h"

namespace verbena::net {

using wire::OpCode;
using wire::ResultCode;

Worker::Step Worker::RunHello(Connection& connection, const wire::Operation& operation) {
  const absl::StatusOr<wire::Hello> hello = wire::DecodeHello(operation.value);
  if (!hello.ok()) return CloseMalformed(connection, hello.status().message());
  // What comes behind would be of a session that was not there when the request was opened.
  if (connection.request.reader.header().operations != 1) {
    return CloseMalformed(connection, "hello is not alone in its request");
  }
  connection.greeted = true;
  connection.hello_sequence = operation.header.sequence;
  connection.receive_size = hello->receive_size;
  // Some receives stay for messages that the client has not asked for, where it has enough.
  connection.spare_receives =
      hello->receive_count > kSpareReceives ? kSpareReceives : hello->receive_count - 1;
  connection.credits.LimitWindow(
      std::max<uint32_t>(1, hello->receive_count - connection.spare_receives));
  if (hello->operations != 0 && !sessions_.Enter(connection, hello->operations)) {
    return Step::kWaits;
  }
  Welcome(connection);
  return Step::kDone;
}

// The connection before is fenced.
void Worker::OnSessionReady(Connection& connection) {
  if (connection.state != ConnectionState::kOpen) return;
  Welcome(connection);
  ContinueRequest(connection);
  ResumeWaiting(connection);
}

void Worker::Welcome(Connection& connection) {
  const verbs::MemoryRegion& region = connection.queues->adapter->slice();
  wire::Welcome welcome{};
  welcome.region_address = verbs::AddressOf(slice_.memory.data());
  welcome.region_size = slice_.memory.size();
  welcome.region_rkey = region.rkey();
  welcome.epoch = slice_.epoch;
  welcome.max_value_size = slice_.max_value_size;
  welcome.max_key_size = slice_.max_key_size;
  welcome.max_message = kMaxMessage;
  welcome.eager_limit = kEagerLimit;
  welcome.window = static_cast<uint16_t>(connection.credits.window());
  welcome.layout = slice_.layout_version;
  welcome.features = slice_.features;
  if (connection.session != nullptr) {
    welcome.operations = connection.session->operations();
    welcome.incarnation = connection.session->incarnation();
  }
  wire::OperationHeader hello{};
  hello.code = static_cast<uint8_t>(OpCode::kHello);
  hello.sequence = connection.hello_sequence;
  AddResult(connection, hello, ResultCode::kOk, wire::AsValue(welcome));
}

// Bytes that the answer to an operation takes beyond its header if it is a change that has been
// made.
size_t Worker::RepeatedBytes(const Session& session, const wire::OperationHeader& operation) {
  const KeptAnswer* const kept = session.Find(operation.sequence);
  if (kept == nullptr || static_cast<uint8_t>(kept->code) != operation.code) return 0;
  size_t value = 0;
  if (kept->has_value) value = session.ValueOf(operation.sequence).size();
  if (kept->code == OpCode::kAdd) value = absl::StrCat(kept->number).size();
  return wire::ResultSize(value) - wire::ResultSize(0);
}

// A request of a session has been opened: what the client has acknowledged, and how much of the
// answer must be left to answers that are kept. Numbers ascend within a request (RunOperation), so
// what is repeated has been made before the request was opened.
absl::Status Worker::OpenInSession(Connection& connection) {
  Session& session = *connection.session;
  ActiveRequest& request = connection.request;
  session.Acknowledge(request.reader.header().acked);
  if (!session.may_repeat()) return absl::OkStatus();
  wire::RequestReader ahead = request.reader;
  while (true) {
    VERBENA_ASSIGN_OR_RETURN(const std::optional<wire::Operation> operation, ahead.Next());
    if (!operation.has_value()) return absl::OkStatus();
    request.reserved += RepeatedBytes(session, operation->header);
  }
}

// Whether the change has been made before; then it is answered as it was, or should have been.
// An answer that finds no room ends the connection and stays kept. It is for no client that repeats
// its requests as they were: there was room the first time, and what is ahead leaves it.
std::optional<Worker::Step> Worker::AnswerRepeated(Connection& connection,
                                                   const wire::OperationHeader& operation) {
  if (connection.session == nullptr) return std::nullopt;
  const KeptAnswer* const kept = connection.session->Find(operation.sequence);
  if (kept == nullptr) return std::nullopt;
  if (static_cast<uint8_t>(kept->code) != operation.code) {
    AddResult(connection, operation, ResultCode::kInvalid,
              absl::StrCat("operation ", operation.sequence, " was another one before"));
    return Step::kDone;
  }
  // Not counted among the operations: these are the changes that were made.
  counters_.repeated.Add();
  // Nothing has been reserved on the connection on which the change was made.
  ActiveRequest& request = connection.request;
  request.reserved -= std::min(request.reserved, RepeatedBytes(*connection.session, operation));
  wire::ResultHeader header{};
  header.sequence = operation.sequence;
  header.version = kept->version;
  header.argument = kept->existed ? 1 : 0;
  std::string number;
  std::string_view value;
  if (kept->has_value) {
    value = connection.session->ValueOf(operation.sequence);
  } else if (kept->code == OpCode::kAdd) {
    number = absl::StrCat(kept->number);
    value = number;
  }
  if (value.size() > RoomForValue(connection, wire::ResultSize(0)) ||
      !request.writer->Add(header, value)) {
    return CloseMalformed(connection, absl::StrCat("the answer to operation ", operation.sequence,
                                                   ", which is repeated, has no room"));
  }
  return Step::kDone;
}

void Worker::KeepChange(Connection& connection, const wire::OperationHeader& operation,
                        const Change& change) {
  if (connection.session == nullptr || change.code != ResultCode::kOk) return;
  connection.session->Keep({.sequence = operation.sequence,
                            .version = change.version,
                            .number = change.number,
                            .code = static_cast<OpCode>(operation.code),
                            .existed = change.existed});
}

}  // namespace verbena::net
