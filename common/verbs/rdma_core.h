// The table of control verbs backed by the machine's own RDMA stack: libibverbs and librdmacm.
#pragma once

#include "common/verbs/verbs_api.h"

namespace verbena::verbs {

// The one instance; lives for ever, has no state. Thread-safe.
VerbsApi& RdmaCoreVerbs();

// What was made on a device that has been pulled out can still be destroyed: the kernel has freed
// its part by then and answers EIO, which rdma-core takes for an error, and keeps its own part
// (queues, memory) for ever, unless RDMAV_ALLOW_DISASSOC_DESTROY is set, which this does. For
// drivers that disassociate contexts (mlx4, mlx5, hns).
//
// rdma-core reads the variable with its first call and wants a program that sets it not to take
// events of a queue or context in one thread while another destroys it. To be called by a program,
// not by a library, before the first call of a table and before there are threads.
void AllowDestroyingAfterRemoval();

}  // namespace verbena::verbs
