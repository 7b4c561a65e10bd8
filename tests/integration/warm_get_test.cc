// A warm GET of a client that polls takes no memory and makes no system call.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "tests/integration/patient_options.h"
#include "tests/integration/process.h"
#include "verbena/connection.h"

// Both need calls of the C library's own, which sanitizers have their own ideas of.
#if defined(__x86_64__) && !defined(VERBENA_TSAN) && !defined(__SANITIZE_ADDRESS__)
#define VERBENA_WATCH_SYSTEM_CALLS 1
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <iterator>
#endif

namespace {

thread_local bool t_watching = false;
thread_local uint64_t t_allocations = 0;

void* Count(void* memory) {
  if (t_watching) ++t_allocations;
  return memory;
}

}  // namespace

#ifdef VERBENA_WATCH_SYSTEM_CALLS
// All memory comes from here, operator new's too.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* malloc(size_t size) { return Count(__libc_malloc(size)); }
void* calloc(size_t count, size_t size) { return Count(__libc_calloc(count, size)); }
void* realloc(void* memory, size_t size) { return Count(__libc_realloc(memory, size)); }
}
#else
// Not inlined: where only one of a pair is, the compiler takes them for strangers.
[[gnu::noinline]] void* operator new(size_t size) {
  if (void* const memory = std::malloc(size); memory != nullptr) return Count(memory);
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#endif

namespace verbena {
namespace {

using testing::PatientOptions;
using testing::ServerProcess;

constexpr int kKeys = 500;

class WarmGetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = ServerProcess::Start({"--memory=64MiB"});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    Options options = PatientOptions();
    options.poll_time = std::chrono::seconds(60);
    auto client = Connection::Connect(server_->address(), options);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    for (int i = 0; i < kKeys; ++i) {
      keys_.push_back("key-" + std::to_string(i) + "-of-some-length");
      ASSERT_TRUE(client_->Put(keys_.back(), std::string(100, 'v')).ok());
    }
    value_.reserve(1000);
    ASSERT_TRUE(GetAll());
  }

  // Each key, by both calls.
  bool GetAll() {
    bool ok = true;
    for (const std::string& key : keys_) {
      ok = ok && client_->Get(key, &value_).ok() && value_.size() == 100;
      bool done = false;
      ok = ok && client_
                     ->SubmitGet(key,
                                 [&](const absl::Status& status, const GetResult& result) {
                                   ok = ok && status.ok() && result.value.size() == 100;
                                   done = true;
                                 })
                     .ok();
      while (ok && !done) client_->Poll();
    }
    return ok;
  }

  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<Connection> client_;
  std::vector<std::string> keys_;
  std::string value_;
};

TEST_F(WarmGetTest, TakesNoMemory) {
  t_watching = true;
  const bool ok = GetAll();
  const auto mine = std::make_unique<int>(1);  // so that the counter is seen to count
  t_watching = false;
  EXPECT_TRUE(ok);
  EXPECT_EQ(t_allocations, 1u);
  EXPECT_EQ(*mine, 1);
}

#ifdef VERBENA_WATCH_SYSTEM_CALLS
std::atomic<uint64_t> g_reads{0};        // of what is there without waiting
std::atomic<uint64_t> g_other_calls{0};  // any others
std::atomic<int> g_last_call{-1};

// A system call is not made; it fails with EAGAIN, as if there were nothing to be had.
void OnSystemCall(int, siginfo_t* info, void* context) {
  static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RAX] = -EAGAIN;
  if (info->si_syscall == SYS_read) {
    g_reads.fetch_add(1);
  } else {
    g_other_calls.fetch_add(1);
    g_last_call.store(info->si_syscall);
  }
}

// From now on each system call of this thread is a signal instead, but for the ends of signal
// handlers and of the thread.
bool WatchSystemCalls() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {static_cast<unsigned short>(std::size(code)), code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// But for a look at the connection manager's events, every 10 ms.
TEST_F(WarmGetTest, MakesNoSystemCall) {
  struct sigaction action {};
  action.sa_sigaction = &OnSystemCall;
  action.sa_flags = SA_SIGINFO;
  ASSERT_EQ(sigaction(SIGSYS, &action, nullptr), 0);
  std::atomic<bool> watched{false};
  std::atomic<bool> ok{false};
  const int64_t begin = MonotonicNanos();
  std::thread thread([&] {
    watched = WatchSystemCalls();
    if (watched) {
      ok = GetAll();
      syscall(SYS_getppid);  // so that the filter is seen to work
    }
    syscall(SYS_exit, 0);
  });
  thread.join();
  const int64_t took = MonotonicNanos() - begin;
  ASSERT_TRUE(watched.load());
  EXPECT_TRUE(ok.load());
  EXPECT_EQ(g_other_calls.load(), 1u) << "the last one was number " << g_last_call.load();
  EXPECT_EQ(g_last_call.load(), SYS_getppid);
  EXPECT_LE(g_reads.load(), static_cast<uint64_t>(took / 10'000'000) + 1);
}
#endif

}  // namespace
}  // namespace verbena
