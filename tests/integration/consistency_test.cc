// Readers and writers on the same keys from several processes, with the software device copying
// cache lines in random order: no torn value, no value that is older than an acknowledged write.
//
// Each key is owned by one writer, which counts up: state c of a key is a value that spells c, or,
// for every kDeleteEvery-th c, the key's absence. Before it submits state c the writer stores c in
// `started`, after the server's answer in `acked`. A reader loads `acked` before a GET and
// `started` after it: what the GET saw must be a state between the two, and never older than what
// the same reader saw before.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/integration/fabric_under_test.h"
#include "tests/integration/process.h"
#include "verbena/connection.h"

namespace verbena {
namespace {

constexpr int kKeys = 64;
constexpr int kWriters = 2;
constexpr uint64_t kDeleteEvery = 16;

#ifndef VERBENA_CONSISTENCY_SECONDS
#define VERBENA_CONSISTENCY_SECONDS 10
#endif

// Lives in memory that all processes of the test share.
struct Shared {
  struct alignas(64) Key {
    std::atomic<uint64_t> started{0};
    std::atomic<uint64_t> acked{0};
  };
  Key keys[kKeys];
  // The server's address, valid once `ready` is set; empty if the server did not start.
  char address[64] = "";
  std::atomic<bool> ready{false};
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> reads{0};
  std::atomic<uint64_t> writes{0};
  std::atomic<uint64_t> retries{0};
  std::atomic<uint64_t> rpc_gets{0};
};

std::string KeyName(int key) { return "consistency-key-" + std::to_string(key); }

bool IsDeleted(uint64_t state) { return state % kDeleteEvery == 0; }

// A value that spells its key and state throughout, of a size that often, not always, stays in the
// size class (in-place updates and moves to other blocks).
std::string ValueOf(int key, uint64_t state) {
  const std::string stamp = std::to_string(key) + ":" + std::to_string(state) + ";";
  const size_t size = state % 4 == 0 ? 64 + state * 37 % 3000 : 400;
  std::string value;
  while (value.size() < size) value += stamp;
  return value;
}

// The state that a value spells; 0 if it is not exactly one state's value (torn).
uint64_t StateOf(int key, std::string_view value) {
  const std::string prefix = std::to_string(key) + ":";
  if (!value.starts_with(prefix)) return 0;
  uint64_t state = 0;
  for (size_t at = prefix.size(); at < value.size() && value[at] != ';'; ++at) {
    state = state * 10 + static_cast<uint64_t>(value[at] - '0');
  }
  return value == ValueOf(key, state) ? state : 0;
}

// Fails the calling process with a message; the parent sees the exit status.
[[noreturn]] void Fail(const std::string& what) {
  std::cerr << "consistency: " << what << std::endl;
  _exit(1);
}

std::unique_ptr<Connection> Connect(const std::string& address, uint64_t cache_bytes) {
  Options options;
  options.fabric = testing::FabricName();
  options.connect_timeout = std::chrono::seconds(60);
  options.cache_bytes = cache_bytes;
  options.operation_timeout = std::chrono::seconds(60);
  auto connection = Connection::Connect(address, options);
  if (!connection.ok()) Fail(connection.status().ToString());
  return std::move(connection).value();
}

void Write(Shared& shared, const std::string& address, int writer) {
  const auto connection = Connect(address, 1 << 20);
  std::minstd_rand random(static_cast<unsigned>(writer) + 1);
  while (!shared.stop.load(std::memory_order_relaxed)) {
    const int key = static_cast<int>(random() % (kKeys / kWriters)) * kWriters + writer;
    Shared::Key& entry = shared.keys[key];
    const uint64_t state = entry.acked.load() + 1;
    entry.started.store(state);
    const absl::Status status = IsDeleted(state)
                                    ? connection->Delete(KeyName(key)).status()
                                    : connection->Put(KeyName(key), ValueOf(key, state)).status();
    if (!status.ok()) Fail("write of state " + std::to_string(state) + ": " + status.ToString());
    entry.acked.store(state);
    shared.writes.fetch_add(1);
  }
}

void Check(int key, const absl::Status& status, const std::string& value, uint64_t floor,
           uint64_t ceiling, uint64_t* seen) {
  const std::string where = KeyName(key) + ": between states " + std::to_string(floor) + " and " +
                            std::to_string(ceiling) + " ";
  if (absl::IsNotFound(status)) {
    // Some state from floor to ceiling must be an absence; state 0 is one.
    const uint64_t absent = ceiling / kDeleteEvery * kDeleteEvery;
    if (absent < floor) Fail(where + "was not found");
    return;
  }
  if (!status.ok()) Fail(where + status.ToString());
  const uint64_t state = StateOf(key, value);
  if (state == 0 || IsDeleted(state)) Fail(where + "got a torn value: " + value.substr(0, 80));
  if (state < floor) Fail(where + "got a stale state " + std::to_string(state));
  if (state > ceiling) Fail(where + "got state " + std::to_string(state) + " from the future");
  if (state < *seen) Fail(where + "went back to " + std::to_string(state));
  *seen = state;
}

void Read(Shared& shared, const std::string& address, int reader) {
  // One reader without a cache, the others with one that holds every bucket.
  const auto connection = Connect(address, reader == 0 ? 0 : 1 << 20);
  std::minstd_rand random(static_cast<unsigned>(reader) + 100);
  std::vector<uint64_t> seen(kKeys, 0);
  std::string value;
  while (!shared.stop.load(std::memory_order_relaxed)) {
    const int key = static_cast<int>(random() % kKeys);
    const Shared::Key& entry = shared.keys[key];
    const uint64_t floor = entry.acked.load();
    const absl::Status status = connection->Get(KeyName(key), &value);
    const uint64_t ceiling = entry.started.load();
    Check(key, status, value, floor, ceiling, &seen[static_cast<size_t>(key)]);
    shared.reads.fetch_add(1);
  }
  shared.retries.fetch_add(connection->stats().read_retries);
  shared.rpc_gets.fetch_add(connection->stats().rpc_gets);
}

// Processes are forked while the test has a single thread, so they wait for the server's address.
template <typename Body>
pid_t Spawn(Shared& shared, Body body) {
  const pid_t pid = fork();
  if (pid == 0) {
    while (!shared.ready.load()) usleep(1000);
    if (shared.address[0] != '\0') body(std::string(shared.address));
    _exit(0);
  }
  return pid;
}

// Reaps one of `children` that has ended; 0 if none has. (Not any child: the server is one too.)
pid_t WaitAny(std::vector<pid_t>& children, int* status) {
  for (pid_t& child : children) {
    if (child == 0 || waitpid(child, status, WNOHANG) != child) continue;
    return std::exchange(child, 0);
  }
  return 0;
}

class Consistency : public ::testing::Test {
 protected:
  Consistency() {
    void* memory =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared_ = new (memory) Shared;
  }
  ~Consistency() override { munmap(shared_, sizeof(Shared)); }

  void SpawnAll(int readers) {
    for (int writer = 0; writer < kWriters; ++writer) {
      children_.push_back(Spawn(*shared_, [this, writer](const std::string& address) {
        Write(*shared_, address, writer);
      }));
    }
    for (int reader = 0; reader < readers; ++reader) {
      children_.push_back(Spawn(*shared_, [this, reader](const std::string& address) {
        Read(*shared_, address, reader);
      }));
    }
  }

  // Lets writers and readers run for the test's time; false if one of them failed.
  bool Run(const std::string& address) {
    address.copy(shared_->address, sizeof(shared_->address) - 1);
    shared_->ready.store(true);
    const auto end = std::chrono::steady_clock::now() +
                     std::chrono::seconds(testing::Scaled(VERBENA_CONSISTENCY_SECONDS, 10));
    bool all_well = true;
    size_t left = children_.size();
    while (left > 0) {
      if (std::chrono::steady_clock::now() > end || !all_well) shared_->stop.store(true);
      int status = 0;
      const pid_t ended = WaitAny(children_, &status);
      if (ended > 0) {
        --left;
        all_well &= WIFEXITED(status) && WEXITSTATUS(status) == 0;
      } else {
        usleep(10000);
      }
    }
    return all_well;
  }

  Shared* shared_;
  std::vector<pid_t> children_;
};

TEST_F(Consistency, NothingTornNothingStaleWithCacheLinesInRandomOrder) {
  setenv("VERBENA_SOFT_READ_ORDER", "random", 1);
  setenv("VERBENA_SOFT_READ_PAUSE_NS", "200", 1);
  setenv("VERBENA_SOFT_SEED", "7", 1);
  SpawnAll(/*readers=*/3);
  auto server = testing::ServerProcess::Start({"--memory=64MiB", "--workers=2"});
  EXPECT_TRUE(server.ok()) << server.status();
  EXPECT_TRUE(Run(server.ok() ? (*server)->address() : ""));
  std::cout << "reads " << shared_->reads << ", writes " << shared_->writes << ", READ retries "
            << shared_->retries << ", GETs by the server " << shared_->rpc_gets << "\n";
  const auto least = static_cast<uint64_t>(testing::Scaled(1000, 100));
  EXPECT_GT(shared_->reads.load(), least);
  EXPECT_GT(shared_->writes.load(), least);
  EXPECT_GT(shared_->retries.load(), 0u) << "the readers never met a change: nothing was tested";
}

}  // namespace
}  // namespace verbena
