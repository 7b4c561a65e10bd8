// How the passive side accepts with attributes of its own.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "common/verbs/cm.h"
#include "common/verbs/conn_param.h"
#include "common/verbs/queues.h"

namespace verbena::verbs {

// Accepts a connection request on `id` with its queue pair `qp` (made with QueuePair::CreateOn), as
// CmId::Accept does. Where the connection manager gives an accepted queue pair what the other side
// asked for (InfiniBand and RoCE: retry count, type of service; no RNR timer at all, and the right
// to write), it has from its first packet what `options` and `access` (IBV_ACCESS_*) say; where
// that cannot be, RNR timer and access rights are set just afterwards. Threads as CmId.
absl::Status Accept(CmId& id, QueuePair& qp, const ConnectOptions& options, unsigned access,
                    std::span<const uint8_t> private_data);

}  // namespace verbena::verbs
