#include "common/softverbs/event_counter.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>

namespace verbena::softverbs {

EventCounter EventCounter::Create() {
  EventCounter counter;
  counter.fd_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE));
  return counter;
}

EventCounter EventCounter::CreateShared() {
  EventCounter counter;
  counter.fd_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
  return counter;
}

int EventCounter::Take() const {
  uint64_t count;
  const ssize_t n = read(fd_.get(), &count, sizeof(count));
  return n == sizeof(count) ? 0 : -1;
}

int EventCounter::TryTake() const {
  uint64_t count;
  iovec vector = {&count, sizeof(count)};
  if (preadv2(fd_.get(), &vector, 1, -1, RWF_NOWAIT) >= 0) return 0;
  if (errno == EAGAIN) return -1;
  // Kernels before 5.13: look first. A concurrent reader could make this wait for the next count.
  pollfd entry = {fd_.get(), POLLIN, 0};
  if (poll(&entry, 1, 0) == 1) return Take();
  errno = EAGAIN;
  return -1;
}

void EventCounter::SignalFd(int fd) {
  pollfd entry = {fd, POLLOUT, 0};
  if (poll(&entry, 1, 0) != 1) return;
  const uint64_t one = 1;
  (void)!write(fd, &one, sizeof(one));
}

bool EventCounter::IsEventCounter(int fd) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  char name[32] = "";
  const ssize_t length = readlink(path.c_str(), name, sizeof(name) - 1);
  return length > 0 &&
         std::string_view(name, static_cast<size_t>(length)) == "anon_inode:[eventfd]";
}

}  // namespace verbena::softverbs
