// The sessions of all clients, in memory that all workers share.
//
// A session has one connection at most. A client that has lost its connection makes another and
// says hello on it with the same session; it gets the session when the connection before is fenced:
// its queue pair is in ERR and its worker has done or dropped what had arrived, so that nothing
// comes to be applied behind the new connection's back. Until then the hello waits.
//
//   worker of the new connection        table                worker of the old connection
//   Enter -> the session has another
//     connection: waits             ->  kSuperseded       -> closes it (drops what has arrived)
//                                                            queue pair in ERR: Leave
//   kSessionReady: says welcome     <-  hands it over     <-
//
// Mail about a connection is posted under the table's lock and before its Leave, which comes before
// the acceptor's last word about it (kGone); so pointers in it are good. What a worker has written
// to a session the next one sees, since both have held the lock in between.
//
// Sessions without a connection stay for a time, in bounded number and in bounded memory, with the
// values that they keep. Those whose connections came from one host (an IPv4 address, the 64 bits
// of an IPv6 one that a host cannot choose) have a share of that which they do not exceed, of which
// their oldest go first. Where all together have too much, the oldest of the host goes that has the
// most: so hosts, however many of them do whatever they like, cost another one no session before
// they have each no more than it has. Thread-safe.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "server/net/session.h"

namespace verbena::net {

struct Connection;

struct SessionLimits {
  int64_t linger_ns = int64_t{60} * 1'000'000'000;  // without a connection
  size_t most_kept = 16 * 1024;                     // without a connection
  // Of those without a connection, with the values that they keep. Those with one are as many as
  // there are connections; when all take more than this a new one gets fewer numbers.
  size_t most_bytes = size_t{256} << 20;
  // What the sessions without a connection from one host may have of each: one part in so many.
  size_t peer_share = 4;
  // A connection is not ended for want of room before its hello is as old as this: later attempts
  // of the same client may be on their way, which it gives up.
  int64_t settle_ns = int64_t{3} * 1'000'000'000;
};

// For people.
struct SessionCounts {
  uint64_t open = 0;        // with a connection
  uint64_t kept = 0;        // without
  uint64_t bytes = 0;       // of all; with the values of get-and-deletes of those without
  uint64_t resumed = 0;     // ever: taken up by another connection
  uint64_t dropped = 0;     // ever: not taken up in time, or too many
  uint64_t superseded = 0;  // connections that were ended for their successors
};

class SessionTable {
 public:
  explicit SessionTable(const SessionLimits& limits) : limits_(limits) {}
  SessionTable(const SessionTable&) = delete;
  SessionTable& operator=(const SessionTable&) = delete;

  // Gives the connection its session (Connection::session_id), made anew if it is not known, and
  // sets Connection::session; true. False if it has to wait for another connection to end:
  // kSessionReady tells. `operations` as in Hello; a session that is new gets fewer (down to
  // wire::kMinSessionOperations) when sessions take more memory than they should. By the
  // connection's worker.
  bool Enter(Connection& connection, uint32_t operations);
  // The connection is fenced: it no longer has its session, or waits for one. Who waits gets it. By
  // the connection's worker; nothing happens if it has none.
  void Leave(Connection& connection);
  // Ends the connection that a session has, if there is one that has had it for a while
  // (SessionLimits::settle_ns): its client wants another.
  void Supersede(uint64_t session);

  SessionCounts Counts();

 private:
  // What is kept for a host.
  struct Peer {
    std::string host;
    std::list<uint64_t> kept;  // oldest first
    size_t bytes = 0;
  };
  struct Entry {
    std::unique_ptr<Session> session;
    Connection* connection = nullptr;  // that has it; null: it is kept
    Connection* waiting = nullptr;     // for it
    uint32_t wanted = 0;               // operations, of the one that waits
    // CLOCK_MONOTONIC, ns: when it got its connection, or lost it.
    int64_t since = 0;
    // Without a connection.
    Peer* peer = nullptr;                     // that had it
    size_t value_bytes = 0;                   // that are counted for it
    std::list<uint64_t>::iterator place{};    // in kept_
    std::list<uint64_t>::iterator at_peer{};  // in the peer's list
  };
  using Entries = absl::flat_hash_map<uint64_t, std::unique_ptr<Entry>>;

  void Give(Entry& entry, Connection& connection, uint32_t operations, bool known);
  void Put(uint64_t session, Entry& entry, const Connection& connection);
  void TakeOut(Entry& entry);
  void DropOldest() { Drop(kept_.front()); }
  // The oldest of the peer that is the last in `by_size`; of several such peers, the oldest of all
  // if it is one of theirs.
  using BySize = std::set<std::pair<size_t, Peer*>>;
  void DropOfLargest(const BySize& by_size, size_t size_of_oldest);
  void Drop(uint64_t session);
  // Calls change() with the peer, whose sizes are other ones then.
  template <typename Change>
  void Resize(Peer& peer, Change&& change);
  void DropExpired(int64_t now);

  const SessionLimits limits_;
  std::mutex mutex_;
  Entries entries_;
  absl::flat_hash_map<std::string, std::unique_ptr<Peer>>
      peers_;                 // that have sessions kept, by host
  BySize by_count_;           // all of peers_, by the sessions that are kept for each
  BySize by_bytes_;           // and by the bytes of these
  std::list<uint64_t> kept_;  // without a connection, oldest first
  size_t kept_bytes_ = 0;     // of these, with values
  SessionCounts counts_;
  uint32_t last_incarnation_ = 0;
};

}  // namespace verbena::net
