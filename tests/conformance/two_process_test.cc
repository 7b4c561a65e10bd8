// Client and server in two processes: READs without the server, memory kinds, a peer's death.
#include <gtest/gtest.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <thread>

#include "common/base/clock.h"
#include "tests/conformance/peer_process.h"

namespace verbena::conformance {
namespace {

std::string ProcPath(pid_t pid, const char* name) {
  return "/proc/" + std::to_string(pid) + "/" + name;
}

size_t OpenDescriptors(pid_t pid = getpid()) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(ProcPath(pid, "fd"))) {
    (void)entry;
    ++count;
  }
  return count;
}

// Whether a process has a memfd of that name open or mapped.
bool Holds(pid_t pid, const std::string& memfd) {
  for (const auto& entry : std::filesystem::directory_iterator(ProcPath(pid, "fd"))) {
    std::error_code gone;  // closed since
    if (std::filesystem::read_symlink(entry.path(), gone).string().find(memfd) != std::string::npos)
      return true;
  }
  std::ifstream maps(ProcPath(pid, "maps"));
  for (std::string line; std::getline(maps, line);) {
    if (line.find(memfd) != std::string::npos) return true;
  }
  return false;
}

template <typename Condition>
bool Eventually(Condition condition) {
  const int64_t deadline = MonotonicNanos() + int64_t{kPatienceMs} * 1'000'000;
  while (!condition()) {
    if (MonotonicNanos() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

class TwoProcessTest : public testing::Test {
 protected:
  void SetUp() override { events_ = Api().CmCreateEventChannel(); }
  void TearDown() override {
    end_.reset();
    Api().CmDestroyEventChannel(events_);
  }
  void Connect(PeerProgram* peer, const Options& options = {}) {
    end_ = peer->Connect(events_, options, &address_, &rkey_);
    ASSERT_TRUE(end_);
  }
  void ExpectPattern(size_t offset, size_t size) {
    for (size_t i = 0; i < size; ++i) {
      ASSERT_EQ(end_->data[i], static_cast<uint8_t>((offset + i) * 7)) << i;
    }
  }

  rdma_event_channel* events_ = nullptr;
  // Sends the peer what it is to READ, and waits for the answer that it sends when it has.
  ibv_wc AskForRead(const void* at, uint32_t rkey, uint32_t length) {
    const auto address = reinterpret_cast<uint64_t>(at);
    const std::array<uint32_t, 2> key_and_length = {rkey, length};
    std::memcpy(end_->data, &address, 8);
    std::memcpy(end_->data + 8, key_and_length.data(), 8);
    EXPECT_EQ(end_->PostSend(1, 0, 16, 0), 0);
    return end_->Wait();
  }

  std::unique_ptr<Endpoint> end_;
  uint64_t address_ = 0;
  uint32_t rkey_ = 0;
};

TEST_F(TwoProcessTest, ReadsNeedNoThreadOfTheTarget) {
  PeerProgram peer("idle");
  Connect(&peer);
  peer.Kill(SIGSTOP);
  for (const uint32_t size : {8u, 100u, 5000u, 300'000u}) {
    // Beyond the receive buffers, which messages could overwrite.
    const size_t offset = 300'001;
    ASSERT_EQ(end_->PostRead(size, 0, size, address_ + offset, rkey_), 0);
    ASSERT_EQ(end_->Wait().status, IBV_WC_SUCCESS);
    ExpectPattern(offset, size);
  }
  // A SEND waits in the ring of a stopped peer, and lands when it goes on.
  ASSERT_EQ(end_->PostSend(1, 0, 16), 0);
  EXPECT_TRUE(end_->Quiet(30));
  peer.Kill(SIGCONT);
  EXPECT_EQ(end_->Wait().status, IBV_WC_SUCCESS);
}

TEST_F(TwoProcessTest, WriteAndReadBack) {
  PeerProgram peer("idle");
  Connect(&peer);
  std::memset(end_->data, 0x77, 4096);
  ASSERT_EQ(end_->PostWrite(1, 0, 4096, address_ + 500'000, rkey_), 0);
  ASSERT_EQ(end_->Wait().status, IBV_WC_SUCCESS);
  std::memset(end_->data, 0, 4096);
  ASSERT_EQ(end_->PostRead(2, 0, 4096, address_ + 500'000, rkey_), 0);
  ASSERT_EQ(end_->Wait().status, IBV_WC_SUCCESS);
  EXPECT_EQ(end_->data[4095], 0x77);
}

TEST_F(TwoProcessTest, EchoPolling) {
  PeerProgram peer("echo");
  Connect(&peer);
  for (uint32_t i = 0; i < 2000; ++i) {
    ASSERT_EQ(end_->PostRecv(1, 4096, 4096), 0);
    std::memcpy(end_->data, &i, 4);
    ASSERT_EQ(end_->PostSend(2, 0, 4 + i), 0);
    for (int completions = 0; completions < 2; ++completions) {
      const ibv_wc wc = end_->Wait();
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
      if (wc.wr_id != 1) continue;
      ASSERT_EQ(wc.byte_len, 4 + i);
      ASSERT_EQ(std::memcmp(end_->data + 4096, &i, 4), 0);
    }
  }
}

TEST_F(TwoProcessTest, EchoWithEventsAtBothEnds) {
  PeerProgram peer("events");
  Options options;
  options.use_channel = true;
  Connect(&peer, options);
  for (int round = 0; round < 5000; ++round) {
    ASSERT_EQ(end_->PostRecv(1, 4096, 64), 0);
    ASSERT_EQ(end_->PostSend(2, 0, 32, IBV_SEND_SIGNALED), 0);
    for (int completions = 0; completions < 2;) {
      ASSERT_EQ(ibv_req_notify_cq(end_->cq, 0), 0);
      ibv_wc wc;
      int n = 0;
      while (ibv_poll_cq(end_->cq, 1, &wc) == 1) {
        ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
        ++n;
      }
      completions += n;
      if (n > 0) continue;
      ASSERT_TRUE(Readable(end_->channel->fd, kPatienceMs)) << "lost wake-up in round " << round;
      ibv_cq* cq;
      void* context;
      ASSERT_EQ(Api().GetCqEvent(end_->channel, &cq, &context), 0);
      Api().AckCqEvents(cq, 1);
    }
  }
}

TEST_F(TwoProcessTest, PeerReadsMemoryRegisteredLater) {
  PeerProgram peer("fetch");
  Connect(&peer);
  ASSERT_EQ(end_->PostRecv(0, 4096, 4096), 0);
  for (int round = 0; round < 4; ++round) {
    auto memory = SharedMemory::Create("later", 1 << 16, false);
    ASSERT_TRUE(memory.ok());
    for (size_t i = 0; i < memory->size(); ++i) {
      memory->data()[i] = static_cast<uint8_t>(i * 7 + static_cast<size_t>(round));
    }
    ibv_mr* mr = Api().RegMr(end_->pd, memory->data() + 4096, 8192, IBV_ACCESS_REMOTE_READ);
    ASSERT_NE(mr, nullptr);
    const ibv_wc wc = AskForRead(memory->data() + 5000, mr->rkey, 3000);
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
    ASSERT_EQ(wc.byte_len, 3000u);
    EXPECT_EQ(std::memcmp(end_->data + 4096, memory->data() + 5000, 3000), 0);
    ASSERT_EQ(end_->PostRecv(0, 4096, 4096), 0);
    EXPECT_EQ(Api().DeregMr(mr), 0);
  }
}

TEST_F(TwoProcessTest, SealedMemoryCanBeRead) {
  PeerProgram peer("sealed");
  Connect(&peer);
  ASSERT_EQ(end_->PostRead(1, 0, 1000, address_ + 300'000, rkey_), 0);
  ASSERT_EQ(end_->Wait().status, IBV_WC_SUCCESS);
  ExpectPattern(300'000, 1000);
}

TEST_F(TwoProcessTest, KilledPeer) {
  PeerProgram peer("idle");
  Connect(&peer);
  ASSERT_EQ(end_->PostRecv(5, 0, 64), 0);
  const int64_t start = MonotonicNanos();
  peer.Kill(SIGKILL);
  const Event event = NextEvent(events_, 1000);
  ASSERT_NE(event.get(), nullptr);
  EXPECT_EQ(event->event, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(end_->Wait(1000).status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_LT(MonotonicNanos() - start, 1'000'000'000);
  EXPECT_EQ(end_->State(), IBV_QPS_ERR);
  EXPECT_EQ(end_->PostRead(6, 0, 8, address_, rkey_), 0);
  EXPECT_EQ(end_->Wait().status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(TwoProcessTest, KilledPeerWakesASleeper) {
  PeerProgram peer("idle");
  Options options;
  options.use_channel = true;
  Connect(&peer, options);
  ASSERT_EQ(end_->PostRecv(5, 0, 64), 0);
  ASSERT_EQ(ibv_req_notify_cq(end_->cq, 0), 0);
  peer.Kill(SIGKILL);
  EXPECT_TRUE(Readable(end_->channel->fd, 1000));
}

TEST_F(TwoProcessTest, ForkedChildHidesNothing) {
  // The child has copies of all descriptors, and lives on.
  PeerProgram peer("idle");
  Connect(&peer);
  int hold[2];
  ASSERT_EQ(pipe(hold), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(hold[1]);
    const bool dead = Api().CmCreateEventChannel() == nullptr;
    char byte;
    (void)!read(hold[0], &byte, 1);
    _exit(dead ? 0 : 1);
  }
  close(hold[0]);
  peer.Kill(SIGKILL);
  EXPECT_EQ(NextEvent(events_, 1000)->event, RDMA_CM_EVENT_DISCONNECTED);
  close(hold[1]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the device is dead in a child";
}

TEST_F(TwoProcessTest, ListenersOfAParentAreClosedInItsChild) {
  rdma_cm_id* listener = ListenOnFreePort(events_);
  ASSERT_NE(listener, nullptr);
  sockaddr_in address = Loopback(PortOf(listener));
  int hold[2];
  ASSERT_EQ(pipe(hold), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(hold[1]);
    char byte;
    (void)!read(hold[0], &byte, 1);
    _exit(0);
  }
  close(hold[0]);
  EXPECT_EQ(Api().CmDestroyId(listener), 0);
  rdma_cm_id* again = nullptr;
  ASSERT_EQ(Api().CmCreateId(events_, &again, nullptr, RDMA_PS_TCP), 0);
  // The child closes its copies when it first runs.
  const int64_t deadline = MonotonicNanos() + int64_t{kPatienceMs} * 1'000'000;
  int result;
  while ((result = Api().CmBindAddr(again, reinterpret_cast<sockaddr*>(&address))) != 0 &&
         MonotonicNanos() < deadline) {
  }
  EXPECT_EQ(result, 0);
  EXPECT_EQ(Api().CmDestroyId(again), 0);
  close(hold[1]);
  waitpid(child, nullptr, 0);
}

TEST_F(TwoProcessTest, NoDescriptorsAreLost) {
  size_t before = 0;
  for (int round = 0; round < 4; ++round) {
    PeerProgram peer("idle");
    for (int i = 0; i < 3; ++i) {
      Options options;
      options.memfd = true;
      options.use_channel = true;
      Connect(&peer, options);
      ASSERT_EQ(end_->PostRead(1, 0, 64, address_, rkey_), 0);
      ASSERT_EQ(end_->Wait().status, IBV_WC_SUCCESS);
      end_.reset();
    }
    Connect(&peer);
    peer.Kill(SIGKILL);
    EXPECT_EQ(NextEvent(events_)->event, RDMA_CM_EVENT_DISCONNECTED);
    end_.reset();
    // The first round opens what lasts.
    if (round == 0) before = OpenDescriptors();
  }
  // The service thread closes its own after the last event was told.
  const int64_t deadline = MonotonicNanos() + int64_t{kPatienceMs} * 1'000'000;
  while (OpenDescriptors() > before + 1 && MonotonicNanos() < deadline) std::this_thread::yield();
  EXPECT_LE(OpenDescriptors(), before + 1);
}

TEST_F(TwoProcessTest, ConnectionsBesideALastingOneLeaveNoDescriptors) {
  PeerProgram peer("events", 300'000);
  Options options;
  options.use_channel = true;
  options.memfd = true;
  options.buffer = 4096;
  Connect(&peer, options);
  const std::unique_ptr<Endpoint> lasting = std::move(end_);
  const uint64_t lasting_address = address_;
  const uint32_t lasting_rkey = rkey_;
  size_t ours = 0;
  size_t theirs = 0;
  constexpr int kConnections = 200;
  for (int i = 0; i < kConnections; ++i) {
    Connect(&peer, options);
    ASSERT_EQ(end_->PostRead(1, 0, 64, address_, rkey_), 0);
    ASSERT_EQ(end_->Wait().status, IBV_WC_SUCCESS);
    if (i == 0) {
      ours = OpenDescriptors();
      theirs = OpenDescriptors(peer.pid);
    }
    end_.reset();
  }
  // Both ends close some of theirs a little later.
  EXPECT_TRUE(Eventually([&] { return OpenDescriptors() <= ours; })) << OpenDescriptors();
  EXPECT_TRUE(Eventually([&] { return OpenDescriptors(peer.pid) <= theirs; }))
      << OpenDescriptors(peer.pid) << " of the peer, " << theirs << " before";
  // What the lasting one has been given is still there.
  ASSERT_EQ(lasting->PostRead(1, 64, 64, lasting_address + 270'000, lasting_rkey), 0);
  ASSERT_EQ(lasting->Wait().status, IBV_WC_SUCCESS);
  EXPECT_EQ(lasting->data[65], static_cast<uint8_t>(270'001 * 7));
}

TEST_F(TwoProcessTest, AnInitiatorLetsGoOfMemoryThatIsRegisteredNoMore) {
  PeerProgram peer("fetch");
  Connect(&peer);
  auto memory = SharedMemory::Create("withdrawn-memory", 1 << 16, false);
  ASSERT_TRUE(memory.ok());
  std::memset(memory->data(), 0x5a, memory->size());
  // The second round announces the same memory again.
  for (int round = 0; round < 2; ++round) {
    ibv_mr* first = Api().RegMr(end_->pd, memory->data(), 8192, IBV_ACCESS_REMOTE_READ);
    ibv_mr* second = Api().RegMr(end_->pd, memory->data() + 8192, 8192, IBV_ACCESS_REMOTE_READ);
    ASSERT_TRUE(first != nullptr && second != nullptr);
    for (ibv_mr* mr : {first, second}) {
      ASSERT_EQ(end_->PostRecv(0, 4096, 4096), 0);
      const ibv_wc wc = AskForRead(mr->addr, mr->rkey, 4096);
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
      ASSERT_EQ(wc.byte_len, 4096u);
      EXPECT_EQ(end_->data[4096], 0x5a);
      EXPECT_TRUE(Holds(peer.pid, "withdrawn-memory")) << "the other registration is in it";
      EXPECT_EQ(Api().DeregMr(mr), 0);
    }
    EXPECT_TRUE(Eventually([&] { return !Holds(peer.pid, "withdrawn-memory"); }));
  }
}

bool CanReadMemoryOf(pid_t pid, uint64_t address) {
  char byte;
  const iovec local = {&byte, 1};
  const iovec remote = {reinterpret_cast<void*>(address), 1};
  return process_vm_readv(pid, &local, 1, &remote, 1, 0) == 1;
}

TEST_F(TwoProcessTest, MemoryOutsideAMemfdIsReachedThroughTheKernel) {
  PeerProgram peer("heap");
  Connect(&peer);
  ASSERT_EQ(end_->PostRead(1, 0, 4096, address_ + 300'000, rkey_), 0);
  const ibv_wc wc = end_->Wait();
  // Where the system forbids it (ptrace_scope, seccomp) the READ is refused, not wrong.
  if (!CanReadMemoryOf(peer.pid, address_)) {
    EXPECT_EQ(wc.status, IBV_WC_REM_OP_ERR);
    return;
  }
  ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
  ExpectPattern(300'000, 4096);
}

}  // namespace
}  // namespace verbena::conformance
