// What a server's `info` says of the packets at its end of a route.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/net_address.h"

namespace verbena::cli::doctor {

// The MTU (payload bytes) of the adapter that listens on `server`. Where none says so (behind a
// translated address), those of all adapters of `fabric`, since it is one of them. `info` is what
// the server sent and is not trusted: empty where it does not tell.
std::vector<uint64_t> ServerMtus(const std::string& info, const std::string& fabric,
                                 const NetAddress& server);

}  // namespace verbena::cli::doctor
