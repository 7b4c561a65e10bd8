// Move-only owners of verbs objects, made by factories that return absl::StatusOr.
//
// Ownership: an owner destroys its object and nothing else, and keeps nothing alive. The order of
// destruction is the user's, by the order of members: what is declared first is destroyed last.
// A working order is
//   CmChannel, Device, ProtectionDomain, MemoryRegion, CompletionChannel, CompletionQueue,
//   SharedReceiveQueue, CmId, QueuePair.
// (A queue pair goes before the CM id that it was made on, its completion queues and its shared
// receive queue; memory regions before their protection domain; a CM id before its channel. A
// CmEvent must be acknowledged before the CM id that it speaks of is destroyed: rdma_destroy_id
// waits for that.) The VerbsApi table must outlive all.
//
// A default-constructed or moved-from owner is empty: valid() is false and only assignment,
// valid() and destruction are allowed.
//
// Thread-safety: an owner is used by one thread at a time. The objects behind it have the
// thread-safety of libibverbs (posting and polling may be done by several threads).
#pragma once

#include "common/verbs/cm.h"          // IWYU pragma: export
#include "common/verbs/completion.h"  // IWYU pragma: export
#include "common/verbs/device.h"      // IWYU pragma: export
#include "common/verbs/queues.h"      // IWYU pragma: export
