// What the server says of itself, as far as reports need it.
#pragma once

#include <string_view>

#include "bench/load/result.h"

namespace verbena::bench {

// From the JSON object that Connection::Info returns; members that are missing or of another type
// are left out.
ServerFacts ParseServerFacts(std::string_view info);

// The process whose CPU time is the server's: `wanted` if it is not 0, else what the server says,
// but only if the server's address is this host's and a verbena-server has that number here. 0 if
// there is none.
int64_t LocalServerPid(const ServerFacts& facts, std::string_view server, int64_t wanted);

}  // namespace verbena::bench
