#include "client/src/endpoint_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace verbena::client {
namespace {

using ::testing::HasSubstr;

ibv_device_attr Roomy() {
  ibv_device_attr limits{};
  limits.max_mr_size = uint64_t{1} << 40;
  limits.max_qp_wr = 16384;
  limits.max_cqe = 65536;
  limits.max_sge = 32;
  limits.max_qp_rd_atom = limits.max_qp_init_rd_atom = 16;
  return limits;
}

absl::StatusOr<EndpointPlan> Plan(const ibv_device_attr& limits, uint32_t operations = 65) {
  return EndpointPlan::Make(verbs::Capabilities(IBV_TRANSPORT_IB, limits), "dev0", operations);
}

// What must hold for every plan.
void Check(const EndpointPlan& plan, const ibv_device_attr& limits) {
  EXPECT_GE(plan.reads, 1u);
  EXPECT_GE(plan.requests, 1u);
  EXPECT_EQ(plan.receives, plan.requests + EndpointPlan::kSpareReceives);
  EXPECT_GE(plan.send_depth, plan.reads + plan.requests);
  EXPECT_EQ(plan.completions, 2 * (plan.send_depth + plan.receives));
  EXPECT_LE(plan.send_depth, static_cast<uint32_t>(limits.max_qp_wr));
  EXPECT_LE(plan.receives, static_cast<uint32_t>(limits.max_qp_wr));
  EXPECT_LE(plan.completions, static_cast<uint32_t>(limits.max_cqe));
}

TEST(EndpointPlan, TakesWhatItLikesWhereThereIsRoom) {
  const auto plan = Plan(Roomy());
  ASSERT_TRUE(plan.ok()) << plan.status();
  Check(*plan, Roomy());
  EXPECT_EQ(plan->reads, EndpointPlan::kMostReads);
  EXPECT_EQ(plan->requests, EndpointPlan::kMostRequests);
  EXPECT_EQ(Plan(Roomy(), 2)->reads, 2u);
}

TEST(EndpointPlan, StaysWithinEachLimit) {
  ibv_device_attr limits = Roomy();
  limits.max_cqe = 64;
  auto plan = Plan(limits);
  ASSERT_TRUE(plan.ok()) << plan.status();
  Check(*plan, limits);
  EXPECT_GE(plan->reads, 4u);  // not less than it must be
  EXPECT_GE(plan->requests, 4u);

  limits = Roomy();
  limits.max_qp_wr = 16;
  plan = Plan(limits);
  ASSERT_TRUE(plan.ok()) << plan.status();
  Check(*plan, limits);
  EXPECT_EQ(plan->send_depth, 16u);

  // The device holds back what is more: the queue takes as many as ever.
  limits = Roomy();
  limits.max_qp_init_rd_atom = 1;
  EXPECT_EQ(Plan(limits)->reads, EndpointPlan::kMostReads);

  // All at once, and whatever else there is down to the least that works.
  for (int wr = 4; wr < 300; ++wr) {
    for (int cqe = 16; cqe < 700; cqe += 3) {
      limits.max_qp_wr = wr;
      limits.max_cqe = cqe;
      plan = Plan(limits);
      ASSERT_TRUE(plan.ok()) << plan.status();
      Check(*plan, limits);
      // One more of both would not have fitted.
      if (plan->reads < EndpointPlan::kMostReads && plan->requests < EndpointPlan::kMostRequests) {
        const uint32_t send = 2 * (plan->reads + plan->requests + 2);
        EXPECT_TRUE(send > static_cast<uint32_t>(wr) ||
                    2 * (send + plan->receives + 1) > static_cast<uint32_t>(cqe))
            << wr << " " << cqe;
      }
    }
  }
}

TEST(EndpointPlan, RefusesWhatIsTooLittleByItsName) {
  const auto refusal = [](const ibv_device_attr& limits) {
    const auto plan = Plan(limits);
    EXPECT_TRUE(absl::IsFailedPrecondition(plan.status())) << plan.status();
    return std::string(plan.status().message());
  };
  ibv_device_attr limits = Roomy();
  limits.max_cqe = 15;
  EXPECT_THAT(refusal(limits), HasSubstr("15 entries in a completion queue (max_cqe)"));
  EXPECT_THAT(refusal(limits), HasSubstr("at least 16"));
  EXPECT_THAT(refusal(limits), HasSubstr("dev0"));
  limits = Roomy();
  limits.max_qp_wr = 3;
  EXPECT_THAT(refusal(limits), HasSubstr("3 outstanding requests"));
  EXPECT_THAT(refusal(limits), HasSubstr("(max_qp_wr)"));
  EXPECT_THAT(refusal(limits), HasSubstr("at least 4"));
  limits = Roomy();
  limits.max_sge = 0;
  EXPECT_THAT(refusal(limits), HasSubstr("(max_sge)"));
}

TEST(CheckRegistration, NamesLimitAndNeed) {
  ibv_device_attr limits = Roomy();
  limits.max_mr_size = 1 << 20;
  const verbs::Capabilities device(IBV_TRANSPORT_IB, limits);
  EXPECT_TRUE(CheckRegistration(device, "dev0", 1 << 20, "a value", "").ok());
  const absl::Status status = CheckRegistration(device, "dev0", 3 << 20, "a value", "split it");
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  for (const char* part :
       {"a value takes 3MiB", "dev0", "at most 1MiB", "max_mr_size", "split it"}) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
  limits.max_mr_size = 0;  // not stated
  EXPECT_TRUE(CheckRegistration(verbs::Capabilities(IBV_TRANSPORT_IB, limits), "dev0",
                                uint64_t{1} << 50, "a value", "")
                  .ok());
}

}  // namespace
}  // namespace verbena::client
