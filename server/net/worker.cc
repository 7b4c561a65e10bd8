#include "server/net/worker.h"

#include <pthread.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/macros.h"
#include "common/base/threads.h"
#include "common/verbs/data_path.h"
#include "common/verbs/errors.h"
#include "server/net/epoll.h"

namespace verbena::net {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
// Empty polls without a pause between them: while an answer to an answer may come.
constexpr uint32_t kEagerPolls = 256;
// Empty polls between two looks at the clock.
constexpr uint32_t kSpinsPerClock = 64;
// Rounds of polling that found something between two looks at the clock.
constexpr uint32_t kRoundsPerClock = 1024;
// Milliseconds until receives that could not be posted are tried again.
constexpr int kRepostMillis = 5;
// Send completions only give back places and buffers, so they are taken less often while requests
// keep coming.
constexpr uint32_t kRoundsPerSendPoll = 8;

}  // namespace

const char* CloseReasonName(CloseReason reason) {
  switch (reason) {
    case CloseReason::kPeerLeft:
      return "peer_left";
    case CloseReason::kTransportError:
      return "transport_error";
    case CloseReason::kReadFailed:
      return "read_failed";
    case CloseReason::kMalformed:
      return "malformed";
    case CloseReason::kOverGrant:
      return "over_grant";
    case CloseReason::kStalled:
      return "stalled";
    case CloseReason::kDeviceRemoved:
      return "device_removed";
    case CloseReason::kStopping:
      return "stopping";
    case CloseReason::kSuperseded:
      return "superseded";
  }
  return "unknown";
}

Worker::Worker(const WorkerOptions& options, RequestHandler& handler, SessionTable& sessions,
               const Slice& slice, std::vector<QueueSet*> queues)
    : options_(options),
      handler_(handler),
      sessions_(sessions),
      slice_(slice),
      queue_sets_(std::move(queues)),
      connections_(options.max_connections) {
  size_t receives = 0;
  for (const QueueSet* set : queue_sets_) receives += set->receives->depth();
  arrivals_.reserve(receives);
  for (BatchEntry& entry : batch_) {
    entry.request.sg_list = &entry.piece;
    entry.request.num_sge = 1;
  }
}

Worker::~Worker() { Stop(); }

absl::Status Worker::Start() {
  epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.valid() || !mailbox_.valid()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "cannot make a worker's file descriptors: ", std::strerror(errno), " (see `ulimit -n`)"));
  }
  VERBENA_RETURN_IF_ERROR(WatchFor(epoll_.get(), mailbox_.fd(), nullptr));
  for (QueueSet* queues : queue_sets_) {
    VERBENA_RETURN_IF_ERROR(WatchFor(epoll_.get(), queues->channel.fd(), queues));
  }
  VERBENA_ASSIGN_OR_RETURN(thread_,
                           MakeThread(absl::StrCat("worker ", options_.index), [this] { Run(); }));
  pthread_setname_np(thread_.native_handle(), absl::StrCat("verbena-w", options_.index).c_str());
  return absl::OkStatus();
}

void Worker::Stop() {
  if (!thread_.joinable()) return;
  Post({WorkerMail::Kind::kStop});
  thread_.join();
}

void Worker::Run() {
  last_tick_ = MonotonicNanos();
  while (!stop_) {
    bool found = false;
    if (mailbox_.pending()) {
      TakeMail();
      found = true;
    }
    found |= PollAll(empty_polls_ % kSpinsPerClock == kSpinsPerClock - 1);
    if (!piece_turns_.empty()) found |= TakeNextPiece();
    if (!flushing_.empty()) CheckFlushing();
    if (found) {
      empty_polls_ = 0;
      idle_since_ = 0;
      if (++rounds_ % kRoundsPerClock == 0) {
        if (const int64_t now = MonotonicNanos(); now - last_tick_ >= kSecond) Tick(now);
      }
      continue;
    }
    if (!KeepSpinning()) Sleep();
  }
}

// One round over the queues; whether there was anything. Sends are looked at if completions of them
// are due, and always if `everything`: those that fail complete unasked.
bool Worker::PollAll(bool everything) {
  bool received = false;
  for (QueueSet* queues : queue_sets_) received |= PollReceives(*queues);
  bool found = received;
  if (everything || !starved_.empty() ||
      (sends_due_ > 0 && (!received || rounds_ % kRoundsPerSendPoll == 0))) {
    for (QueueSet* queues : queue_sets_) found |= PollSends(*queues);
    if (!starved_.empty()) ResumeStarved();
  }
  if (found) FlushAll();
  return found;
}

// Takes everything that has arrived before working on any of it, so that a client's requests are
// counted before it can have seen an answer to one of them.
bool Worker::PollReceives(QueueSet& queues) {
  std::array<ibv_wc, kCompletions> completions;
  int count = 0;
  bool found = false;
  do {
    count = verbs::Poll(queues.receive_cq.cq.get(), completions);
    found |= count > 0;
    for (int i = 0; i < count; ++i) OnReceive(queues, completions[static_cast<size_t>(i)]);
  } while (count == static_cast<int>(kCompletions));
  if (count < 0 && log_.Allow()) {
    LogError("worker ", options_.index, ": the receive completion queue failed");
  }
  if (arrivals_.empty()) return found;
  counters_.completions.Add(arrivals_.size());
  counters_.requests.Add(arrivals_.size());
  for (const Arrival& arrival : arrivals_) OnRequest(*arrival.connection, arrival.arrived);
  arrivals_.clear();
  return true;
}

bool Worker::PollSends(QueueSet& queues) {
  bool found = false;
  std::array<ibv_wc, kCompletions> completions;
  for (SendQueue* queue : queues.polled) {
    const int count = verbs::Poll(queue->queue.cq.get(), completions);
    if (count <= 0) {
      if (count < 0 && log_.Allow()) {
        LogError("worker ", options_.index, ": a send completion queue failed");
      }
      continue;
    }
    found = true;
    counters_.completions.Add(static_cast<uint64_t>(count));
    for (int i = 0; i < count; ++i) OnSend(queues, completions[static_cast<size_t>(i)]);
  }
  return found;
}

// After an empty poll: whether to poll again rather than sleep.
bool Worker::KeepSpinning() {
  if (options_.poll_ns == 0) return false;
  if (++empty_polls_ % kSpinsPerClock != 0) {
    if (empty_polls_ > kEagerPolls) CpuRelax();
    return true;
  }
  const int64_t now = MonotonicNanos();
  if (idle_since_ == 0) idle_since_ = now;
  return now - idle_since_ < options_.poll_ns;
}

void Worker::Sleep() {
  if (connections_.used() == 0) handler_.ReturnSpare(options_.index);
  // Armed first, then polled once more, so that nothing can come unnoticed in between.
  if (!ArmAll()) return;
  if (PollAll(/*everything=*/true)) return;
  counters_.sleeps.Add();
  std::array<epoll_event, 8> events;
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                               SleepMillis(MonotonicNanos()));
  if (count > 0) TakeEvents({events.data(), static_cast<size_t>(count)});
  if (Unposted()) FlushAll();
  empty_polls_ = 0;
  idle_since_ = 0;
  if (const int64_t now = MonotonicNanos(); now - last_tick_ >= kSecond) Tick(now);
}

bool Worker::ArmAll() {
  const auto arm = [&](ArmedQueue& queue) {
    if (queue.armed) return true;
    const absl::Status status = queue.cq.Arm();
    queue.armed = status.ok();
    if (!status.ok() && log_.Allow()) {
      LogError("worker ", options_.index, ": cannot ask for completion events: ", status.message());
    }
    return status.ok();
  };
  bool all = true;
  for (QueueSet* queues : queue_sets_) {
    all &= arm(queues->receive_cq);
    for (SendQueue* queue : queues->polled) all &= arm(queue->queue);
  }
  return all;
}

// One event for each channel that has some: mostly there is just one, and the others end the next
// sleep.
void Worker::TakeEvents(std::span<const epoll_event> ready) {
  for (const epoll_event& each : ready) {
    auto* const queues = static_cast<QueueSet*>(each.data.ptr);
    if (queues == nullptr) continue;  // the mailbox
    absl::StatusOr<std::optional<verbs::CqEvent>> event = queues->channel.TryGetEvent();
    if (event.ok() && event->has_value()) {
      static_cast<ArmedQueue*>((*event)->context)->armed = false;
    }
  }
}

// Whether receives could not be posted.
bool Worker::Unposted() const {
  return std::any_of(queue_sets_.begin(), queue_sets_.end(),
                     [](const QueueSet* queues) { return queues->receives->unposted(); });
}

// Until the next thing that has a time: receives to be posted again, a flush that takes too long,
// or the tick.
int Worker::SleepMillis(int64_t now) const {
  if (Unposted()) return kRepostMillis;
  int64_t until = INT64_MAX;
  if (connections_.used() > 0) until = last_tick_ + kSecond;
  for (const Connection* connection : flushing_) {
    until = std::min(until, connection->flush_deadline);
  }
  if (until == INT64_MAX) return -1;
  return static_cast<int>(std::max<int64_t>(0, (until - now + 999'999) / 1'000'000));
}

void Worker::TakeMail() {
  for (const WorkerMail& mail : mailbox_.Take()) {
    switch (mail.kind) {
      case WorkerMail::Kind::kAdopt:
        Adopt(mail.connection);
        break;
      case WorkerMail::Kind::kPeerLeft:
        Close(*mail.connection, CloseReason::kPeerLeft, "the client has left");
        break;
      case WorkerMail::Kind::kDeviceRemoved:
        Close(*mail.connection, CloseReason::kDeviceRemoved, "its device has been removed");
        break;
      case WorkerMail::Kind::kAddQueues:
        AddQueues(mail.queues);
        break;
      case WorkerMail::Kind::kDropQueues:
        DropQueues(mail.queues);
        mail.acceptor->Post({.kind = AcceptorMail::Kind::kQueuesDropped, .queues = mail.queues});
        break;
      case WorkerMail::Kind::kErrored:
        Flushed(*mail.connection);
        break;
      case WorkerMail::Kind::kLastReceive:
        mail.connection->last_receive = true;
        mail.connection->queues->last_receive = LastReceive::kTold;
        break;
      case WorkerMail::Kind::kSuperseded:
        Close(*mail.connection, CloseReason::kSuperseded, "its client has another connection");
        break;
      case WorkerMail::Kind::kSessionReady:
        OnSessionReady(*mail.connection);
        break;
      case WorkerMail::Kind::kGone:
        Forget(std::unique_ptr<Connection>(mail.connection));
        break;
      case WorkerMail::Kind::kDrain:
        draining_ = true;
        DrainAll();
        break;
      case WorkerMail::Kind::kCloseAll:
        connections_.ForEach([this](verbs::SlotRef, Connection* connection) {
          Close(*connection, CloseReason::kStopping, "the server stops");
        });
        break;
      case WorkerMail::Kind::kStop:
        stop_ = true;
        break;
    }
  }
  FlushAll();
}

void Worker::AddQueues(QueueSet* queues) {
  queue_sets_.push_back(queues);
  arrivals_.reserve(arrivals_.capacity() + queues->receives->depth());
  if (const absl::Status status = WatchFor(epoll_.get(), queues->channel.fd(), queues);
      !status.ok()) {
    LogError("worker ", options_.index, ": cannot wait for device ", queues->adapter->name(), ": ",
             status.message());
  }
}

// Nothing of the device is touched after this.
void Worker::DropQueues(QueueSet* queues) {
  Unwatch(epoll_.get(), queues->channel.fd());
  std::erase(queue_sets_, queues);
}

void Worker::Tick(int64_t now) {
  last_tick_ = now;
  ++tick_;
  handler_.ReturnSpare(options_.index);
  connections_.ForEach(
      [this](verbs::SlotRef, Connection* connection) { TickConnection(*connection); });
  FlushAll();
}

void Worker::TickConnection(Connection& connection) {
  if (connection.state != ConnectionState::kOpen) return;
  if (!connection.pins.empty()) ExpirePins(connection);
  if (connection.ledger.signalled() == 0) connection.progressed = tick_;
  // The transport reports failures by itself, but a client may let answers wait for ever by
  // posting no receives.
  if (tick_ - connection.progressed >= 3 * options_.silence_ticks) {
    Close(connection, CloseReason::kStalled, "it takes no answers");
    return;
  }
  if (!connection.greeted && tick_ - connection.heard >= options_.silence_ticks) {
    Close(connection, CloseReason::kStalled, "it never said hello");
    return;
  }
  const bool silent = tick_ - connection.heard >= options_.silence_ticks &&
                      tick_ - connection.probed >= options_.silence_ticks;
  if (!silent || !connection.greeted || connection.request.active ||
      connection.unanswered_probes >= std::min(kMaxProbes, connection.spare_receives)) {
    return;
  }
  connection.probed = tick_;
  ++connection.unanswered_probes;
  counters_.probes.Add();
  SendUnasked(connection, /*signal=*/true);
}

}  // namespace verbena::net
