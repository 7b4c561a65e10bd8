#include "server/net/queue_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "server/net/send_ledger.h"

namespace verbena::net {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kMaxMr = uint64_t{1} << 40;

DeviceLimits BigDevice() {
  return {.name = "big0",
          .max_qp = 100'000,
          .max_qp_wr = 32768,
          .max_sge = 32,
          .max_cq = 100'000,
          .max_cqe = 4'000'000,
          .max_srq = 10'000,
          .max_srq_wr = 32768,
          .max_srq_sge = 32,
          .max_mr = 100'000,
          .max_mr_size = kMaxMr,
          .max_pd = 1000};
}

TEST(QueuePlan, DefaultsOnABigDevice) {
  const auto plan = PlanQueues(BigDevice(), {.workers = 4});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_TRUE(plan->shared_receives());
  EXPECT_EQ(plan->receives, kDefaultReceives);
  EXPECT_EQ(plan->receive_cq_depth, 2 * kDefaultReceives);
  EXPECT_EQ(plan->connections_per_worker, kDefaultReceives / 2);
  EXPECT_EQ(plan->max_connections, kDefaultMaxConnections);
  EXPECT_EQ(plan->window, kDefaultWindow);
  EXPECT_EQ(plan->send_depth, kDefaultWindow + kSpareReceives + kReadsInFlight + 1);
}

TEST(QueuePlan, MoreConnectionsMakeDeeperQueues) {
  const auto plan = PlanQueues(BigDevice(), {.workers = 1, .max_connections = 8192});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->max_connections, 8192u);
  EXPECT_GE(plan->receives, 2 * 8192u);
}

TEST(QueuePlan, ASmallDeviceLowersTheDefaults) {
  DeviceLimits device = BigDevice();
  device.max_cqe = 1000;
  device.max_qp = 50;
  const auto plan = PlanQueues(device, {.workers = 2});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->receives, 500u);
  EXPECT_EQ(plan->max_connections, 48u);
}

DeviceLimits With(uint32_t DeviceLimits::*member, uint32_t value) {
  DeviceLimits device = BigDevice();
  device.*member = value;
  return device;
}

// The window is what gives way first.
TEST(QueuePlan, TheDefaultWindowShrinks) {
  const auto of_queue = PlanQueues(With(&DeviceLimits::max_qp_wr, 16), {});
  ASSERT_TRUE(of_queue.ok()) << of_queue.status().ToString();
  EXPECT_EQ(of_queue->window, 8u);
  EXPECT_EQ(of_queue->send_depth, 16u);
  const auto of_cq = PlanQueues(With(&DeviceLimits::max_cqe, 64), {});
  ASSERT_TRUE(of_cq.ok()) << of_cq.status().ToString();
  EXPECT_EQ(of_cq->receives, 32u);
  EXPECT_EQ(of_cq->window, 17u);
  EXPECT_GE(of_cq->max_connections, 6u);
  // One that was asked for does not.
  EXPECT_FALSE(PlanQueues(With(&DeviceLimits::max_qp_wr, 16), {.window = 9}).ok());
  EXPECT_EQ(PlanQueues(With(&DeviceLimits::max_qp_wr, 16), {.window = 5})->window, 5u);
}

TEST(QueuePlan, WithoutSharedReceiveQueuesEachConnectionHasItsOwn) {
  for (const auto& [device, options, reason] :
       std::vector<std::tuple<DeviceLimits, QueueOptions, std::string>>{
           {With(&DeviceLimits::max_srq, 0), {}, "max_srq = 0"},
           {With(&DeviceLimits::max_srq, 2), {.workers = 3}, "max_srq = 2"},
           {With(&DeviceLimits::max_srq_sge, 0), {}, "max_srq_sge = 0"},
           {BigDevice(), {.use_srq = false}, "--srq=off"}}) {
    const auto plan = PlanQueues(device, options);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    EXPECT_FALSE(plan->shared_receives());
    EXPECT_THAT(plan->no_srq, HasSubstr(reason));
    EXPECT_THAT(plan->Describe(), HasSubstr(reason));
    EXPECT_EQ(plan->receive_depth, plan->window + kOwnMargin);
    EXPECT_EQ(plan->connections_per_worker, kDefaultReceives / 4);
  }
}

TEST(QueuePlan, FileDescriptorsLimitConnections) {
  DeviceLimits device = BigDevice();
  device.descriptors_per_connection = 8;
  device.descriptors = 807;
  device.descriptor_limit = 1024;
  const auto plan = PlanQueues(device, {.workers = 2});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->max_connections, 100u);
  EXPECT_TRUE(PlanQueues(device, {.workers = 2, .max_connections = 100}).ok());
}

TEST(QueuePlan, StagingMemoryWhereReadsNeedIt) {
  DeviceLimits device = BigDevice();
  EXPECT_EQ(PlanQueues(device, {.staging_pieces = 7})->staging_pieces, 0u);
  EXPECT_THAT(PlanQueues(device, {})->Describe(), Not(HasSubstr("staging")));
  device.stage_reads = true;
  auto plan = PlanQueues(device, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->staging_pieces, kDefaultStagingPieces);
  EXPECT_EQ(plan->staging_bytes(), 8u << 20);
  EXPECT_THAT(plan->Describe(), HasSubstr("staging memory, 32 x 256KiB"));
  EXPECT_EQ(PlanQueues(device, {.staging_pieces = 7})->staging_pieces, 7u);
  device.max_mr_size = 3 * kStagingPiece - 1;
  plan = PlanQueues(device, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->staging_pieces, 2u);
  EXPECT_TRUE(PlanQueues(device, {.staging_pieces = 2}).ok());
  // Each worker has one registration more.
  device.max_mr = 9;
  EXPECT_FALSE(PlanQueues(device, {.workers = 3}).ok());
  device.max_mr = 10;
  EXPECT_TRUE(PlanQueues(device, {.workers = 3}).ok());
}

DeviceLimits Staging(uint64_t max_mr_size, uint32_t max_mr) {
  DeviceLimits device = BigDevice();
  device.stage_reads = true;
  device.max_mr_size = max_mr_size;
  device.max_mr = max_mr;
  return device;
}

struct Refusal {
  const char* what;
  DeviceLimits device;
  QueueOptions options;
  std::vector<std::string> says;
};

DeviceLimits FewFiles() {
  DeviceLimits device = BigDevice();
  device.descriptors_per_connection = 8;
  device.descriptors = 24;
  device.descriptor_limit = 64;
  return device;
}

TEST(QueuePlan, ErrorsNameFlagValueDeviceAndLimit) {
  const std::vector<Refusal> refusals = {
      {"workers", BigDevice(), {.workers = 0}, {"--workers=0", "1 to 256"}},
      {"window", BigDevice(), {.window = 2000}, {"--window=2000", "1 to 1024"}},
      {"cqs", With(&DeviceLimits::max_cq, 5), {.workers = 3}, {"--workers=3", "max_cq = 5"}},
      {"mrs", With(&DeviceLimits::max_mr, 6), {.workers = 3}, {"--workers=3", "7", "max_mr = 6"}},
      {"pds", With(&DeviceLimits::max_pd, 0), {}, {"big0", "max_pd = 0"}},
      {"sges", With(&DeviceLimits::max_sge, 0), {}, {"big0", "max_sge = 0"}},
      {"send queue",
       With(&DeviceLimits::max_qp_wr, 32),
       {.window = 32},
       {"--window=32", "40", "big0", "max_qp_wr = 32"}},
      {"no send queue", With(&DeviceLimits::max_qp_wr, 8), {}, {"--window=1", "max_qp_wr = 8"}},
      {"send cq",
       With(&DeviceLimits::max_cqe, 79),
       {.window = 32},
       {"--window=32", "80", "max_cqe = 79"}},
      {"receives", With(&DeviceLimits::max_srq_wr, 47), {.window = 40}, {"--window=40", "47"}},
      {"srq wr",
       With(&DeviceLimits::max_srq_wr, 1000),
       {.srq_depth = 1001},
       {"--srq_depth=1001", "max_srq_wr = 1000"}},
      {"receive cq",
       With(&DeviceLimits::max_cqe, 1000),
       {.srq_depth = 501},
       {"--srq_depth=501", "1002", "max_cqe = 1000"}},
      {"window over srq",
       BigDevice(),
       {.srq_depth = 46, .window = 32},
       {"--srq_depth=46", "--window=32"}},
      {"qps",
       With(&DeviceLimits::max_qp, 10),
       {.max_connections = 9},
       {"--max_connections=9", "max_qp = 10", "8 connections"}},
      {"credits",
       BigDevice(),
       {.max_connections = 100, .srq_depth = 128},
       {"--max_connections=100", "64 connections", "--srq_depth"}},
      {"files",
       FewFiles(),
       {.max_connections = 4},
       {"--max_connections=4", "ulimit -n", "64", "3 connections"}},
      {"no staging",
       Staging(kStagingPiece - 1, 100),
       {.srq_depth = 20, .window = 1},
       {"big0", "staging memory", "262144", "max_mr_size = 262143"}},
      {"staging pieces",
       Staging(4 * kStagingPiece, 100),
       {.srq_depth = 20, .window = 1, .staging_pieces = 5},
       {"1310720", "max_mr_size = 1048576"}},
      {"staging mrs", Staging(kMaxMr, 6), {.workers = 2}, {"--workers=2", "7", "max_mr = 6"}},
      {"no qp", With(&DeviceLimits::max_qp, 2), {}, {"max_qp = 2"}}};
  for (const Refusal& refusal : refusals) {
    const auto plan = PlanQueues(refusal.device, refusal.options);
    ASSERT_FALSE(plan.ok()) << refusal.what;
    EXPECT_TRUE(absl::IsInvalidArgument(plan.status())) << refusal.what;
    for (const std::string& part : refusal.says) {
      EXPECT_THAT(std::string(plan.status().message()), HasSubstr(part)) << refusal.what;
    }
  }
}

// Everything that the plan promises, for a device and flags.
void CheckPlan(const QueuePlan& plan, const DeviceLimits& device, const QueueOptions& options) {
  // As asked for.
  ASSERT_EQ(plan.workers, options.workers);
  ASSERT_TRUE(options.window == 0 || plan.window == options.window);
  ASSERT_TRUE(options.srq_depth == 0 || plan.receives == options.srq_depth);
  ASSERT_TRUE(options.max_connections == 0 || plan.max_connections == options.max_connections);
  ASSERT_GE(plan.window, 1u);
  ASSERT_GE(plan.max_connections, 1u);
  // Queue pairs.
  ASSERT_LE(plan.send_depth, device.max_qp_wr);
  ASSERT_LE(plan.receive_depth, device.max_qp_wr);
  ASSERT_GE(plan.send_depth, plan.window + kSpareReceives + kReadsInFlight);
  ASSERT_LT(plan.max_connections, device.max_qp);
  ASSERT_GE(uint64_t{plan.workers} * plan.connections_per_worker, plan.max_connections);
  ASSERT_LE(plan.connections_per_worker, kMaxConnectionsPerWorker);
  if (device.descriptors_per_connection > 0) {
    ASSERT_LE(uint64_t{plan.max_connections} * device.descriptors_per_connection,
              device.descriptors);
  }
  // Receive queues, in memory that can be registered.
  ASSERT_TRUE(device.max_mr_size == 0 ||
              uint64_t{plan.receives} * kMaxMessage <= device.max_mr_size);
  if (plan.shared_receives()) {
    ASSERT_TRUE(options.use_srq);
    ASSERT_LE(plan.workers, device.max_srq);
    ASSERT_LE(plan.receives, device.max_srq_wr);
    ASSERT_EQ(plan.receive_depth, 0u);
  } else {
    ASSERT_GE(plan.receive_depth, plan.window + plan.connection_margin());
  }
  // Completion queues: room for twice all work.
  ASSERT_LE(plan.receive_cq_depth, device.max_cqe);
  ASSERT_GE(plan.receive_cq_depth, 2 * plan.receives);
  ASSERT_GE(plan.connections_per_cq, 1u);
  ASSERT_LE(plan.send_cq_depth, device.max_cqe);
  ASSERT_GE(plan.send_cq_depth, 2 * plan.connections_per_cq * plan.send_depth);
  ASSERT_LE(uint64_t{plan.workers} * (1 + plan.send_cqs_per_worker), device.max_cq);
  ASSERT_GE(plan.send_cqs_per_worker * plan.connections_per_cq, plan.connections_per_worker);
  // Credits: all grants and margins together are receives that can be posted, and one connection
  // can have its whole window.
  const uint64_t reserved =
      plan.worker_margin() + uint64_t{plan.connections_per_worker} * (1 + plan.connection_margin());
  ASSERT_LE(reserved + plan.window - 1, plan.receives);
  ASSERT_EQ(reserved + plan.spare_credits(), plan.receives);
  ASSERT_GE(plan.worker_margin() + plan.connection_margin(), 1u);
  // Memory that READs land in.
  ASSERT_EQ(plan.staging_pieces > 0, device.stage_reads);
  ASSERT_TRUE(device.max_mr_size == 0 || plan.staging_bytes() <= device.max_mr_size);
  ASSERT_LE(1 + (device.stage_reads ? 3 : 2) * plan.workers, device.max_mr);
}

// Whatever the device and the flags: no queue can be asked to hold more than it has room for, or
// the plan is refused with the name of a limit or of a flag.
TEST(QueuePlan, WorkNeverExceedsEntries) {
  std::mt19937 random(20240601);
  const auto pick = [&](uint32_t low, uint32_t high) {
    // Evenly in the exponent, so that small limits are tried as often as large ones.
    std::uniform_real_distribution<double> exponent(std::log2(low), std::log2(high + 1));
    return std::clamp(static_cast<uint32_t>(std::exp2(exponent(random))), low, high);
  };
  const auto often = [&](uint32_t value) { return random() % 8 == 0 ? 0 : value; };
  int shared = 0;
  int own = 0;
  int refused = 0;
  for (int round = 0; round < 60'000; ++round) {
    DeviceLimits device = {.name = "any",
                           .max_qp = pick(1, 200'000),
                           .max_qp_wr = pick(1, 40'000),
                           .max_sge = pick(1, 30),
                           .max_cq = pick(1, 200'000),
                           .max_cqe = pick(1, 4'000'000),
                           .max_srq = often(pick(1, 1000)),
                           .max_srq_wr = often(pick(1, 100'000)),
                           .max_srq_sge = often(pick(1, 30)),
                           .max_mr = pick(1, 100'000),
                           .max_mr_size = often(pick(1, 1U << 31)),
                           .max_pd = pick(1, 1000),
                           .stage_reads = random() % 4 == 0};
    if (random() % 2 == 0) {
      device.descriptors_per_connection = pick(1, 10);
      device.descriptors = pick(1, 100'000);
      device.descriptor_limit = device.descriptors + 40;
    }
    const bool automatic = round % 2 == 0;
    const QueueOptions options = {.workers = pick(1, 64),
                                  .max_connections = automatic ? 0 : often(pick(1, 20'000)),
                                  .srq_depth = automatic ? 0 : often(pick(1, 50'000)),
                                  .window = random() % 2 == 0 ? 0 : pick(1, kMaxWindow),
                                  .use_srq = random() % 8 != 0};
    const auto plan = PlanQueues(device, options);
    if (!plan.ok()) {
      ++refused;
      ASSERT_TRUE(absl::IsInvalidArgument(plan.status()));
      ASSERT_THAT(std::string(plan.status().message()),
                  ::testing::ContainsRegex("max_(qp|cq|srq|mr|pd|sge)|ulimit -n|--srq_depth"));
      continue;
    }
    ++(plan->shared_receives() ? shared : own);
    CheckPlan(*plan, device, options);
    if (HasFatalFailure()) FAIL() << "round " << round << ": " << plan->Describe();
  }
  EXPECT_GT(shared, 2000);
  EXPECT_GT(own, 2000);
  EXPECT_GT(refused, 2000);
}

TEST(SendLedger, SignalsOftenEnoughAndReleasesInOrder) {
  SendLedger ledger(8);
  std::vector<uint16_t> signalled;
  for (uint32_t i = 0; i < 8; ++i) {
    bool signal = false;
    const uint16_t place = ledger.Add(kNoBuffer, &signal);
    if (signal) signalled.push_back(place);
  }
  EXPECT_EQ(ledger.free(), 0u);
  EXPECT_THAT(signalled, ::testing::ElementsAre(1, 3, 5, 7));
  EXPECT_EQ(ledger.signalled(), 4u);
  EXPECT_TRUE(ledger.Retire(3, [](uint32_t) { FAIL(); }));
  EXPECT_EQ(ledger.free(), 4u);
  // Retired already, or never posted.
  EXPECT_FALSE(ledger.Retire(3, [](uint32_t) {}));
  EXPECT_FALSE(ledger.Retire(8, [](uint32_t) {}));
  EXPECT_EQ(ledger.free(), 4u);
}

TEST(SendLedger, BuffersComeBackOnceEach) {
  SendLedger ledger(16);
  std::mt19937 random(7);
  std::vector<bool> out(64, false);
  std::vector<std::pair<uint16_t, uint32_t>> posted;  // place, buffer; oldest first
  uint32_t next = 0;
  const auto release = [&](uint32_t buffer) {
    ASSERT_LT(buffer, out.size());
    ASSERT_TRUE(out[buffer]);
    out[buffer] = false;
  };
  for (int round = 0; round < 200'000; ++round) {
    if (ledger.free() > 0 && random() % 2 == 0) {
      uint32_t buffer = kNoBuffer;
      if (random() % 2 == 0) {
        while (out[next % 64]) ++next;
        buffer = next % 64;
        out[buffer] = true;
      }
      bool signal = false;
      posted.emplace_back(ledger.Add(buffer, &signal), buffer);
      ASSERT_TRUE(buffer == kNoBuffer || signal);
    } else if (!posted.empty() && random() % 8 == 0) {
      ledger.Rollback(1, release);
      ASSERT_TRUE(posted.back().second == kNoBuffer || !out[posted.back().second]);
      posted.pop_back();
    } else if (!posted.empty()) {
      const size_t upto = random() % posted.size();
      ASSERT_TRUE(ledger.Retire(posted[upto].first, release));
      posted.erase(posted.begin(), posted.begin() + static_cast<ptrdiff_t>(upto) + 1);
    }
    ASSERT_EQ(ledger.outstanding(), posted.size());
  }
  ledger.RetireAll(release);
  EXPECT_EQ(ledger.outstanding(), 0u);
  EXPECT_THAT(out, ::testing::Each(false));
}

}  // namespace
}  // namespace verbena::net
