// Prints what the software device costs: READs, lists of READs, and a SEND ping-pong, between two
// processes, beside the plain copy and the plain shared-memory ping-pong that they rest on.
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "common/base/clock.h"
#include "common/softverbs/read_copy.h"
#include "tests/conformance/peer_process.h"

namespace verbena::conformance {
namespace {

constexpr size_t kBuffer = size_t{64} << 20;
constexpr int kRounds = 200'000;
constexpr uint64_t kPings = 20'000;

void Print(const char* what, std::vector<int64_t> nanos) {
  std::sort(nanos.begin(), nanos.end());
  std::printf("%-28s p50 %5lld ns  p99 %6lld ns\n", what,
              static_cast<long long>(nanos[nanos.size() / 2]),
              static_cast<long long>(nanos[nanos.size() * 99 / 100]));
}

std::vector<uint64_t> RandomOffsets(uint32_t size) {
  std::mt19937_64 random(1);
  std::vector<uint64_t> offsets(kRounds);
  for (auto& offset : offsets) offset = random() % (kBuffer / 64 - size / 64 - 1) * 64;
  return offsets;
}

void MeasureReads(Endpoint* end, uint64_t address, uint32_t rkey, uint32_t size, uint64_t span) {
  auto offsets = RandomOffsets(size);
  for (auto& offset : offsets) offset %= span;
  std::vector<int64_t> nanos;
  nanos.reserve(kRounds);
  ibv_wc wc;
  volatile uint64_t sink = 0;
  for (const uint64_t offset : offsets) {
    const int64_t start = MonotonicNanos();
    end->PostRead(1, 0, size, address + offset, rkey);
    while (ibv_poll_cq(end->cq, 1, &wc) == 0) {
    }
    for (uint32_t i = 0; i < size; i += 64) {
      uint64_t word;
      std::memcpy(&word, end->data + i, 8);
      sink = sink + word;
    }
    nanos.push_back(MonotonicNanos() - start);
    if (wc.status != IBV_WC_SUCCESS) std::abort();
  }
  char what[64];
  std::snprintf(what, sizeof(what), "READ %u B of %llu KiB", size,
                static_cast<unsigned long long>(span / 1024));
  Print(what, nanos);
}

void MeasureCopies(const uint8_t* from, uint32_t size, uint64_t span) {
  auto offsets = RandomOffsets(size);
  for (auto& offset : offsets) offset %= span;
  std::vector<int64_t> nanos;
  nanos.reserve(kRounds);
  static uint8_t to[8192];
  volatile uint64_t sink = 0;
  for (const uint64_t offset : offsets) {
    const int64_t start = MonotonicNanos();
    softverbs::ReadCopy(to, from + offset, size);
    for (uint32_t i = 0; i < size; i += 64) {
      uint64_t word;
      std::memcpy(&word, to + i, 8);
      sink = sink + word;
    }
    nanos.push_back(MonotonicNanos() - start);
  }
  char what[64];
  std::snprintf(what, sizeof(what), "copy %u B of %llu KiB", size,
                static_cast<unsigned long long>(span / 1024));
  Print(what, nanos);
}

void MeasureReadLists(Endpoint* end, uint64_t address, uint32_t rkey, uint32_t size, int depth) {
  const auto offsets = RandomOffsets(size);
  std::array<ibv_send_wr, 16> wrs{};
  std::array<ibv_sge, 16> sges;
  std::array<ibv_wc, 16> wcs;
  const int64_t start = MonotonicNanos();
  for (int round = 0; round + depth <= kRounds; round += depth) {
    for (int i = 0; i < depth; ++i) {
      auto& wr = wrs[static_cast<size_t>(i)];
      sges[static_cast<size_t>(i)] = end->Sge(static_cast<size_t>(i) * 8192, size);
      wr.sg_list = &sges[static_cast<size_t>(i)];
      wr.num_sge = 1;
      wr.opcode = IBV_WR_RDMA_READ;
      wr.send_flags = IBV_SEND_SIGNALED;
      wr.wr.rdma.remote_addr = address + offsets[static_cast<size_t>(round + i)];
      wr.wr.rdma.rkey = rkey;
      wr.next = i + 1 < depth ? &wrs[static_cast<size_t>(i + 1)] : nullptr;
    }
    end->Post(wrs.data());
    for (int done = 0; done < depth;) done += ibv_poll_cq(end->cq, 16, wcs.data());
  }
  const double nanos = static_cast<double>(MonotonicNanos() - start);
  std::printf("READ %u B lists of %-2d           %.2f M/s (%.0f ns each)\n", size, depth,
              kRounds / nanos * 1e3, nanos / kRounds);
}

void MeasurePingPong(Endpoint* end, uint32_t size) {
  std::vector<int64_t> nanos;
  for (uint64_t slot = 0; slot < 16; ++slot) end->PostRecv(slot, 65536 + slot * 4096, 4096);
  ibv_wc wc;
  for (uint64_t i = 0; i < kPings; ++i) {
    const int64_t start = MonotonicNanos();
    unsigned flags = i % 16 == 0 ? unsigned{IBV_SEND_SIGNALED} : 0u;
    if (size <= end->options.max_inline) flags |= IBV_SEND_INLINE;
    end->PostSend(99, 0, size, flags);
    do {
      while (ibv_poll_cq(end->cq, 1, &wc) == 0) {
      }
      if (wc.status != IBV_WC_SUCCESS) std::abort();
    } while (wc.wr_id == 99);
    nanos.push_back(MonotonicNanos() - start);
    end->PostRecv(wc.wr_id, 65536 + wc.wr_id * 4096, 4096);
  }
  char what[64];
  std::snprintf(what, sizeof(what), "SEND ping-pong %u B", size);
  Print(what, nanos);
}

void MeasureBarePingPong() {
  struct alignas(128) Word {
    std::atomic<uint64_t> value;
  };
  auto* words = static_cast<Word*>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const pid_t child = fork();
  if (child == 0) {
    for (uint64_t i = 1; i <= kPings; ++i) {
      while (words[0].value.load(std::memory_order_acquire) != i) CpuRelax();
      words[1].value.store(i, std::memory_order_release);
    }
    _exit(0);
  }
  std::vector<int64_t> nanos;
  for (uint64_t i = 1; i <= kPings; ++i) {
    const int64_t start = MonotonicNanos();
    words[0].value.store(i, std::memory_order_release);
    while (words[1].value.load(std::memory_order_acquire) != i) CpuRelax();
    nanos.push_back(MonotonicNanos() - start);
  }
  waitpid(child, nullptr, 0);
  Print("bare ping-pong", nanos);
}

int Run() {
  MeasureBarePingPong();
  PeerProgram peer("echo", kBuffer);
  rdma_event_channel* events = Api().CmCreateEventChannel();
  uint64_t address = 0;
  uint32_t rkey = 0;
  Options options;
  options.memfd = true;
  auto end = peer.Connect(events, options, &address, &rkey);
  if (!end) return 1;
  MeasurePingPong(end.get(), 8);
  MeasurePingPong(end.get(), 64);
  MeasurePingPong(end.get(), 200);
  MeasurePingPong(end.get(), 4096);
  peer.Kill(SIGSTOP);
  auto plain = SharedMemory::Create("plain", kBuffer, false);
  if (!plain.ok()) return 1;
  std::memset(plain->data(), 1, kBuffer);
  // First pass: page faults.
  MeasureReads(end.get(), address, rkey, 64, kBuffer);
  MeasureReadLists(end.get(), address, rkey, 64, 16);
  for (const uint64_t span : {uint64_t{16384}, uint64_t{kBuffer}}) {
    for (const uint32_t size : {64u, 192u, 4096u}) {
      MeasureCopies(plain->data(), size, span);
      MeasureCopies(plain->data(), size, span);
      MeasureReads(end.get(), address, rkey, size, span);
    }
  }
  for (const int depth : {1, 16}) {
    MeasureReadLists(end.get(), address, rkey, 64, depth);
    MeasureReadLists(end.get(), address, rkey, 192, depth);
  }
  return 0;
}

}  // namespace
}  // namespace verbena::conformance

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  return verbena::conformance::Run();
}
