// The table of control verbs backed by the machine's own RDMA stack: libibverbs and librdmacm.
#pragma once

#include "common/verbs/verbs_api.h"

namespace verbena::verbs {

// The one instance; lives for ever, has no state. Thread-safe.
VerbsApi& RdmaCoreVerbs();

}  // namespace verbena::verbs
