// What operations cost in verbs: the figures that carry over to other adapters.
#pragma once

#include <utility>
#include <vector>

#include "bench/load/result.h"

namespace verbena::bench {

using Figures = std::vector<std::pair<const char*, double>>;

// For each finished operation, what the clients have posted: "READs", "SENDs", "WQEs" (entries of
// send queues, which is both), "doorbells", "bytes read", "bytes sent". Empty for a store that has
// no such things.
Figures ClientVerbs(const RunResult& result);
// What the server has posted meanwhile and taken from its completion queues: "SENDs", "READs",
// "WQEs" (those of its receive queue too), "doorbells", "CQEs", "bytes sent". Empty if it does not
// tell. Other clients of the server are in it.
Figures ServerVerbs(const RunResult& result);

}  // namespace verbena::bench
