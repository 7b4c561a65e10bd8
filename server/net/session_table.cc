#include "server/net/session_table.h"

#include <arpa/inet.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "server/net/connection.h"
#include "server/net/worker.h"

namespace verbena::net {
namespace {

// "ADDR:PORT" without the port; of an IPv6 address only the network, since a host may have each of
// its addresses. Those of a link's own network are told apart: all of its hosts are in it.
std::string HostOf(const std::string& peer) {
  std::string address = peer.substr(0, peer.rfind(':'));
  if (address.size() < 2 || address.front() != '[') return address;
  in6_addr bits{};
  if (inet_pton(AF_INET6, address.substr(1, address.size() - 2).c_str(), &bits) != 1 ||
      IN6_IS_ADDR_LINKLOCAL(&bits) || IN6_IS_ADDR_V4MAPPED(&bits)) {
    return address;
  }
  std::fill(std::begin(bits.s6_addr) + 8, std::end(bits.s6_addr), uint8_t{0});
  char network[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET6, &bits, network, sizeof(network));
  return absl::StrCat(network, "/64");
}

}  // namespace

bool SessionTable::Enter(Connection& connection, uint32_t operations) {
  const std::lock_guard lock(mutex_);
  DropExpired(MonotonicNanos());
  std::unique_ptr<Entry>& found = entries_[connection.session_id];
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
  if (known) TakeOut(entry);
  Give(entry, connection, operations, known);
  return true;
}

void SessionTable::Give(Entry& entry, Connection& connection, uint32_t operations, bool known) {
  if (known) {
    ++counts_.resumed;
    entry.session->TakeUp();
  } else {
    operations = std::clamp(operations, wire::kMinSessionOperations, wire::kMaxSessionOperations);
    // Nobody loses a session for it.
    if (counts_.bytes > limits_.most_bytes) operations = wire::kMinSessionOperations;
    // A session is taken for an earlier one of its id only 2^32 - 1 sessions later.
    if (++last_incarnation_ == 0) ++last_incarnation_;
    entry.session = std::make_unique<Session>(operations, last_incarnation_);
    counts_.bytes += entry.session->bytes();
  }
  entry.connection = &connection;
  entry.since = MonotonicNanos();
  connection.session = entry.session.get();
}

void SessionTable::Leave(Connection& connection) {
  const std::lock_guard lock(mutex_);
  connection.session = nullptr;
  const auto found = entries_.find(connection.session_id);
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
  const int64_t now = MonotonicNanos();
  entry.since = now;
  Put(connection.session_id, entry, connection);
  DropExpired(now);
}

// What is too much then goes: of this host first.
void SessionTable::Put(uint64_t session, Entry& entry, const Connection& connection) {
  std::string host = HostOf(connection.peer);
  std::unique_ptr<Peer>& found = peers_[host];
  if (found == nullptr) {
    found = std::make_unique<Peer>();
    found->host = std::move(host);
  }
  Peer* const peer = entry.peer = found.get();
  entry.place = kept_.insert(kept_.end(), session);
  entry.value_bytes = entry.session->value_bytes();
  counts_.bytes += entry.value_bytes;
  kept_bytes_ += entry.session->bytes() + entry.value_bytes;
  Resize(*peer, [&] {
    entry.at_peer = peer->kept.insert(peer->kept.end(), session);
    peer->bytes += entry.session->bytes() + entry.value_bytes;
  });
  // The peer is gone with the last of its sessions.
  const size_t most = limits_.most_kept / limits_.peer_share;
  const size_t most_bytes = limits_.most_bytes / limits_.peer_share;
  for (size_t left = peer->kept.size(); left > 0 && (left > most || peer->bytes > most_bytes);
       --left) {
    Drop(peer->kept.front());
  }
  while (kept_.size() > limits_.most_kept) {
    DropOfLargest(by_count_, entries_.find(kept_.front())->second->peer->kept.size());
  }
  while (!kept_.empty() && kept_bytes_ > limits_.most_bytes) {
    DropOfLargest(by_bytes_, entries_.find(kept_.front())->second->peer->bytes);
  }
}

void SessionTable::DropOfLargest(const BySize& by_size, size_t size_of_oldest) {
  const auto& [size, peer] = *by_size.rbegin();
  Drop(size_of_oldest == size ? kept_.front() : peer->kept.front());
}

template <typename Change>
void SessionTable::Resize(Peer& peer, Change&& change) {
  by_count_.erase({peer.kept.size(), &peer});
  by_bytes_.erase({peer.bytes, &peer});
  change();
  if (peer.kept.empty()) return;
  by_count_.emplace(peer.kept.size(), &peer);
  by_bytes_.emplace(peer.bytes, &peer);
}

// It is no longer one without a connection.
void SessionTable::TakeOut(Entry& entry) {
  kept_.erase(entry.place);
  counts_.bytes -= entry.value_bytes;
  kept_bytes_ -= entry.session->bytes() + entry.value_bytes;
  Peer& peer = *std::exchange(entry.peer, nullptr);
  Resize(peer, [&] {
    peer.kept.erase(entry.at_peer);
    peer.bytes -= entry.session->bytes() + entry.value_bytes;
  });
  entry.value_bytes = 0;
  if (peer.kept.empty()) peers_.erase(peers_.find(peer.host));
}

void SessionTable::Supersede(uint64_t session) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(session);
  if (found == entries_.end() || found->second->connection == nullptr) return;
  if (MonotonicNanos() - found->second->since < limits_.settle_ns) return;
  Connection* const connection = found->second->connection;
  ++counts_.superseded;
  connection->worker->Post({WorkerMail::Kind::kSuperseded, connection});
}

void SessionTable::Drop(uint64_t session) {
  const auto found = entries_.find(session);
  TakeOut(*found->second);
  counts_.bytes -= found->second->session->bytes();
  ++counts_.dropped;
  entries_.erase(found);
}

void SessionTable::DropExpired(int64_t now) {
  while (!kept_.empty() && now - entries_.find(kept_.front())->second->since >= limits_.linger_ns) {
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
