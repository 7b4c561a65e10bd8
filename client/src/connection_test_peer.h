// For tests that break a connection under its user.
#pragma once

#include "client/src/access.h"
#include "client/src/connection_impl.h"
#include "common/verbs/queues.h"

namespace verbena::client {

// Not thread-safe, like the connection.
class VERBENA_LOCAL ConnectionTestPeer {
 public:
  explicit ConnectionTestPeer(Connection& connection) : impl_(Access::ImplOf(connection)) {}

  // Whether there is a connection at the moment.
  bool up() const { return impl_.lost().ok(); }
  // Why there is none.
  absl::Status lost() const { return impl_.lost(); }
  // Whether a device may still write to, or read from, memory for the connection.
  bool has_queue_pair() const { return impl_.endpoint().qp() != nullptr; }
  // Moves the queue pair to ERR behind the connection's back, as an adapter does that has met an
  // error. Nothing happens while there is no connection.
  void Break() {
    if (!up()) return;
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    [[maybe_unused]] const int ignored =
        impl_.dialling().api->ModifyQp(impl_.endpoint().qp(), &attributes, IBV_QP_STATE);
  }

  // Sends the requests that have been submitted, and looks at no answer.
  void Flush() { impl_.FlushRequests(); }
  // Loses the connection with the answers that have arrived on it and not been looked at.
  void Lose() { impl_.Lose(absl::UnavailableError("lost by a test")); }
  uint64_t session() const { return impl_.dialling().endpoint.session; }

 private:
  Connection::Impl& impl_;
};

}  // namespace verbena::client
