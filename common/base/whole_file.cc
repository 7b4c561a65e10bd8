#include "common/base/whole_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/unique_fd.h"

namespace verbena {
namespace {

absl::Status CannotWrite(const std::string& path, int error) {
  return absl::InvalidArgumentError(absl::StrCat(
      "cannot write ", path, ": ",
      error == ENXIO ? "it is a pipe that nobody reads, or a socket" : std::strerror(error)));
}

bool IsFolder(const std::string& path) {
  struct stat found {};
  return stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

// What a path names once its links are followed. A link to a file stays one, and the file is
// replaced; but a name of a descriptor (/dev/stdout, /dev/fd/3, /proc/PID/fd/1) means what is open
// there, with its place in the file if this process has it, and not the file's name.
struct Target {
  std::string path;
  int descriptor = -1;   // of this process
  bool is_open = false;  // in another
};

// Whether it holds the descriptors of a process or a thread.
bool IsOfDescriptors(const std::filesystem::path& folder) {
  return folder.filename() == "fd" && *std::next(folder.begin()) == "proc";
}

Target Follow(const std::string& path) {
  constexpr int kMostLinks = 40;  // as the kernel has it
  // Of the threads of this process each has the same ones.
  const std::string own = absl::StrCat("/proc/", getpid(), "/");
  std::filesystem::path at(path);
  for (int i = 0; i < kMostLinks; ++i) {
    std::error_code error;
    const auto folder =
        std::filesystem::canonical(at.has_parent_path() ? at.parent_path() : ".", error);
    int descriptor = -1;
    if (!error && IsOfDescriptors(folder) &&
        absl::SimpleAtoi(at.filename().native(), &descriptor)) {
      if (absl::StartsWith(folder.native(), own)) return {at, descriptor, false};
      return {at, -1, true};
    }
    const std::filesystem::path next = std::filesystem::read_symlink(at, error);
    if (error) break;
    at = at.parent_path() / next;  // which is `next` where that is absolute
  }
  return {at};
}

// Root could rename a file over a device, which would be gone then for all the machine.
bool IsToBeReplaced(const Target& target) {
  if (target.is_open) return false;
  struct stat found {};
  if (stat(target.path.c_str(), &found) != 0) return errno != ELOOP;
  return S_ISREG(found.st_mode);
}

std::string DraftOf(const std::string& path) { return absl::StrCat(path, ".", getpid(), ".tmp"); }

UniqueFd OpenDraft(const std::string& path) {
  return UniqueFd(
      open(DraftOf(path).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOCTTY | O_CLOEXEC, 0666));
}

// O_NONBLOCK: opening a pipe would wait for its reader. O_APPEND: what another process has open as
// a file is not at its beginning.
UniqueFd OpenExisting(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (fd.valid()) fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) & ~O_NONBLOCK);
  return fd;
}

bool WriteText(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

// close() tells what a file system of a network could not store.
bool Close(UniqueFd fd) { return close(fd.Release()) == 0; }

}  // namespace

absl::Status WriteWholeFile(const std::string& path, std::string_view text) {
  const Target target = Follow(path);
  const bool replace = target.descriptor < 0 && IsToBeReplaced(target);
  UniqueFd fd = target.descriptor >= 0 ? UniqueFd(fcntl(target.descriptor, F_DUPFD_CLOEXEC, 0))
                : replace              ? OpenDraft(target.path)
                                       : OpenExisting(target.path);
  const bool opened = fd.valid();
  if (opened && WriteText(fd.get(), text) && Close(std::move(fd)) &&
      (!replace || std::rename(DraftOf(target.path).c_str(), target.path.c_str()) == 0)) {
    return absl::OkStatus();
  }
  const int error = errno;
  if (replace && opened) std::remove(DraftOf(target.path).c_str());
  return CannotWrite(path, error);
}

absl::Status CheckWholeFile(const std::string& path) {
  if (IsFolder(path)) return CannotWrite(path, EISDIR);
  const Target target = Follow(path);
  if (target.descriptor >= 0) {
    const int flags = fcntl(target.descriptor, F_GETFL);
    if (flags < 0) return CannotWrite(path, errno);
    return (flags & O_ACCMODE) == O_RDONLY ? CannotWrite(path, EBADF) : absl::OkStatus();
  }
  if (!IsToBeReplaced(target)) {
    // Not opened: the reader of a pipe would take its closing for the end.
    return access(target.path.c_str(), W_OK) == 0 ? absl::OkStatus() : CannotWrite(path, errno);
  }
  const UniqueFd draft = OpenDraft(target.path);
  if (!draft.valid()) return CannotWrite(path, errno);
  std::remove(DraftOf(target.path).c_str());
  return absl::OkStatus();
}

}  // namespace verbena
