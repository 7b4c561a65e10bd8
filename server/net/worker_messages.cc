// Worker: completions, and messages in and out.
#include <algorithm>
#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/verbs/data_path.h"
#include "common/verbs/errors.h"
#include "server/net/worker.h"

namespace verbena::net {
namespace {

// A send's wr_id names the connection's slot and the place in its ledger.
constexpr uint32_t kSlotBits = 16;
constexpr uint32_t kSlotMask = (1U << kSlotBits) - 1;
// Operations of a request that are announced to the handler.
constexpr size_t kAnnounced = 32;

}  // namespace

Connection* Worker::FindByQp(QueueSet& queues, uint32_t qp_number) {
  if (queues.last != nullptr && queues.last->qp_number == qp_number) return queues.last;
  const auto found = queues.by_qp.find(qp_number);
  if (found == queues.by_qp.end()) return nullptr;
  queues.last = found->second;
  return found->second;
}

void Worker::OnReceive(QueueSet& queues, const ibv_wc& completion) {
  const WorkId id(completion.wr_id);
  const std::optional<uint32_t> found = queues.receives->Find(id.ref);
  // Of a queue that is gone, on devices that keep the completions of a destroyed queue pair.
  if (id.kind != WorkKind::kReceive || !found.has_value()) return;
  const uint32_t receive = *found;
  Connection* const connection = FindByQp(queues, completion.qp_num);
  if (connection == nullptr || connection->state != ConnectionState::kOpen) {
    queues.receives->Return(receive);
    return;
  }
  if (completion.status != IBV_WC_SUCCESS) {
    // A queue pair in ERR flushes the receives of its own; the client may just have left.
    const bool flushed = completion.status == IBV_WC_WR_FLUSH_ERR;
    Close(*connection, flushed ? CloseReason::kPeerLeft : CloseReason::kTransportError,
          absl::StrCat("a receive failed: ", verbs::WcStatusText(completion.status)));
    queues.receives->Return(receive);
    return;
  }
  // A peer may also write to the region with an immediate, which takes a receive too and says how
  // much it has written.
  if (completion.opcode != IBV_WC_RECV || completion.byte_len > kMaxMessage) {
    queues.receives->Return(receive);
    CloseMalformed(*connection, "it is no SEND");
    return;
  }
  connection->heard = tick_;
  connection->unanswered_probes = 0;
  counters_.bytes_received.Add(completion.byte_len);
  if (!connection->credits.OnRequest()) {
    queues.receives->Return(receive);
    Close(*connection, CloseReason::kOverGrant,
          absl::StrCat("it sent more than the ", connection->credits.grant(),
                       " requests that it may have unanswered"));
    return;
  }
  arrivals_.push_back({connection, {receive, completion.byte_len}});
}

void Worker::OnRequest(Connection& connection, Arrived arrived) {
  if (connection.state != ConnectionState::kOpen) {
    connection.queues->receives->Return(arrived.receive);
  } else if (connection.request.active || connection.has_waiting() || !HasRoom(connection)) {
    connection.waiting.push_back(arrived);
    ResumeWaiting(connection);
  } else {
    StartRequest(connection, arrived);
  }
}

// Whether a request that is begun now can be answered: a response buffer, and a place in the send
// queue beside one that is left for an unasked message.
bool Worker::HasRoom(const Connection& connection) const {
  return connection.ledger.free() > 1 && !connection.queues->responses.empty();
}

Worker::Step Worker::CloseMalformed(Connection& connection, absl::string_view what) {
  counters_.malformed.Add();
  Close(connection, CloseReason::kMalformed, absl::StrCat("malformed request: ", what));
  return Step::kClosed;
}

// Opens a request and works on it as far as possible. Only if HasRoom.
void Worker::StartRequest(Connection& connection, Arrived arrived) {
  QueueSet& queues = *connection.queues;
  ActiveRequest& request = connection.request;
  request.active = true;
  request.arrived = arrived;
  request.buffer = *queues.responses.Acquire();
  absl::StatusOr<wire::RequestReader> reader =
      wire::RequestReader::Open(queues.receives->Message(arrived.receive, arrived.size));
  if (!reader.ok()) {
    CloseMalformed(connection, reader.status().message());
    return;
  }
  request.reader = *reader;
  request.left = reader->header().operations;
  const size_t limit = std::min(connection.receive_size, kMaxMessage);
  const size_t least = sizeof(wire::ResponseHeader) + request.left * sizeof(wire::ResultHeader);
  if (least > limit) {
    CloseMalformed(connection,
                   absl::StrCat("the answer to ", request.left, " operations takes at least ",
                                least, " bytes, and the client receives ", limit));
    return;
  }
  request.writer.emplace(queues.responses.Buffer(request.buffer).first(limit));
  request.reserved = 0;
  request.owed = 0;
  request.last_sequence = 0;
  if (connection.session != nullptr) {
    if (const absl::Status opened = OpenInSession(connection); !opened.ok()) {
      CloseMalformed(connection, opened.message());
      return;
    }
  }
  if (request.left > 1) AnnounceOperations(request);
  ContinueRequest(connection);
}

// The first of them: more would push each other out of the processor's first cache.
void Worker::AnnounceOperations(const ActiveRequest& request) {
  std::array<std::string_view, kAnnounced> keys;
  const size_t count = request.reader.KeysAhead(keys);
  handler_.Expect({keys.data(), count});
}

void Worker::ContinueRequest(Connection& connection) {
  ActiveRequest& request = connection.request;
  while (true) {
    absl::StatusOr<std::optional<wire::Operation>> operation = request.reader.Next();
    if (!operation.ok()) {
      CloseMalformed(connection, operation.status().message());
      return;
    }
    if (!operation->has_value()) break;
    --request.left;
    if (RunOperation(connection, **operation) != Step::kDone) return;
  }
  FinishRequest(connection);
}

void Worker::FinishRequest(Connection& connection) {
  ActiveRequest& request = connection.request;
  const uint32_t grant = connection.credits.OnResponse(
      connection.queues->credits, static_cast<uint32_t>(request.reader.header().wanted));
  // Receives are posted (FlushAll) before the answer is, so that the client's next requests find
  // them.
  PostWhatIsGranted(connection);
  connection.queues->receives->Return(request.arrived.receive);
  request.writer->Finish(static_cast<uint16_t>(grant));
  request.active = false;
  const uint32_t buffer = std::exchange(request.buffer, kNoBuffer);
  QueueSend(connection, buffer, request.writer->size(), /*signal=*/draining_);
  if (draining_) TryFinish(connection);
}

// Works on the requests that have arrived behind another one, as far as there is room.
void Worker::ResumeWaiting(Connection& connection) {
  while (connection.state == ConnectionState::kOpen && !connection.request.active &&
         connection.has_waiting()) {
    if (!HasRoom(connection)) {
      if (!connection.starved) {
        connection.starved = true;
        starved_.push_back(&connection);
        counters_.waits_for_room.Add();
      }
      return;
    }
    const Arrived next = connection.waiting[connection.waiting_head++];
    if (!connection.has_waiting()) {
      connection.waiting.clear();
      connection.waiting_head = 0;
    }
    StartRequest(connection, next);
  }
}

void Worker::ResumeStarved() {
  std::vector<Connection*> starved;
  starved.swap(starved_);
  for (Connection* connection : starved) {
    connection->starved = false;
    ResumeWaiting(*connection);
  }
}

void Worker::OnSend(QueueSet& queues, const ibv_wc& completion) {
  const WorkId id(completion.wr_id);
  Connection** found = connections_.Find({id.ref.slot & kSlotMask, id.ref.generation});
  if (found == nullptr || (*found)->queues != &queues) return;  // of a connection that is gone
  Connection& connection = **found;
  const auto place = static_cast<uint16_t>(id.ref.slot >> kSlotBits);
  const uint32_t due = connection.ledger.signalled();
  if (!connection.ledger.Retire(place,
                                [&](uint32_t buffer) { queues.responses.Release(buffer); })) {
    return;
  }
  sends_due_ -= due - connection.ledger.signalled();
  connection.progressed = tick_;
  const bool read = id.kind == WorkKind::kRead;
  if (read && connection.transfer.in_flight > 0) --connection.transfer.in_flight;
  if (completion.status != IBV_WC_SUCCESS) {
    if (read) OnReadFailed(connection, completion.status);
    Close(connection, read ? CloseReason::kReadFailed : CloseReason::kTransportError,
          absl::StrCat(read ? "a READ of its value failed: " : "a send failed: ",
                       verbs::WcStatusText(completion.status)));
    return;
  }
  if (connection.state != ConnectionState::kOpen) return;
  if (read) OnReadDone(connection);
  if (draining_) TryFinish(connection);
}

// A message that answers nothing: a probe, or the last one before the end.
void Worker::SendUnasked(Connection& connection, bool signal) {
  const std::optional<uint32_t> buffer = connection.queues->responses.Acquire();
  if (!buffer.has_value()) return;
  if (connection.ledger.free() == 0) {
    connection.queues->responses.Release(*buffer);
    return;
  }
  wire::ResponseWriter writer(connection.queues->responses.Buffer(*buffer));
  writer.Finish(static_cast<uint16_t>(connection.credits.grant()));
  QueueSend(connection, *buffer, writer.size(), signal);
}

// A free place in the batch, linked behind the connection's others; to be noted in its ledger next,
// which must have room.
Worker::BatchEntry& Worker::NextEntry(Connection& connection) {
  if (batch_used_ == kBatch) FlushAll();
  const uint32_t index = batch_used_++;
  if (connection.batch_first == kNoBuffer) {
    connection.batch_first = index;
    dirty_.push_back(&connection);
  } else {
    batch_[connection.batch_last].request.next = &batch_[index].request;
  }
  connection.batch_last = index;
  ++connection.batch_count;
  batch_[index].request.next = nullptr;
  return batch_[index];
}

void Worker::QueueSend(Connection& connection, uint32_t buffer, size_t size, bool signal) {
  ResponsePool& responses = connection.queues->responses;
  const bool small = size <= connection.max_inline;
  BatchEntry& entry = NextEntry(connection);
  const uint16_t place = connection.ledger.Add(small ? kNoBuffer : buffer, &signal);
  if (signal) ++sends_due_;
  entry.piece = verbs::MakeSge(responses.Buffer(buffer).data(), static_cast<uint32_t>(size),
                               responses.lkey());
  const verbs::SlotRef ref = {connection.slot.slot | (uint32_t{place} << kSlotBits),
                              connection.slot.generation};
  const unsigned flags =
      (signal ? unsigned{IBV_SEND_SIGNALED} : 0u) | (small ? unsigned{IBV_SEND_INLINE} : 0u);
  entry.request.wr_id = WorkId(WorkKind::kSend, ref).bits();
  entry.request.opcode = IBV_WR_SEND;
  entry.request.send_flags = flags;
  entry.inline_buffer = small ? buffer : kNoBuffer;
  counters_.sends_posted.Add();
  counters_.bytes_sent.Add(size);
}

// Posts the receives that were given back, then everything in the batch: one doorbell for each
// connection.
void Worker::FlushAll() {
  for (QueueSet* queues : queue_sets_) {
    const uint32_t posted = queues->receives->Flush(
        [this](ReceiveLane& lane, const absl::Status& status) { OnUnposted(lane, status); });
    if (posted > 0) counters_.receives_posted.Add(posted);
  }
  for (size_t i = 0; i < dirty_.size(); ++i) FlushConnection(*dirty_[i]);
  dirty_.clear();
  batch_used_ = 0;
}

// A shared queue gets its receives with a later try (Sleep). A connection whose own queue lacks
// some could not be promised what it has been granted.
void Worker::OnUnposted(ReceiveLane& lane, const absl::Status& status) {
  if (lane.connection() != nullptr) {
    Close(*lane.connection(), CloseReason::kTransportError,
          absl::StrCat("cannot post receives: ", status.message()));
  } else if (log_.Allow()) {
    LogError("worker ", options_.index, ": cannot post receives: ", status.message());
  }
}

void Worker::FlushConnection(Connection& connection) {
  const uint32_t first = std::exchange(connection.batch_first, kNoBuffer);
  const uint32_t count = std::exchange(connection.batch_count, 0);
  if (first == kNoBuffer) return;
  const auto release = [&](uint32_t buffer) { connection.queues->responses.Release(buffer); };
  uint32_t unposted = count;
  int error = 0;
  if (connection.state == ConnectionState::kOpen) {
    counters_.doorbells.Add();
    ibv_send_wr* bad = nullptr;
    error = verbs::PostSend(connection.raw_qp, &batch_[first].request, &bad);
    unposted = 0;
    for (const ibv_send_wr* at = error != 0 ? bad : nullptr; at != nullptr; at = at->next) {
      ++unposted;
    }
  }
  for (ibv_send_wr* at = &batch_[first].request; at != nullptr; at = at->next) {
    // A request is the first member of its entry.
    const uint32_t buffer = reinterpret_cast<BatchEntry*>(at)->inline_buffer;
    if (buffer != kNoBuffer) release(buffer);
  }
  if (unposted > 0) connection.ledger.Rollback(unposted, release);
  if (error != 0) {
    Close(connection, CloseReason::kTransportError,
          absl::StrCat("cannot post a send: ",
                       verbs::ErrnoStatus(error, "ibv_post_send", "").message()));
  }
}

void Worker::ReleaseBuffer(Connection& connection, uint32_t buffer) {
  connection.queues->responses.Release(buffer);
}

}  // namespace verbena::net
