#include "server/net/queue_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "server/net/send_ledger.h"

namespace verbena::net {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

DeviceLimits BigDevice() {
  return {.name = "big0",
          .max_qp = 100'000,
          .max_qp_wr = 32768,
          .max_cq = 100'000,
          .max_cqe = 4'000'000,
          .max_srq = 10'000,
          .max_srq_wr = 32768,
          .max_mr_size = uint64_t{1} << 40};
}

TEST(QueuePlan, DefaultsOnABigDevice) {
  const auto plan = PlanQueues(BigDevice(), {.workers = 4});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->srq_depth, kDefaultSrqDepth);
  EXPECT_EQ(plan->receive_cq_depth, 2 * kDefaultSrqDepth);
  EXPECT_EQ(plan->connections_per_worker, kDefaultSrqDepth / 2);
  EXPECT_EQ(plan->max_connections, kDefaultMaxConnections);
  EXPECT_EQ(plan->send_depth, kDefaultWindow + kSpareReceives + kReadsInFlight + 1);
}

TEST(QueuePlan, MoreConnectionsMakeDeeperQueues) {
  const auto plan = PlanQueues(BigDevice(), {.workers = 1, .max_connections = 8192});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->max_connections, 8192u);
  EXPECT_GE(plan->srq_depth, 2 * 8192u);
}

TEST(QueuePlan, ASmallDeviceLowersTheDefaults) {
  DeviceLimits device = BigDevice();
  device.max_cqe = 1000;
  device.max_qp = 50;
  const auto plan = PlanQueues(device, {.workers = 2});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->srq_depth, 500u);
  EXPECT_EQ(plan->max_connections, 48u);
}

struct Refusal {
  const char* what;
  DeviceLimits device;
  QueueOptions options;
  std::vector<std::string> says;
};

DeviceLimits With(uint32_t DeviceLimits::*member, uint32_t value) {
  DeviceLimits device = BigDevice();
  device.*member = value;
  return device;
}

TEST(QueuePlan, ErrorsNameFlagValueDeviceAndLimit) {
  const std::vector<Refusal> refusals = {
      {"workers", BigDevice(), {.workers = 0}, {"--workers=0", "1 to 256"}},
      {"window", BigDevice(), {.window = 2000}, {"--window=2000", "1 to 1024"}},
      {"srqs",
       With(&DeviceLimits::max_srq, 2),
       {.workers = 3},
       {"--workers=3", "big0", "max_srq = 2"}},
      {"no srq", With(&DeviceLimits::max_srq, 0), {}, {"--workers=1", "max_srq = 0"}},
      {"cqs", With(&DeviceLimits::max_cq, 5), {.workers = 3}, {"--workers=3", "max_cq = 5"}},
      {"send queue",
       With(&DeviceLimits::max_qp_wr, 32),
       {},
       {"--window=32", "40", "max_qp_wr = 32"}},
      {"send cq", With(&DeviceLimits::max_cqe, 79), {}, {"--window=32", "80", "max_cqe = 79"}},
      {"srq wr",
       With(&DeviceLimits::max_srq_wr, 1000),
       {.srq_depth = 1001},
       {"--srq_depth=1001", "max_srq_wr = 1000"}},
      {"receive cq",
       With(&DeviceLimits::max_cqe, 1000),
       {.srq_depth = 501},
       {"--srq_depth=501", "1002", "max_cqe = 1000"}},
      {"window over srq", BigDevice(), {.srq_depth = 47}, {"--srq_depth=47", "--window=32"}},
      {"qps",
       With(&DeviceLimits::max_qp, 10),
       {.max_connections = 9},
       {"--max_connections=9", "max_qp = 10", "8 connections"}},
      {"credits",
       BigDevice(),
       {.max_connections = 100, .srq_depth = 128},
       {"--max_connections=100", "64 connections", "--srq_depth"}},
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

// Whatever the device and the flags: no queue can be asked to hold more than it has room for.
TEST(QueuePlan, WorkNeverExceedsEntries) {
  std::mt19937 random(20240601);
  const auto pick = [&](uint32_t low, uint32_t high) {
    // Evenly in the exponent, so that small limits are tried as often as large ones.
    std::uniform_real_distribution<double> exponent(std::log2(low), std::log2(high + 1));
    return std::clamp(static_cast<uint32_t>(std::exp2(exponent(random))), low, high);
  };
  int planned = 0;
  for (int round = 0; round < 40'000; ++round) {
    const DeviceLimits device = {.name = "any",
                                 .max_qp = pick(1, 200'000),
                                 .max_qp_wr = pick(1, 40'000),
                                 .max_cq = pick(1, 200'000),
                                 .max_cqe = pick(1, 4'000'000),
                                 .max_srq = pick(1, 1000),
                                 .max_srq_wr = pick(1, 100'000)};
    const bool automatic = round % 2 == 0;
    const QueueOptions options = {.workers = pick(1, 64),
                                  .max_connections = automatic ? 0 : pick(1, 20'000),
                                  .srq_depth = automatic ? 0 : pick(1, 50'000),
                                  .window = pick(1, kMaxWindow)};
    const auto plan = PlanQueues(device, options);
    if (!plan.ok()) continue;
    ++planned;
    ASSERT_LE(plan->send_depth, device.max_qp_wr);
    ASSERT_GE(plan->send_depth, plan->window + kSpareReceives + kReadsInFlight);
    ASSERT_LE(plan->srq_depth, device.max_srq_wr);
    ASSERT_LE(plan->receive_cq_depth, device.max_cqe);
    ASSERT_EQ(plan->receive_cq_depth, 2 * plan->srq_depth);
    ASSERT_GE(plan->connections_per_cq, 1u);
    ASSERT_LE(plan->send_cq_depth, device.max_cqe);
    ASSERT_GE(plan->send_cq_depth, 2 * plan->connections_per_cq * plan->send_depth);
    ASSERT_LE(uint64_t{plan->workers} * (1 + plan->send_cqs_per_worker), device.max_cq);
    ASSERT_GE(plan->send_cqs_per_worker * plan->connections_per_cq, plan->connections_per_worker);
    ASSERT_GE(plan->max_connections, 1u);
    ASSERT_LT(plan->max_connections, device.max_qp);
    ASSERT_GE(uint64_t{plan->workers} * plan->connections_per_worker, plan->max_connections);
    // Credits: one for each connection, and a full window for one of them.
    ASSERT_LE(plan->connections_per_worker + plan->window - 1, plan->credits());
    ASSERT_EQ(plan->spare_credits() + plan->connections_per_worker + kReceiveMargin,
              plan->srq_depth);
    ASSERT_LE(plan->connections_per_worker, kMaxConnectionsPerWorker);
  }
  EXPECT_GT(planned, 2000);
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
