// What a server says of itself.
#pragma once

#include <cstdint>
#include <string>

#include "server/net/network.h"
#include "server/storage/store.h"

namespace verbena::admin {

struct InfoSources {
  const char* version;
  int64_t started;          // CLOCK_MONOTONIC, ns
  uint64_t max_value_size;  // bytes
  const net::Network& network;
  const storage::Store& store;
};

// One JSON object. Thread-safe; takes no lock that a worker holds for long.
std::string InfoJson(const InfoSources& sources);

}  // namespace verbena::admin
