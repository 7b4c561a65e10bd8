// The way of the library's own parts to what is behind a Connection; the one friend that the public
// header names.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/src/shared_cache.h"
#include "verbena/connection.h"

namespace verbena::client {

class VERBENA_LOCAL Access {
 public:
  // A connection that shares its cache with others of the same server.
  static absl::StatusOr<std::unique_ptr<Connection>> Connect(std::string_view server,
                                                             const Options& options,
                                                             std::shared_ptr<SharedCache> cache);
  // What is behind it, as long as it lives.
  static Connection::Impl& ImplOf(Connection& connection) { return *connection.impl_; }
};

// InvalidArgument for a number of connections that a client for many threads cannot have.
absl::Status CheckConnections(uint32_t number, const char* name);

}  // namespace verbena::client
