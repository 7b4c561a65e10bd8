#include "client/cli/doctor/system_view.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/sizes.h"
#include "common/base/unique_fd.h"

namespace verbena::cli::doctor {
namespace {

namespace fs = std::filesystem;

// The line of `text` that begins with `name`, without it.
std::optional<absl::string_view> LineOf(absl::string_view text, const std::string& name) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::ConsumePrefix(&line, name)) return line;
  }
  return std::nullopt;
}

std::optional<uint64_t> FirstNumber(absl::string_view text) {
  const std::vector<absl::string_view> words = absl::StrSplit(text, ' ', absl::SkipWhitespace());
  uint64_t value = 0;
  if (words.empty()) return std::nullopt;
  const bool hex = absl::StartsWith(words.front(), "0x");
  const bool ok =
      hex ? absl::SimpleHexAtoi(words.front(), &value) : absl::SimpleAtoi(words.front(), &value);
  return ok ? std::optional(value) : std::nullopt;
}

// What can be read from a file or pipe until its end, but no more than this; nullopt if reading
// fails.
std::optional<std::string> ReadToEnd(int fd) {
  constexpr size_t kMost = size_t{16} << 20;
  std::string text;
  char buffer[4096];
  while (text.size() < kMost) {
    const ssize_t got = read(fd, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) break;
    text.append(buffer, static_cast<size_t>(got));
  }
  return text;
}

}  // namespace

std::optional<std::string> SystemView::Read(const std::string& path) const {
  // Of a folder or a device file nothing is wanted, and it might block.
  std::error_code error;
  if (!fs::is_regular_file(root_ + path, error)) return std::nullopt;
  const UniqueFd fd(open((root_ + path).c_str(), O_RDONLY | O_CLOEXEC));
  // Files of sysfs that have nothing to tell can be opened, but not read.
  std::optional<std::string> text = fd.valid() ? ReadToEnd(fd.get()) : std::nullopt;
  if (text.has_value()) absl::StripTrailingAsciiWhitespace(&*text);
  return text;
}

std::optional<uint64_t> SystemView::ReadNumber(const std::string& path) const {
  const std::optional<std::string> text = Read(path);
  return text.has_value() ? FirstNumber(*text) : std::nullopt;
}

std::vector<std::string> SystemView::List(const std::string& path) const {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(root_ + path, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool SystemView::Exists(const std::string& path) const {
  std::error_code error;
  return fs::exists(root_ + path, error);
}

std::string SystemView::LinkName(const std::string& path) const {
  std::error_code error;
  return fs::read_symlink(root_ + path, error).filename().string();
}

std::optional<ResourceLimit> SystemView::ProcessLimit(const std::string& name) const {
  const std::optional<std::string> text = Read("/proc/self/limits");
  const std::optional<absl::string_view> line =
      text.has_value() ? LineOf(*text, name) : std::nullopt;
  if (!line.has_value()) return std::nullopt;
  const std::vector<absl::string_view> words = absl::StrSplit(*line, ' ', absl::SkipWhitespace());
  if (words.size() < 2) return std::nullopt;
  const auto value = [](absl::string_view word) {
    return word == "unlimited" ? UINT64_MAX : FirstNumber(word);
  };
  const std::optional<uint64_t> soft = value(words[0]);
  const std::optional<uint64_t> hard = value(words[1]);
  if (!soft.has_value() || !hard.has_value()) return std::nullopt;
  return ResourceLimit{*soft, *hard};
}

bool SystemView::HasCapability(unsigned capability) const {
  const std::optional<std::string> text = Read("/proc/self/status");
  if (!text.has_value()) return false;
  const std::optional<absl::string_view> line = LineOf(*text, "CapEff:");
  uint64_t set = 0;
  if (!line.has_value() || !absl::SimpleHexAtoi(absl::StripAsciiWhitespace(*line), &set)) {
    return false;
  }
  return ((set >> capability) & 1) != 0;
}

std::optional<uint64_t> SystemView::MemInfo(const std::string& name) const {
  const std::optional<std::string> text = Read("/proc/meminfo");
  if (!text.has_value()) return std::nullopt;
  const std::optional<absl::string_view> line = LineOf(*text, name + ":");
  if (!line.has_value()) return std::nullopt;
  std::optional<uint64_t> value = FirstNumber(*line);
  if (value.has_value() && absl::EndsWith(*line, "kB")) value = *value * kKiB;
  return value;
}

Access SystemView::DeviceFile(const std::string& path) const {
  const UniqueFd fd(open((root_ + path).c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (fd.valid()) return Access::kUsable;
  return errno == EACCES || errno == EPERM ? Access::kDenied : Access::kMissing;
}

std::vector<InterfaceAddress> SystemView::Addresses() const {
  std::vector<InterfaceAddress> addresses;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return addresses;
  const absl::Cleanup free_list = [list] { freeifaddrs(list); };
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    if (entry->ifa_addr->sa_family != AF_INET && entry->ifa_addr->sa_family != AF_INET6) continue;
    addresses.push_back({entry->ifa_name, NetAddress(entry->ifa_addr)});
  }
  return addresses;
}

std::optional<uint64_t> SystemView::PathMtu(const NetAddress& host) const {
  if (host.IsLocal()) return std::nullopt;
  const UniqueFd fd(socket(host.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid() || connect(fd.get(), host.addr(), host.length()) != 0) return std::nullopt;
  const bool six = host.family() == AF_INET6;
  int mtu = 0;
  socklen_t length = sizeof(mtu);
  if (getsockopt(fd.get(), six ? IPPROTO_IPV6 : IPPROTO_IP, six ? IPV6_MTU : IP_MTU, &mtu,
                 &length) != 0 ||
      mtu <= 0) {
    return std::nullopt;
  }
  return static_cast<uint64_t>(mtu);
}

std::optional<std::string> SystemView::RunTool(const std::vector<std::string>& command) const {
  if (!root_.empty() || command.empty()) return std::nullopt;
  std::string path;
  for (const char* folder : {"/usr/sbin/", "/sbin/", "/usr/bin/", "/bin/"}) {
    path = folder + command.front();
    if (access(path.c_str(), X_OK) == 0) break;
    path.clear();
  }
  int ends[2];
  if (path.empty() || pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
  UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);

  std::vector<char*> argv;
  argv.reserve(command.size() + 1);
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const absl::Cleanup destroy = [&actions] { posix_spawn_file_actions_destroy(&actions); };
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = -1;
  if (posix_spawn(&child, path.c_str(), &actions, nullptr, argv.data(), environ) != 0) {
    return std::nullopt;
  }
  write_end.Reset();
  std::optional<std::string> text = ReadToEnd(read_end.get());
  read_end.Reset();
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return std::nullopt;
  return text;
}

}  // namespace verbena::cli::doctor
