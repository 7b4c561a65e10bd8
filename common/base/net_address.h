// "ADDR:PORT" as users write it: 127.0.0.1:7000, [::1]:7000, host.example:7000.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace verbena {

// What an error of getaddrinfo (EAI_...) means for "HOST:PORT": Unavailable if another attempt may
// succeed, else InvalidArgument. Names the host. Reads errno for EAI_SYSTEM.
absl::Status ResolutionError(std::string_view text, int error);

// "HOST:PORT" in its parts.
struct HostAndPort {
  std::string host;  // a name or an address, without brackets; a scope stays ("fe80::1%eth0")
  uint16_t port = 0;
};

// Takes it apart and looks nothing up. InvalidArgument, with what is wrong and what to write: no
// port, brackets without an IPv6 address in them, figures that are no IPv4 address, a link-local
// IPv6 address without the interface that it needs or with one that this machine has not.
absl::StatusOr<HostAndPort> SplitHostAndPort(std::string_view text);

// An IPv4 or IPv6 socket address. A value type.
class NetAddress {
 public:
  NetAddress() = default;
  explicit NetAddress(const sockaddr* address);

  // Parses (errors as SplitHostAndPort) and resolves (names by getaddrinfo, which may block; errors
  // as ResolutionError). Port 0 means "any free port".
  static absl::StatusOr<NetAddress> Parse(std::string_view text);

  const sockaddr* addr() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  sockaddr* addr() { return reinterpret_cast<sockaddr*>(&storage_); }
  socklen_t length() const;
  int family() const { return storage_.ss_family; }
  uint16_t port() const;
  void set_port(uint16_t port);
  // The address without port: "127.0.0.1", "::1", or with the interface where it needs one,
  // "fe80::1%eth0".
  std::string host() const;
  // "127.0.0.1:7000" or "[::1]:7000".
  std::string ToString() const;
  bool IsWildcard() const;
  // 127.0.0.0/8 or ::1, which are never those of an RDMA device.
  bool IsLoopback() const;
  // Whether one of this machine's interfaces has the address (wildcards and loopback included).
  bool IsLocal() const;

 private:
  sockaddr_storage storage_{};
};

// The addresses of this machine's interfaces, loopback included, IPv4 first; with port 0.
std::vector<NetAddress> LocalAddresses();

}  // namespace verbena
