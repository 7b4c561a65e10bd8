#include "tests/integration/recording.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <new>

#include "common/base/sizes.h"

namespace verbena::testing {

using linearizability::Operation;
using linearizability::Outcome;

namespace {

constexpr size_t kAlignment = 64;
// Between two looks at what another process is to say.
constexpr useconds_t kLookMicros = 100;

}  // namespace

Recording::Recording(uint32_t clients, uint32_t capacity, WhenFull when_full)
    : clients_(clients), capacity_(capacity), when_full_(when_full) {
  const size_t shares_at = AlignUp(sizeof(Header), kAlignment);
  const size_t operations_at = AlignUp(shares_at + clients * sizeof(Share), kAlignment);
  bytes_ = operations_at + sizeof(Operation) * clients * kBuffers * capacity;
  memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory_ == MAP_FAILED) std::abort();
  auto* const base = static_cast<char*>(memory_);
  header_ = new (base) Header;
  shares_ = reinterpret_cast<Share*>(base + shares_at);
  for (uint32_t i = 0; i < clients; ++i) new (shares_ + i) Share;
  operations_ = reinterpret_cast<Operation*>(base + operations_at);
}

Recording::~Recording() { munmap(memory_, bytes_); }

void Recording::Begin(const std::string& address) {
  address.copy(header_->address, sizeof(header_->address) - 1);
  header_->begun.store(true);
}

bool Recording::Ended(uint32_t stretch) const {
  for (uint32_t i = 0; i < clients_; ++i) {
    if (!shares_[i].held.load() && shares_[i].arrived.load() <= stretch) return false;
  }
  return true;
}

void Recording::Stop() {
  header_->stop.store(true);
  header_->begun.store(true);
}

std::vector<Operation> Recording::Operations(uint32_t stretch) const {
  std::vector<Operation> all;
  for (uint32_t i = 0; i < clients_; ++i) {
    const Operation* const begin = OperationsOf(i, stretch);
    all.insert(all.end(), begin, begin + CountOf(i, stretch));
  }
  return all;
}

bool Recording::Await(uint32_t client, uint32_t* stretch) {
  for (;;) {
    if (header_->stop.load()) return false;
    if (header_->begun.load() && !shares_[client].held.load() &&
        header_->stretch.load() >= *stretch) {
      break;
    }
    usleep(kLookMicros);
  }
  *stretch = header_->stretch.load();
  shares_[client].counts[*stretch % kBuffers].store(0);
  shares_[client].stretches[*stretch % kBuffers].store(*stretch + 1);
  return true;
}

// Filled in before it is counted, so that what is counted is whole whenever the process is killed.
Operation* Recording::Record(uint32_t client, uint32_t stretch, const Operation& operation) {
  std::atomic<uint32_t>& count = shares_[client].counts[stretch % kBuffers];
  const uint32_t index = count.load(std::memory_order_relaxed);
  Operation* const place = new (OperationsOf(client, stretch) + index) Operation(operation);
  place->outcome = Outcome::kUnknown;
  count.store(index + 1, std::memory_order_release);
  if (index + 1 == capacity_ && when_full_ == WhenFull::kAllEnd) header_->ended.store(stretch + 1);
  return place;
}

void Recording::Finish(Operation* operation, Outcome outcome) {
  std::atomic_ref<Outcome>(operation->outcome).store(outcome, std::memory_order_release);
}

}  // namespace verbena::testing
