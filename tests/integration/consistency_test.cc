// Linearizability of what several processes see, each with a connection and a cache of its own,
// while changes go on and the software device copies every READ's cache lines in random order with
// pauses, for some of the processes the words of each line too: nothing torn, nothing stale,
// nothing lost.
//
// Everything that clients ask and are answered is recorded, with the times of invocation and answer
// on one clock, and checked against a register with versions (tests/linearizability). There are a
// few hot keys, whose values change in place, in blocks of many sizes, and by reference; and many
// others that fill the index so that segments split while it is read.
//
// The run goes on until the clients have made a given number of RDMA READs:
//   VERBENA_CONSISTENCY_READS   how many; without it 10^7 on the software device (less in builds
//   with
//                               sanitizers or assertions, and on other fabrics), times
//                               VERBENA_TEST_SCALE
// A long run by hand (some hours; memory stays as it is):
//   VERBENA_CONSISTENCY_READS=1000000000 build/release/bin/consistency_test --gtest_filter='*Torn*'
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "common/base/clock.h"
#include "tests/integration/fabric_under_test.h"
#include "tests/integration/process.h"
#include "tests/integration/recording.h"
#include "tests/integration/recording_client.h"
#include "tests/integration/run_program.h"
#include "tests/linearizability/checker.h"

namespace verbena::testing {
namespace {

using linearizability::Checker;
using linearizability::Condition;
using linearizability::Kind;
using linearizability::Operation;
using linearizability::Outcome;

#ifndef VERBENA_CONSISTENCY_READS
#if defined(NDEBUG)
#define VERBENA_CONSISTENCY_READS 10'000'000
#else
#define VERBENA_CONSISTENCY_READS 300'000
#endif
#endif

// Longer than any stretch takes, also where processors are emulated.
constexpr std::chrono::minutes kStretchPatience{5};

uint64_t ReadsToMake() {
  const char* const text = std::getenv("VERBENA_CONSISTENCY_READS");
  if (text == nullptr) {
    return static_cast<uint64_t>(
        Scaled(FabricName() == "soft" ? VERBENA_CONSISTENCY_READS : 100'000, 1000));
  }
  uint64_t reads = 0;
  if (!absl::SimpleAtoi(text, &reads)) {
    std::cerr << "VERBENA_CONSISTENCY_READS=" << text << " is not a number\n";
    std::exit(2);
  }
  return reads;
}

// Client processes, forked while the test has a single thread.
class Clients {
 public:
  explicit Clients(Recording& recording) : recording_(recording) {}
  ~Clients() { End(); }

  void Fork(const ClientRole& role) {
    const auto number = static_cast<uint32_t>(pids_.size());
    const pid_t pid = fork();
    if (pid == 0) {
      RunRecordingClient(recording_, number, role);
      _exit(0);
    }
    pids_.push_back(pid);
  }

  void Kill(uint32_t number) {
    kill(pids_[number], SIGKILL);
    waitpid(std::exchange(pids_[number], 0), nullptr, 0);
    recording_.GiveUpOn(number);
  }

  // Waits until `done()`; false if a client fails before, or it takes too long.
  template <typename Done>
  bool Await(Done done) {
    const auto deadline = std::chrono::steady_clock::now() + kStretchPatience;
    while (!done()) {
      if (std::chrono::steady_clock::now() > deadline || AnyHasEnded()) return false;
      usleep(200);
    }
    return true;
  }

  // Stops and reaps them; false if one of them failed.
  bool End() {
    recording_.Stop();
    bool all_well = !failed_;
    for (pid_t& pid : pids_) {
      int status = 0;
      if (pid == 0 || waitpid(std::exchange(pid, 0), &status, 0) <= 0) continue;
      all_well &= WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    return all_well;
  }

 private:
  bool AnyHasEnded() {
    for (pid_t& pid : pids_) {
      if (pid != 0 && waitpid(pid, nullptr, WNOHANG) == pid) {
        pid = 0;
        failed_ = true;
      }
    }
    return failed_;
  }

  Recording& recording_;
  std::vector<pid_t> pids_;
  bool failed_ = false;
};

struct Totals {
  uint64_t reads = 0;
  uint64_t retries = 0;
  uint64_t rpc_gets = 0;
  uint64_t changes = 0;
  uint64_t gets_into = 0;
  uint64_t batched = 0;
};

Totals Sum(Recording& recording) {
  Totals totals;
  for (uint32_t i = 0; i < recording.clients(); ++i) {
    const ClientCounters& counters = recording.counters(i);
    totals.reads += counters.reads;
    totals.retries += counters.read_retries;
    totals.rpc_gets += counters.rpc_gets;
    totals.changes += counters.changes;
    totals.gets_into += counters.gets_into;
    totals.batched += counters.batched;
  }
  return totals;
}

class Consistency : public ::testing::Test {
 protected:
  Consistency() {
    setenv("VERBENA_SOFT_READ_ORDER", "random", 1);
    setenv("VERBENA_SOFT_READ_PAUSE_NS", "200", 1);
    setenv("VERBENA_SOFT_SEED", "7", 1);
  }

  // After the clients have been forked.
  void StartServer(std::vector<std::string> flags = {"--memory=64MiB"}) {
    flags.push_back("--workers=2");
    auto server = ServerProcess::Start(std::move(flags));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server);
  }

  std::unique_ptr<ServerProcess> server_;
};

// Which answers a history has, so that a run tells what it was about.
class Tally {
 public:
  void Add(std::span<const Operation> history) {
    for (const Operation& operation : history) {
      ++counts_[{operation.kind, operation.condition, operation.outcome}];
    }
  }
  uint64_t Of(Kind kind, Condition condition, Outcome outcome) const {
    const auto it = counts_.find({kind, condition, outcome});
    return it == counts_.end() ? 0 : it->second;
  }

 private:
  std::map<std::tuple<Kind, Condition, Outcome>, uint64_t> counts_;
};

void ExpectAllKindsOfAnswers(const Tally& tally) {
  for (const Kind kind : {Kind::kGet, Kind::kPut, Kind::kDelete, Kind::kAdd, Kind::kAppend}) {
    EXPECT_GT(tally.Of(kind, Condition::kNone, Outcome::kOk), 0u);
  }
  for (const Condition condition :
       {Condition::kIfAbsent, Condition::kIfPresent, Condition::kIfVersion}) {
    EXPECT_GT(tally.Of(Kind::kPut, condition, Outcome::kOk), 0u);
  }
  EXPECT_GT(tally.Of(Kind::kGet, Condition::kNone, Outcome::kNotFound), 0u);
  EXPECT_GT(tally.Of(Kind::kPut, Condition::kIfAbsent, Outcome::kExists), 0u);
  EXPECT_GT(tally.Of(Kind::kPut, Condition::kIfPresent, Outcome::kNotFound), 0u);
  EXPECT_GT(tally.Of(Kind::kPut, Condition::kIfVersion, Outcome::kOtherVersion), 0u);
  EXPECT_GT(tally.Of(Kind::kDelete, Condition::kIfVersion, Outcome::kOk), 0u);
  EXPECT_GT(tally.Of(Kind::kAdd, Condition::kNone, Outcome::kNotANumber), 0u);
  EXPECT_GT(tally.Of(Kind::kAdd, Condition::kNone, Outcome::kOverflow), 0u);
}

// A cache that is too small for the index, two that hold all of it, and none. What is READ word by
// word are items with and without a copy of their bucket, and buckets.
constexpr ClientRole kRoles[] = {
    {.changes_in_1000 = 900, .cache_bytes = 4 * 36 * 1024, .depth = 16, .read_words = true},
    {.changes_in_1000 = 800, .cache_bytes = 64 << 20, .depth = 16},
    {.changes_in_1000 = 10, .cache_bytes = 64 << 20, .depth = 4},
    {.changes_in_1000 = 0, .cache_bytes = 0, .depth = 2, .read_words = true},
};

uint64_t ReadsByWords(Recording& recording) {
  uint64_t reads = 0;
  for (size_t i = 0; i < std::size(kRoles); ++i) {
    if (kRoles[i].read_words) reads += recording.counters(static_cast<uint32_t>(i)).reads;
  }
  return reads;
}

// Checks what `clients` do until they have made so many READs.
void CheckUntil(uint64_t wanted, Clients& clients, Recording& recording, Checker& checker,
                Tally& tally) {
  uint64_t operations = 0;
  int64_t checking = 0;
  bool last = false;
  for (uint32_t stretch = 0; !last; ++stretch) {
    ASSERT_TRUE(clients.Await([&] { return recording.Ended(stretch); }));
    // A short run goes on until it has been about all that it is to be about.
    const Totals so_far = Sum(recording);
    const bool tested = so_far.retries > 0 && so_far.gets_into > 0 && so_far.batched > 0 &&
                        ReadsByWords(recording) > so_far.reads / 8;
    last = so_far.reads >= (tested ? wanted : 50 * wanted);
    if (!last) recording.Next(stretch + 1);
    const std::vector<Operation> history = recording.Operations(stretch);
    const int64_t begin = MonotonicNanos();
    const absl::Status status = checker.Add(history);
    ASSERT_TRUE(status.ok()) << status;
    checking += MonotonicNanos() - begin;
    operations += history.size();
    tally.Add(history);
  }
  EXPECT_TRUE(clients.End());
  const Totals totals = Sum(recording);
  EXPECT_GT(totals.retries, 0u) << "the readers never met a change: nothing was tested";
  EXPECT_GT(totals.gets_into, 0u);
  EXPECT_GT(totals.batched, 0u);
  const uint64_t by_words = ReadsByWords(recording);
  EXPECT_GT(by_words, totals.reads / 8);
  std::cout << "operations " << operations << " (" << totals.batched << " of them several at once, "
            << totals.gets_into << " GETs into registered memory), RDMA READs " << totals.reads
            << " (" << by_words << " word by word on the software device), changes "
            << totals.changes << ", READ retries " << totals.retries << ", GETs by the server "
            << totals.rpc_gets << ", checked in " << checking / 1'000'000 << " ms\n";
}

// Operations of each client in a stretch.
uint32_t StretchFor(uint64_t reads) {
  return static_cast<uint32_t>(std::clamp<uint64_t>(reads / 40, 500, 40'000));
}

TEST_F(Consistency, NothingTornNothingStaleNothingLost) {
  const uint64_t wanted = ReadsToMake();
  Recording recording(std::size(kRoles), StretchFor(wanted), Recording::WhenFull::kAllEnd);
  Clients clients(recording);
  for (const ClientRole& role : kRoles) clients.Fork(role);
  ASSERT_NO_FATAL_FAILURE(StartServer());
  recording.Begin(server_->address());
  Checker checker;
  Tally tally;
  ASSERT_NO_FATAL_FAILURE(CheckUntil(wanted, clients, recording, checker, tally));
  const Totals totals = Sum(recording);
  EXPECT_GT(totals.changes, wanted / 1000);
  // Short runs on slow fabrics need not meet the rare ones.
  if (totals.changes > 10'000) ExpectAllKindsOfAnswers(tally);
}

// Keys that end by themselves, in a region that is too small for all of them: items expire, are
// evicted and moved, and their blocks go to other sizes, while the same operations go on.
TEST_F(Consistency, ItemsThatExpireAreEvictedAndMoved) {
  const uint64_t wanted = std::max<uint64_t>(ReadsToMake() / 10, 1000);
  Recording recording(std::size(kRoles) + 1, StretchFor(wanted), Recording::WhenFull::kAllEnd);
  Clients clients(recording);
  std::vector<ClientRole> roles(std::begin(kRoles), std::end(kRoles));
  // So that all of it happens in runs that are too short to fill the region by themselves.
  roles.push_back(
      {.changes_in_1000 = 500, .cache_bytes = 64 << 20, .depth = 8, .ballast_keys = 3200});
  for (ClientRole& role : roles) {
    role.ttl_in_1000 = 300;
    role.filler_bytes = 4000;
    clients.Fork(role);
  }
  ASSERT_NO_FATAL_FAILURE(StartServer({"--memory=4MiB", "--eviction=s3fifo", "--expiry_tick=2ms"}));
  recording.Begin(server_->address());
  Checker checker({.evictions = true});
  Tally tally;
  ASSERT_NO_FATAL_FAILURE(CheckUntil(wanted, clients, recording, checker, tally));
  // By another process: this one forks clients, which it can do with a single thread only.
  const auto info =
      Cli({"--server=" + server_->address(), "--fabric=" + FabricName(), "--json", "info"});
  ASSERT_EQ(info.code, 0) << info.err;
  const auto json = nlohmann::json::parse(info.out);
  const auto evicted = json["eviction"]["evicted"].get<uint64_t>();
  const auto expired = json["expiry"]["expired"].get<uint64_t>();
  const auto moved = json["compaction"]["items_moved"].get<uint64_t>();
  const auto splits = json["index"]["splits"].get<uint64_t>();
  std::cout << "expired " << expired << ", evicted " << evicted << ", moved " << moved
            << ", splits " << splits << "\n";
  EXPECT_GT(expired, 0u);
  EXPECT_GT(evicted, 0u);
  EXPECT_GT(moved, 0u);
  EXPECT_GT(splits, 0u);
  EXPECT_GT(tally.Of(Kind::kExpire, Condition::kNone, Outcome::kOk), 0u);
}

// Clients are killed in the middle of what they do, one in each stretch: changes without an answer
// take effect once, at some time, or never.
TEST_F(Consistency, ChangesOfClientsThatAreKilled) {
  constexpr uint32_t kSteady = 2;
  const auto victims = static_cast<uint32_t>(Scaled(8, 3));
  const auto until_killed = static_cast<uint32_t>(Scaled(1000, 50));
  Recording recording(kSteady + victims, 40 * until_killed, Recording::WhenFull::kOthersGoOn);
  Clients clients(recording);
  for (uint32_t i = 0; i < kSteady + victims; ++i) {
    if (i >= kSteady) recording.HoldBack(i);
    clients.Fork({.changes_in_1000 = i < kSteady ? 100u : 900u,
                  .cache_bytes = 64 << 20,
                  .depth = i < kSteady ? 4u : 2u,
                  .read_words = i % 2 == 0});
  }
  ASSERT_NO_FATAL_FAILURE(StartServer());
  recording.Begin(server_->address());
  Checker checker;
  int64_t unknown = 0;
  int64_t checking = 0;
  for (uint32_t stretch = 0; stretch < victims; ++stretch) {
    const uint32_t victim = kSteady + stretch;
    recording.Next(stretch);
    recording.Admit(victim);
    ASSERT_TRUE(clients.Await([&] { return recording.CountOf(victim, stretch) >= until_killed; }));
    clients.Kill(victim);
    recording.EndStretch();
    ASSERT_TRUE(clients.Await([&] { return recording.Ended(stretch); }));
    const std::vector<Operation> history = recording.Operations(stretch);
    const int64_t begin = MonotonicNanos();
    const absl::Status status = checker.Add(history);
    ASSERT_TRUE(status.ok()) << status;
    checking += MonotonicNanos() - begin;
    unknown += std::count_if(history.begin(), history.end(), [](const auto& operation) {
      return operation.outcome == Outcome::kUnknown;
    });
  }
  EXPECT_TRUE(clients.End());
  std::cout << "operations of unknown outcome " << unknown << ", checked in "
            << checking / 1'000'000 << " ms\n";
  EXPECT_GT(unknown, 0);
}

}  // namespace
}  // namespace verbena::testing
