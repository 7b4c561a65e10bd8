// The software verbs device: client and server on the same host, without an adapter, a kernel
// module or privileges. Real ABI structs and the semantics of reliable connections; see
// docs/design.md for what is modelled. A development and single-host device, not a security
// boundary: every process that connects can reach what the other has registered for it.
#pragma once

#include "common/verbs/verbs_api.h"

namespace verbena::softverbs {

// The device's table. Process-wide, thread-safe, never destroyed. The device itself starts (one
// thread, three memfds) when the first call needs it. Dead in a child after fork: calls that
// create fail with ENODEV.
verbs::VerbsApi& SoftVerbs();

// Whether this process is the child of a fork by one that was using the device: then it has none.
// Thread-safe.
bool UnusableAfterFork();

}  // namespace verbena::softverbs
