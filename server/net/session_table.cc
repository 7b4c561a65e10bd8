#include "server/net/session_table.h"

#include <algorithm>
#include <utility>

#include "common/base/clock.h"
#include "server/net/connection.h"
#include "server/net/worker.h"

namespace verbena::net {

bool SessionTable::Enter(Connection& connection, uint32_t operations) {
  const std::lock_guard lock(mutex_);
  DropExpired(MonotonicNanos());
  std::unique_ptr<Entry>& found = entries_[connection.session];
  const bool known = found != nullptr;
  if (!known) found = std::make_unique<Entry>();
  Entry& entry = *found;
  if (entry.connection != nullptr) {
    // Both of its connections have been given up by the client: it says hello on the last one only.
    for (Connection* earlier : {entry.connection, entry.waiting}) {
      if (earlier == nullptr) continue;
      ++counts_.superseded;
      earlier->worker->Post({WorkerMail::Kind::kSuperseded, earlier});
    }
    entry.waiting = &connection;
    entry.wanted = operations;
    return false;
  }
  if (known) kept_.erase(entry.place);
  Give(entry, connection, operations, known);
  return true;
}

void SessionTable::Give(Entry& entry, Connection& connection, uint32_t operations, bool known) {
  if (known) {
    ++counts_.resumed;
  } else {
    operations = std::clamp(operations, wire::kMinSessionOperations, wire::kMaxSessionOperations);
    while (counts_.bytes > limits_.most_bytes && !kept_.empty()) DropOldest();
    if (counts_.bytes > limits_.most_bytes) operations = wire::kMinSessionOperations;
    // A session is taken for an earlier one of its id only 2^32 - 1 sessions later.
    if (++last_incarnation_ == 0) ++last_incarnation_;
    entry.session = std::make_unique<Session>(operations, last_incarnation_);
    counts_.bytes += entry.session->bytes();
  }
  entry.connection = &connection;
  connection.kept = entry.session.get();
}

void SessionTable::Leave(Connection& connection) {
  const std::lock_guard lock(mutex_);
  connection.kept = nullptr;
  const auto found = entries_.find(connection.session);
  if (found == entries_.end()) return;
  Entry& entry = *found->second;
  if (entry.waiting == &connection) {
    entry.waiting = nullptr;
    return;
  }
  if (entry.connection != &connection) return;
  entry.connection = nullptr;
  if (Connection* const next = std::exchange(entry.waiting, nullptr); next != nullptr) {
    Give(entry, *next, entry.wanted, /*known=*/true);
    next->worker->Post({WorkerMail::Kind::kSessionReady, next});
    return;
  }
  entry.left = MonotonicNanos();
  entry.place = kept_.insert(kept_.end(), connection.session);
  DropExpired(entry.left);
  while (kept_.size() > limits_.most_kept) DropOldest();
}

void SessionTable::Supersede(uint64_t session) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(session);
  if (found == entries_.end() || found->second->connection == nullptr) return;
  Connection* const connection = found->second->connection;
  ++counts_.superseded;
  connection->worker->Post({WorkerMail::Kind::kSuperseded, connection});
}

void SessionTable::DropOldest() {
  const auto found = entries_.find(kept_.front());
  kept_.pop_front();
  counts_.bytes -= found->second->session->bytes();
  ++counts_.dropped;
  entries_.erase(found);
}

void SessionTable::DropExpired(int64_t now) {
  while (!kept_.empty() && now - entries_.find(kept_.front())->second->left >= limits_.linger_ns) {
    DropOldest();
  }
}

SessionCounts SessionTable::Counts() {
  const std::lock_guard lock(mutex_);
  DropExpired(MonotonicNanos());
  counts_.kept = kept_.size();
  counts_.open = entries_.size() - kept_.size();
  return counts_;
}

}  // namespace verbena::net
