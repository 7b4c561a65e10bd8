#include "common/base/net_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/macros.h"
#include "common/base/text.h"

namespace verbena {
namespace {

absl::Status BadAddress(std::string_view text, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("'", ToAbsl(text),
                                                 "' is not an address: ", ToAbsl(why),
                                                 " (write ADDR:PORT, for example 127.0.0.1:7400)"));
}

// The interfaces of this machine, for people: "eth0, ib0".
std::string InterfaceNames() {
  std::string names;
  struct if_nameindex* const list = if_nameindex();
  if (list == nullptr) return names;
  for (const struct if_nameindex* at = list; at->if_index != 0; ++at) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", at->if_name);
  }
  if_freenameindex(list);
  return names;
}

// What stood in brackets: "::1", "fe80::1%eth0".
absl::Status CheckSix(std::string_view text, const std::string& host, uint32_t port) {
  const size_t percent = host.find('%');
  in6_addr address{};
  if (inet_pton(AF_INET6, host.substr(0, percent).c_str(), &address) != 1) {
    return BadAddress(text, "what stands in brackets is no IPv6 address");
  }
  if (!IN6_IS_ADDR_LINKLOCAL(&address)) return absl::OkStatus();
  const std::string interface = percent == std::string::npos ? "" : host.substr(percent + 1);
  uint32_t index = 0;
  if (!interface.empty() && (if_nametoindex(interface.c_str()) != 0 ||
                             (absl::SimpleAtoi(interface, &index) && index > 0))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", ToAbsl(text), "' is not an address: ",
      interface.empty() ? "a link-local address holds on one link only, and which one is missing"
                        : absl::StrCat("this machine has no interface ", interface),
      "; write [", host.substr(0, percent), "%INTERFACE]:", port,
      " with one of this machine's interfaces (", InterfaceNames(), ")"));
}

// Whether two addresses agree but for the port.
bool SameHost(const sockaddr* a, const sockaddr* b) {
  if (a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in*>(b)->sin_addr.s_addr;
  }
  return std::memcmp(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                     &reinterpret_cast<const sockaddr_in6*>(b)->sin6_addr, sizeof(in6_addr)) == 0;
}

}  // namespace

absl::Status ResolutionError(std::string_view text, int error) {
  if (error != EAI_AGAIN && error != EAI_SYSTEM) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no host '", ToAbsl(text.substr(0, text.rfind(':'))), "' (of '",
                     ToAbsl(text), "'): ", gai_strerror(error),
                     " (check the name; an IP address instead of it needs no look-up)"));
  }
  return absl::UnavailableError(
      absl::StrCat("the address of '", ToAbsl(text), "' cannot be looked up at the moment: ",
                   error == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(error),
                   " (name servers: /etc/resolv.conf; an address instead of the name needs none)"));
}

NetAddress::NetAddress(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    std::memcpy(&storage_, address, sizeof(sockaddr_in));
  } else if (address->sa_family == AF_INET6) {
    std::memcpy(&storage_, address, sizeof(sockaddr_in6));
  }
}

absl::StatusOr<HostAndPort> SplitHostAndPort(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return BadAddress(text, "it has no port");
  std::string host(text.substr(0, colon));
  uint32_t port = 0;
  if (!absl::SimpleAtoi(ToAbsl(text.substr(colon + 1)), &port) || port > 65535) {
    return BadAddress(text, "its port is not a number from 0 to 65535");
  }
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
    if (host.empty()) return BadAddress(text, "it has no host");
    VERBENA_RETURN_IF_ERROR(CheckSix(text, host, port));
  } else if (host.find(':') != std::string::npos) {
    return BadAddress(text, "an IPv6 address stands in brackets, as in [::1]:7400");
  }
  if (host.empty()) return BadAddress(text, "it has no host");
  in_addr four{};
  if (host.find_first_not_of("0123456789.") == std::string::npos &&
      inet_aton(host.c_str(), &four) == 0) {
    return BadAddress(text, "its figures are no IPv4 address");
  }
  return HostAndPort{std::move(host), static_cast<uint16_t>(port)};
}

absl::StatusOr<NetAddress> NetAddress::Parse(std::string_view text) {
  VERBENA_ASSIGN_OR_RETURN(const HostAndPort parts, SplitHostAndPort(text));
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int rc = getaddrinfo(parts.host.c_str(), nullptr, &hints, &found); rc != 0) {
    return ResolutionError(text, rc);
  }
  NetAddress address(found->ai_addr);
  freeaddrinfo(found);
  address.set_port(parts.port);
  return address;
}

socklen_t NetAddress::length() const {
  return family() == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

uint16_t NetAddress::port() const {
  return ntohs(family() == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port
                                    : reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
}

void NetAddress::set_port(uint16_t port) {
  if (family() == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&storage_)->sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in*>(&storage_)->sin_port = htons(port);
  }
}

std::string NetAddress::host() const {
  char text[INET6_ADDRSTRLEN] = "";
  if (family() == AF_INET6) {
    const auto* const address = reinterpret_cast<const sockaddr_in6*>(&storage_);
    inet_ntop(AF_INET6, &address->sin6_addr, text, sizeof(text));
    char interface[IF_NAMESIZE];
    if (address->sin6_scope_id != 0 && IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr) &&
        if_indextoname(address->sin6_scope_id, interface) != nullptr) {
      return absl::StrCat(text, "%", interface);
    }
  } else {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr, text,
              sizeof(text));
  }
  return text;
}

std::string NetAddress::ToString() const {
  return family() == AF_INET6 ? absl::StrCat("[", host(), "]:", port())
                              : absl::StrCat(host(), ":", port());
}

bool NetAddress::IsWildcard() const {
  if (family() == AF_INET6) {
    return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr);
  }
  return reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr.s_addr == htonl(INADDR_ANY);
}

bool NetAddress::IsLoopback() const {
  if (family() == AF_INET6) {
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr);
  }
  const uint32_t host = ntohl(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr.s_addr);
  return host >> 24 == 127;
}

bool NetAddress::IsLocal() const {
  if (IsWildcard() || IsLoopback()) return true;
  const std::vector<NetAddress> own = LocalAddresses();
  return std::any_of(own.begin(), own.end(), [this](const NetAddress& address) {
    return SameHost(address.addr(), addr());
  });
}

std::vector<NetAddress> LocalAddresses() {
  std::vector<NetAddress> addresses;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return addresses;
  const absl::Cleanup release = [list] { freeifaddrs(list); };
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) continue;
      NetAddress address(entry->ifa_addr);
      address.set_port(0);
      addresses.push_back(address);
    }
  }
  return addresses;
}

}  // namespace verbena
