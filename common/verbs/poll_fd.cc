#include "common/verbs/poll_fd.h"

#include <fcntl.h>
#include <poll.h>

#include <cerrno>

#include "common/base/clock.h"
#include "common/verbs/errors.h"

namespace verbena::verbs {

absl::Status SetNonBlocking(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0) return ErrnoStatus(errno, "fcntl(F_GETFL)", "event channel");
  if (fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) {
    return ErrnoStatus(errno, "fcntl(F_SETFL)", "event channel");
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> WaitReadable(int fd, int timeout_ms) {
  const int64_t deadline = MonotonicNanos() + int64_t{timeout_ms} * 1'000'000;
  while (true) {
    pollfd entry{fd, POLLIN, 0};
    const int ready = poll(&entry, 1, timeout_ms);
    if (ready > 0) return true;
    if (ready == 0) return false;
    if (errno != EINTR) return ErrnoStatus(errno, "poll", "event channel");
    if (timeout_ms > 0) {
      const int64_t left = deadline - MonotonicNanos();
      timeout_ms = left > 0 ? static_cast<int>((left + 999'999) / 1'000'000) : 0;
    }
  }
}

}  // namespace verbena::verbs
