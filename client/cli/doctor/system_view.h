// What the doctor sees of the machine: files (/sys, /proc, /etc, ...) under a root folder, which
// tests replace by a made-up tree, and the few things that are not files, which they override.
//
// Thread-safe (it has no state but the root).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/group_memory.h"
#include "common/base/net_address.h"

namespace verbena::cli::doctor {

// An IP address of a network interface.
struct InterfaceAddress {
  std::string interface;
  NetAddress address;
};

// UINT64_MAX is unlimited.
struct ResourceLimit {
  uint64_t soft = 0;
  uint64_t hard = 0;  // up to which a process may raise the soft one
};

// Whether this process can use a device file.
enum class Access { kUsable, kDenied, kMissing };

class SystemView {
 public:
  // `root` without a slash at its end: "" is the machine itself.
  explicit SystemView(std::string root = "") : root_(std::move(root)) {}
  virtual ~SystemView() = default;
  SystemView(const SystemView&) = delete;
  SystemView& operator=(const SystemView&) = delete;

  // All paths are absolute and are looked up under the root.

  // The content without blanks at its end; nullopt if the file cannot be read.
  std::optional<std::string> Read(const std::string& path) const;
  // The number (decimal, or hexadecimal with 0x) that the content begins with.
  std::optional<uint64_t> ReadNumber(const std::string& path) const;
  // The entries of a folder, sorted; empty if it cannot be read.
  std::vector<std::string> List(const std::string& path) const;
  bool Exists(const std::string& path) const;
  // The last part of what a symbolic link points to; "" if it is none.
  std::string LinkName(const std::string& path) const;

  // A limit of this process from /proc/self/limits ("Max locked memory").
  std::optional<ResourceLimit> ProcessLimit(const std::string& name) const;
  // Whether this process has a capability (linux/capability.h).
  bool HasCapability(unsigned capability) const;
  // What the control groups of this process let it take; nullopt: all that there is.
  std::optional<GroupMemory> GroupLimit() const { return LeastGroupMemory(root_); }
  // A value of /proc/meminfo ("HugePages_Free"); those with a unit in bytes.
  std::optional<uint64_t> MemInfo(const std::string& name) const;

  // Opens the file for reading and writing, and closes it again.
  virtual Access DeviceFile(const std::string& path) const;
  virtual std::vector<InterfaceAddress> Addresses() const;
  // The largest IP packet on the way to a host, in bytes, as far as the kernel knows; nullopt for
  // this host and where it does not tell.
  virtual std::optional<uint64_t> PathMtu(const NetAddress& host) const;
  // What a program of the system (/usr/sbin, /sbin, /usr/bin, /bin) writes to its standard output;
  // nullopt if it is not there or fails. `command` starts with its name. Not under a root folder.
  virtual std::optional<std::string> RunTool(const std::vector<std::string>& command) const;

 protected:
  const std::string root_;
};

}  // namespace verbena::cli::doctor
