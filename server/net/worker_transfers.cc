// Worker: large values, which the server READs from the client's memory into the slice, or into
// staging memory where the device does not let READs land in the slice.
//
// Of all this only the READs take long, and nobody waits for them but the connection whose value it
// is. What is to be done with the bytes (to hash them, and to copy them out of staging memory) is
// done a piece at a time, in turn for all connections, and before each piece the worker looks for
// other requests: what those wait is one piece, however large the values are and however many.
#include <algorithm>
#include <utility>

#include "common/base/clock.h"
#include "common/base/relaxed_copy.h"
#include "common/verbs/data_path.h"
#include "server/net/worker.h"

namespace verbena::net {

using wire::Operation;
using wire::ResultCode;

static_assert(kReadPiece <= kStagingPiece);

// Prepares the block and READs the value into it. The request goes on when that is done; meanwhile
// its receive buffer is held, and the connection's later requests wait.
Worker::Step Worker::StartTransfer(Connection& connection, const Operation& operation) {
  if (connection.reads_allowed == 0) {
    AddResult(connection, operation.header, ResultCode::kInvalid,
              "the connection was made without READs by the server (responder_resources = 0)");
    return Step::kDone;
  }
  if (connection.session != nullptr &&
      connection.session->ValueIsUnreadable(operation.header.sequence)) {
    AddResult(connection, operation.header, ResultCode::kInvalid,
              "the server was refused its READs of the value: the registered memory is not there "
              "any more (a file behind it was cut short, say), or, over the software device, the "
              "server's process may not read the client's (another user, "
              "kernel.yama.ptrace_scope); put the value from memory that is not registered");
    return Step::kDone;
  }
  ReadTransfer& transfer = connection.transfer;
  const Change prepared = handler_.Prepare(options_.index, operation, &transfer.pending);
  if (prepared.code != ResultCode::kOk) {
    AddChange(connection, operation.header, prepared);
    return Step::kDone;
  }
  transfer.operation = operation.header;
  transfer.remote_address = operation.reference->address;
  transfer.remote_key = operation.reference->rkey;
  transfer.size = operation.header.value_len;
  transfer.posted = 0;
  transfer.taken = 0;
  transfer.in_flight = 0;
  transfer.done = 0;
  transfer.reads.clear();
  transfer.bytes_in_flight = 0;
  if (transfer.size == 0) {
    const Change published = handler_.Publish(options_.index, std::move(transfer.pending));
    AddChange(connection, operation.header, published);
    return Step::kDone;
  }
  PostReads(connection);
  return Step::kWaits;
}

// Whether another READ is to be posted: as many are kept in flight as are allowed and as the
// connection's window has room for, leaving places for the answer and an unasked message. One READ
// at least always fits: nothing else of the connection is posted meanwhile but what the window of
// requests and the spare receives allow, and the ledger has places for those and for kReadsInFlight
// READs.
bool Worker::MayRead(const Connection& connection) const {
  const ReadTransfer& transfer = connection.transfer;
  return connection.state == ConnectionState::kOpen && transfer.posted < transfer.size &&
         transfer.in_flight < connection.reads_allowed &&
         connection.read_window.HasRoom(transfer.bytes_in_flight) &&
         (connection.ledger.free() > 2 || transfer.in_flight == 0);
}

// Posts all READs that may be, or stands in the line where pieces of staging memory are short.
void Worker::PostReads(Connection& connection) {
  const StagingPool& staging = connection.queues->staging;
  while (MayRead(connection)) {
    // A piece that is free is one for which nobody waits (ServeStaging).
    if (staging.used() && !staging.has_free()) {
      WaitForPiece(connection);
      return;
    }
    PostRead(connection);
  }
}

// Only if MayRead, and a piece is free where READs are staged.
void Worker::PostRead(Connection& connection) {
  ReadTransfer& transfer = connection.transfer;
  const ibv_sge sink = NextSink(connection);
  bool signal = true;
  BatchEntry& entry = NextEntry(connection);
  const uint16_t place = connection.ledger.Add(kNoBuffer, &signal);
  ++sends_due_;
  entry.piece = sink;
  const verbs::SlotRef ref = {connection.slot.slot | (uint32_t{place} << 16),
                              connection.slot.generation};
  entry.request.wr_id = WorkId(WorkKind::kRead, ref).bits();
  entry.request.opcode = IBV_WR_RDMA_READ;
  entry.request.send_flags = IBV_SEND_SIGNALED;
  entry.request.wr.rdma.remote_addr = transfer.remote_address + transfer.posted;
  entry.request.wr.rdma.rkey = transfer.remote_key;
  entry.inline_buffer = kNoBuffer;
  transfer.posted += sink.length;
  transfer.bytes_in_flight += sink.length;
  ++transfer.in_flight;
  counters_.reads_posted.Add();
}

// Where the next READ lands, and how much it brings: straight in the block, or in a piece.
ibv_sge Worker::NextSink(Connection& connection) {
  QueueSet& queues = *connection.queues;
  ReadTransfer& transfer = connection.transfer;
  const auto size = static_cast<uint32_t>(
      std::min(connection.read_window.piece(), transfer.size - transfer.posted));
  PostedRead& read = transfer.reads.emplace_back(PostedRead{
      .piece = kNoPiece, .size = size, .offset = transfer.posted, .posted = MonotonicNanos()});
  if (!queues.staging.used()) {
    return verbs::MakeSge(transfer.pending->value().data() + read.offset, size,
                          queues.adapter->slice().lkey());
  }
  read.piece = queues.staging.Acquire();
  counters_.staging_in_use.Add();
  return verbs::MakeSge(queues.staging.Piece(read.piece), size, queues.staging.lkey());
}

// A READ has succeeded: the oldest of those under way.
void Worker::OnReadDone(Connection& connection) {
  ReadTransfer& transfer = connection.transfer;
  const PostedRead& read = transfer.reads[transfer.done];
  transfer.bytes_in_flight -= read.size;
  connection.read_window.OnRead(read.size, MonotonicNanos() - read.posted);
  if (transfer.done++ == 0) piece_turns_.push_back(&connection);
}

// The connection ends with it, and the client repeats the request on its next one. Where it is the
// client's device that says no it would go on so until the client gives up: the session, which this
// connection has until it is fenced, counts how often.
void Worker::OnReadFailed(Connection& connection, ibv_wc_status status) {
  if (status != IBV_WC_REM_ACCESS_ERR && status != IBV_WC_REM_OP_ERR) return;
  if (connection.session == nullptr) return;
  connection.session->NoteRefusedRead(connection.transfer.operation.sequence);
}

// Works on one piece of a connection that has some, and lets the next one have its turn. Whether
// there was one.
bool Worker::TakeNextPiece() {
  if (piece_turns_.empty()) return false;
  Connection& connection = *piece_turns_.front();
  piece_turns_.pop_front();
  TakePiece(connection);
  FlushAll();
  return true;
}

// Takes what the oldest READ has brought. Another one is posted first, so that it is under way
// meanwhile, or two, where fewer are than the window allows; no more, so that what has come waits
// in the processor's cache.
void Worker::TakePiece(Connection& connection) {
  ReadTransfer& transfer = connection.transfer;
  const bool staged = connection.queues->staging.used();
  if (staged) {
    TakeStaged(connection);
  } else if (MayRead(connection)) {
    PostRead(connection);
    if (MayRead(connection)) PostRead(connection);
    FlushAll();
    if (connection.state != ConnectionState::kOpen) return;
  }
  const uint32_t size = transfer.reads.front().size;
  transfer.reads.erase(transfer.reads.begin());
  transfer.pending->Filled(size);
  transfer.taken += size;
  if (--transfer.done > 0) piece_turns_.push_back(&connection);
  if (transfer.taken == transfer.size) {
    counters_.bytes_read.Add(transfer.size);
    FinishTransfer(connection);
    ResumeWaiting(connection);
  } else if (staged && transfer.posted < transfer.size) {
    PostReads(connection);
  }
}

void Worker::FinishTransfer(Connection& connection) {
  ReadTransfer& transfer = connection.transfer;
  const Change published = handler_.Publish(options_.index, std::move(transfer.pending));
  AddChange(connection, transfer.operation, published);
  ContinueRequest(connection);
}

// What the oldest READ has brought goes into the block, where remote readers may be looking. The
// piece is free at once: a READ that has succeeded has been placed whole, and nothing of it comes
// later.
void Worker::TakeStaged(Connection& connection) {
  ReadTransfer& transfer = connection.transfer;
  StagingPool& staging = connection.queues->staging;
  PostedRead& read = transfer.reads.front();
  CopyToShared(transfer.pending->value().data() + read.offset, staging.Piece(read.piece),
               read.size);
  staging.Release(std::exchange(read.piece, kNoPiece));
  counters_.staging_in_use.Subtract();
  ServeStaging(*connection.queues);
}

void Worker::WaitForPiece(Connection& connection) {
  if (connection.transfer.waits_for_piece) return;
  connection.queues->staging.Wait(connection);
  counters_.waits_for_staging.Add();
}

// Gives the free pieces to those who wait: one to the first in the line, who then, if it can use
// more, goes to its end. So with n waiting, each has one of the next n pieces that come back,
// however large the others' values are. And pieces do come back: a transfer that holds some needs
// no others to give them back, since each is free once its READ is done (so nobody waits in a
// circle), and a READ that never is done ends its connection (TickConnection).
void Worker::ServeStaging(QueueSet& queues) {
  StagingPool& staging = queues.staging;
  while (staging.has_free() && staging.has_waiting()) {
    Connection& next = staging.NextWaiting();
    if (MayRead(next)) PostRead(next);
    if (MayRead(next)) WaitForPiece(next);
  }
}

// Gives back the pieces of a connection whose queue pair is destroyed, and not before. Until then
// READs that have failed, or whose end nobody has seen, may be under way in the adapter: what
// arrives for them would be written to the piece, which might belong to another client's value by
// then, and would become part of it. It is not enough that the connection is closed or its peer
// dead. In ERR, and with the READ's completion taken, an adapter is done with it; but some drivers
// keep the completions of a queue pair in ERR for themselves, and then only its destruction tells
// (ibv_destroy_qp returns when the adapter no longer knows the queue pair). It comes in any case,
// so it is what is waited for in every case.
void Worker::ReleaseStaged(Connection& connection) {
  bool any = false;
  for (PostedRead& read : connection.transfer.reads) {
    const uint32_t piece = std::exchange(read.piece, kNoPiece);
    if (piece == kNoPiece) continue;
    connection.queues->staging.Release(piece);
    counters_.staging_in_use.Subtract();
    any = true;
  }
  if (any) ServeStaging(*connection.queues);
}

}  // namespace verbena::net
