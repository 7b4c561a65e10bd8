// A worker: one thread that answers the requests of its connections.
//
// It polls its queues, and when nothing has come for a while it arms them and sleeps until there is
// a completion or mail. While it has connections it wakes once a second to look after silent ones.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/unique_fd.h"
#include "common/verbs/wr_id.h"
#include "server/net/adapter.h"
#include "server/net/connection.h"
#include "server/net/counters.h"
#include "server/net/handler.h"
#include "server/net/log_limiter.h"
#include "server/net/mailbox.h"
#include "server/net/session_table.h"

namespace verbena::net {

struct WorkerOptions {
  int index = 0;
  // How long to poll without finding anything before sleeping.
  int64_t poll_ns = 0;
  // A connection from which nothing has come for so long is sent a probe.
  uint32_t silence_ticks = 10;
  uint32_t max_connections = 0;
};

class Worker {
 public:
  // `queues`: one set for each adapter; they must outlive the worker or be dropped (kDropQueues).
  // Handler and sessions must outlive it.
  Worker(const WorkerOptions& options, RequestHandler& handler, SessionTable& sessions,
         const Slice& slice, std::vector<QueueSet*> queues);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  absl::Status Start();
  // Ends the thread once it has taken all mail posted before. Idempotent.
  void Stop();

  // Thread-safe.
  void Post(WorkerMail mail) { mailbox_.Post(mail); }
  const WorkerCounters& counters() const { return counters_; }
  int index() const { return options_.index; }

 private:
  static constexpr uint32_t kBatch = 64;      // requests posted with one round of doorbells
  static constexpr size_t kCompletions = 16;  // taken at once
  static constexpr uint32_t kMaxProbes = kSpareReceives;

  // A request for the device and what goes with it. Made once; what never changes is never set
  // again.
  struct BatchEntry {
    ibv_send_wr request;
    ibv_sge piece;
    uint32_t inline_buffer;  // free once it is posted
  };
  // A request that has been counted and not been looked at.
  struct Arrival {
    Connection* connection;
    Arrived arrived;
  };
  // Whether an operation is done, waits for a READ, or has ended the connection.
  enum class Step { kDone, kWaits, kClosed };

  // worker.cc: the loop.
  void Run();
  bool PollAll(bool everything);
  bool PollReceives(QueueSet& queues);
  bool PollSends(QueueSet& queues);
  bool KeepSpinning();
  void Sleep();
  bool ArmAll();
  void TakeEvents(std::span<const epoll_event> ready);
  bool Unposted() const;
  int SleepMillis(int64_t now) const;
  void TakeMail();
  void Tick(int64_t now);
  void TickConnection(Connection& connection);
  void AddQueues(QueueSet* queues);
  void DropQueues(QueueSet* queues);

  // worker_connections.cc: from adoption to the end.
  void PostWhatIsGranted(Connection& connection);
  void Adopt(Connection* connection);
  void Close(Connection& connection, CloseReason reason, std::string_view detail);
  void Flushed(Connection& connection);
  static bool AwaitsLastReceive(const Connection& connection);
  void CheckFlushing();
  void Release(Connection& connection);
  void Forget(std::unique_ptr<Connection> connection);
  void DrainAll();
  void TryFinish(Connection& connection);

  // worker_messages.cc: completions and messages.
  Connection* FindByQp(QueueSet& queues, uint32_t qp_number);
  void OnReceive(QueueSet& queues, const ibv_wc& completion);
  void OnRequest(Connection& connection, Arrived arrived);
  void OnSend(QueueSet& queues, const ibv_wc& completion);
  bool HasRoom(const Connection& connection) const;
  Step CloseMalformed(Connection& connection, absl::string_view what);
  void StartRequest(Connection& connection, Arrived arrived);
  void AnnounceOperations(const ActiveRequest& request);
  void ContinueRequest(Connection& connection);
  void FinishRequest(Connection& connection);
  void ResumeWaiting(Connection& connection);
  void ResumeStarved();
  void SendUnasked(Connection& connection, bool signal);
  void QueueSend(Connection& connection, uint32_t buffer, size_t size, bool signal);
  BatchEntry& NextEntry(Connection& connection);
  void FlushAll();
  void OnUnposted(ReceiveLane& lane, const absl::Status& status);
  void FlushConnection(Connection& connection);
  void ReleaseBuffer(Connection& connection, uint32_t buffer);

  // worker_operations.cc: what the operations do.
  Step RunOperation(Connection& connection, const wire::Operation& operation);
  void RunGet(Connection& connection, const wire::Operation& operation);
  Step RunChange(Connection& connection, const wire::Operation& operation);
  void RunAdd(Connection& connection, const wire::Operation& operation);
  void RunTake(Connection& connection, const wire::Operation& operation);
  void RunTtl(Connection& connection, const wire::Operation& operation);
  void RunScan(Connection& connection, const wire::Operation& operation);
  void RunInfo(Connection& connection, const wire::OperationHeader& operation);
  void AddChange(Connection& connection, const wire::OperationHeader& operation,
                 const Change& change);
  void AddFound(Connection& connection, const wire::OperationHeader& operation, const Lookup& found,
                uint64_t argument);
  void AddResult(Connection& connection, const wire::OperationHeader& operation,
                 wire::ResultCode code, std::string_view value, uint64_t version = 0,
                 uint64_t argument = 0);
  size_t RoomForValue(const Connection& connection, size_t reserve_each) const;
  // After an operation whose result takes up to kReservedResult bytes another time, and that has
  // begun when the answer had `size` bytes.
  void OweRest(Connection& connection, size_t size) const;
  uint8_t* PlaceForValue(const Connection& connection) const;

  // worker_sessions.cc: hello, and changes that are repeated.
  Step RunHello(Connection& connection, const wire::Operation& operation);
  void OnSessionReady(Connection& connection);
  void Welcome(Connection& connection);
  absl::Status OpenInSession(Connection& connection);
  static size_t RepeatedBytes(const Session& session, const wire::OperationHeader& operation);
  std::optional<Step> AnswerRepeated(Connection& connection,
                                     const wire::OperationHeader& operation);
  static void KeepChange(Connection& connection, const wire::OperationHeader& operation,
                         const Change& change);

  // worker_transfers.cc: large values, which the server READs.
  Step StartTransfer(Connection& connection, const wire::Operation& operation);
  bool MayRead(const Connection& connection) const;
  void PostReads(Connection& connection);
  void PostRead(Connection& connection);
  ibv_sge NextSink(Connection& connection);
  void OnReadFailed(Connection& connection, ibv_wc_status status);
  void OnReadDone(Connection& connection);
  bool TakeNextPiece();
  void TakePiece(Connection& connection);
  void FinishTransfer(Connection& connection);
  void TakeStaged(Connection& connection);
  void WaitForPiece(Connection& connection);
  void ServeStaging(QueueSet& queues);
  void ReleaseStaged(Connection& connection);

  // worker_pins.cc: items that are kept for clients that READ them.
  bool MayPin(const Connection& connection) const;
  void HoldPin(Connection& connection, const Lookup& located);
  void RunRelease(Connection& connection, const wire::OperationHeader& operation);
  void DropPin(const HeldPin& pin);
  void ExpirePins(Connection& connection);
  void DropPins(Connection& connection);

  const WorkerOptions options_;
  RequestHandler& handler_;
  SessionTable& sessions_;
  const Slice slice_;
  std::vector<QueueSet*> queue_sets_;
  Mailbox<WorkerMail> mailbox_;
  UniqueFd epoll_;
  std::thread thread_;
  WorkerCounters counters_;

  // The thread's own.
  bool stop_ = false;
  bool draining_ = false;
  verbs::SlotTable<Connection*> connections_;
  std::vector<Arrival> arrivals_;
  std::vector<Connection*> dirty_;     // have requests in the batch
  std::vector<Connection*> starved_;   // wait for buffers or places
  std::vector<Connection*> flushing_;  // wait for their flushed requests
  // Have READs that are done: a piece of each is taken in turn.
  std::deque<Connection*> piece_turns_;
  std::array<BatchEntry, kBatch> batch_{};
  uint32_t batch_used_ = 0;
  uint64_t sends_due_ = 0;  // completions of signalled sends that are to come
  uint32_t rounds_ = 0;
  uint32_t empty_polls_ = 0;
  int64_t idle_since_ = 0;
  uint32_t tick_ = 0;
  int64_t last_tick_ = 0;
  LogLimiter log_;
};

}  // namespace verbena::net
