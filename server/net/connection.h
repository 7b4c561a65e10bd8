// One client's connection, as the acceptor and its worker see it.
//
// Life. The acceptor makes it and hands it to a worker (WorkerMail::kAdopt); that posts a receive
// for it (kAdopted), and only then the acceptor accepts. From then on the worker decides:
//
//   worker                                    acceptor
//   open                                      CM event or failed accept: kPeerLeft
//   closing: posts nothing more; kDisconnect -> disconnects, QP to ERR; kErrored ->
//   flushing: waits (briefly) for the flushed
//     requests and the last receive
//     (kLastReceive), empties the receive CQ;
//     forgets the QP's number; kDestroy    -> destroys QP and CM id; kGone ->
//   gives back buffers, credits, slot; deletes the connection
//
// Mail is taken in the order in which it was posted, and kGone is the acceptor's last word about a
// connection as kDestroy is the worker's, so pointers in mail are always good.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/verbs/cm.h"
#include "common/verbs/conn_param.h"
#include "common/verbs/queues.h"
#include "common/verbs/wr_id.h"
#include "common/wire/messages.h"
#include "server/net/counters.h"
#include "server/net/credits.h"
#include "server/net/handler.h"
#include "server/net/mailbox.h"
#include "server/net/message_memory.h"
#include "server/net/read_window.h"
#include "server/net/send_ledger.h"
#include "server/net/session.h"

namespace verbena::net {

class Worker;
struct Connection;
struct QueueSet;
struct SendQueue;

struct AcceptorMail {
  enum class Kind { kAdopted, kDisconnect, kDestroy, kQueuesDropped, kDrain, kStop };
  Kind kind;
  Connection* connection = nullptr;
  QueueSet* queues = nullptr;
};

struct WorkerMail {
  enum class Kind {
    kAdopt,          // a new connection
    kPeerLeft,       // the client has left, or the accept failed
    kDeviceRemoved,  // the connection's device is being removed
    kErrored,        // the QP is in ERR
    kLastReceive,    // it takes no more receives from the shared queue
    kSuperseded,     // its session's client has another connection
    kSessionReady,   // the session that its hello waits for is its own now
    kGone,           // QP and CM id are destroyed
    kAddQueues,      // of a device that has come: serve `queues`
    kDropQueues,     // of a device that goes and has no connections: tell `acceptor` when done
    kDrain,          // finish what has arrived, then close
    kCloseAll,       // close at once
    kStop,           // end the thread
  };
  Kind kind;
  Connection* connection = nullptr;
  QueueSet* queues = nullptr;
  Mailbox<AcceptorMail>* acceptor = nullptr;
};

enum class ConnectionState : uint8_t { kOpen, kClosing, kFlushing, kReleased };

// A request message in a receive buffer.
struct Arrived {
  uint32_t receive;  // index of the buffer
  uint32_t size;     // bytes
};

// The request that is being worked on.
struct ActiveRequest {
  bool active = false;
  Arrived arrived{};
  wire::RequestReader reader;
  std::optional<wire::ResponseWriter> writer;
  uint32_t buffer = kNoBuffer;  // the response's
  uint32_t left = 0;            // operations that have no result yet
  // Bytes of the answer that kept answers of operations still to come take beyond their headers:
  // what comes ahead of them must leave them room, since they cannot be had again.
  size_t reserved = 0;
  // In a session: bytes of the answer that the operations so far have not taken, and may take if
  // the request is repeated: a key that was not there may be, and be too large for anything but its
  // location. What is kept leaves them that, since it takes no less then.
  size_t owed = 0;
  uint64_t last_sequence = 0;  // in a session, of the operation before
};

inline constexpr uint32_t kNoPiece = UINT32_MAX;

// A READ of a part of a large value.
struct PostedRead {
  uint32_t piece;   // of staging memory, where READs are staged; else kNoPiece
  uint32_t size;    // bytes
  uint64_t offset;  // of its first byte in the value
  int64_t posted;   // CLOCK_MONOTONIC, ns
};

// A large value on its way from the client's memory into the slice.
struct ReadTransfer {
  std::unique_ptr<PendingChange> pending;
  wire::OperationHeader operation{};
  uint64_t remote_address = 0;
  uint32_t remote_key = 0;
  uint64_t size = 0;       // bytes
  uint64_t posted = 0;     // bytes
  uint64_t taken = 0;      // of these, bytes that are in the block and hashed
  uint32_t in_flight = 0;  // READs
  uint32_t done = 0;       // READs that are done and not taken; then it is in Worker::piece_turns_
  // READs under way or not taken, oldest first, which is the order in which they complete.
  std::vector<PostedRead> reads;
  uint64_t bytes_in_flight = 0;  // of those under way
  bool waits_for_piece = false;  // stands in the line for a piece (StagingPool)
};

// An item that is kept for the client, until a tick of the worker.
struct HeldPin {
  uint64_t id;
  uint32_t until;
};

struct Connection {
  explicit Connection(uint32_t send_depth) : ledger(send_depth) {}

  // Constant once it is handed over.
  uint64_t id = 0;
  std::string peer;
  uint64_t session_id = 0;
  QueueSet* queues = nullptr;
  SendQueue* send_queue = nullptr;
  Worker* worker = nullptr;
  Mailbox<AcceptorMail>* acceptor = nullptr;
  uint32_t reads_allowed = 0;  // READs that may be in flight
  uint32_t max_inline = 0;     // bytes
  ibv_qp* raw_qp = nullptr;
  uint32_t qp_number = 0;

  // The acceptor's. The QP is destroyed before the id.
  verbs::CmId cm_id;
  verbs::QueuePair qp;
  verbs::ConnectOptions parameters;
  bool accepted = false;  // or refused
  bool disconnecting = false;
  bool ready = false;  // accepted, so that the QP is in RTS; the worker's to read once it is in ERR

  // The worker's.
  verbs::SlotRef slot;
  ConnectionState state = ConnectionState::kOpen;
  bool greeted = false;
  uint64_t hello_sequence = 0;
  // Of the client's session, while this connection has it; nullptr if it keeps none (SessionTable).
  Session* session = nullptr;
  uint32_t receive_size = wire::kMinMessage;  // of the client's buffers
  uint32_t spare_receives = 0;                // for messages that it has not asked for
  ReceiveLane own_receives{this};
  ReceiveLane* receives = nullptr;  // where it receives: its own lane or that of all
  ConnectionCredits credits;
  SendLedger ledger;
  ActiveRequest request;
  ReadTransfer transfer;
  ReadWindow read_window;
  std::vector<HeldPin> pins;
  std::string info;              // of which the client may ask for the rest
  std::vector<Arrived> waiting;  // from waiting_head on: arrived behind `request`
  size_t waiting_head = 0;
  bool starved = false;       // `waiting` waits for a response buffer or a place in the send queue
  bool last_receive = false;  // the QP is in ERR and takes no more shared receives

  // Requests to be posted with the next doorbell: indices into the worker's batch.
  uint32_t batch_first = kNoBuffer;
  uint32_t batch_last = kNoBuffer;
  uint32_t batch_count = 0;

  // Ticks of the worker (seconds).
  uint32_t heard = 0;
  uint32_t probed = 0;
  uint32_t progressed = 0;  // when a completion last came or none was due
  uint32_t unanswered_probes = 0;
  int64_t flush_deadline = 0;  // CLOCK_MONOTONIC, ns
  // Set when it closes, before the acceptor hears of that.
  CloseReason reason = CloseReason::kPeerLeft;
  std::string detail;

  bool has_waiting() const { return waiting_head < waiting.size(); }
};

}  // namespace verbena::net
