#include "client/src/endpoint_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/sizes.h"
#include "common/base/text.h"

namespace verbena::client {
namespace {

EndpointPlan For(uint32_t reads, uint32_t requests) {
  EndpointPlan plan;
  plan.reads = reads;
  plan.requests = requests;
  plan.receives = requests + EndpointPlan::kSpareReceives;
  plan.send_depth = 2 * (reads + requests);
  plan.completions = 2 * (plan.send_depth + plan.receives);
  return plan;
}

uint32_t Count(int limit) { return static_cast<uint32_t>(std::max(limit, 0)); }

bool Fits(const EndpointPlan& plan, const ibv_device_attr& limits) {
  return plan.send_depth <= Count(limits.max_qp_wr) && plan.receives <= Count(limits.max_qp_wr) &&
         plan.completions <= Count(limits.max_cqe);
}

absl::Status TooLittle(std::string_view device_name, const char* what, const char* limit, int value,
                       uint32_t needed) {
  return absl::FailedPreconditionError(
      absl::StrCat("device ", ToAbsl(device_name), " allows ", value, " ", what, " (", limit,
                   "), and a connection needs at least ", needed, ": use another device"));
}

}  // namespace

absl::StatusOr<EndpointPlan> EndpointPlan::Make(const verbs::Capabilities& device,
                                                std::string_view device_name, uint32_t operations) {
  const ibv_device_attr& limits = device.limits();
  uint32_t reads = std::min(operations, kMostReads);
  uint32_t requests = kMostRequests;
  while (!Fits(For(reads, requests), limits) && (reads > 1 || requests > 1)) {
    --(reads >= requests ? reads : requests);
  }
  const EndpointPlan plan = For(reads, requests);
  if (plan.send_depth > Count(limits.max_qp_wr) || plan.receives > Count(limits.max_qp_wr)) {
    return TooLittle(device_name, "outstanding requests per queue pair", "max_qp_wr",
                     limits.max_qp_wr, std::max(plan.send_depth, plan.receives));
  }
  if (plan.completions > Count(limits.max_cqe)) {
    return TooLittle(device_name, "entries in a completion queue", "max_cqe", limits.max_cqe,
                     plan.completions);
  }
  if (limits.max_sge < 1) {
    return TooLittle(device_name, "pieces of memory per request", "max_sge", limits.max_sge, 1);
  }
  return plan;
}

absl::Status CheckRegistration(const verbs::Capabilities& device, std::string_view device_name,
                               uint64_t bytes, std::string_view what, std::string_view remedy) {
  const uint64_t limit = device.limits().max_mr_size;
  // 0: not stated.
  if (limit == 0 || bytes <= limit) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      ToAbsl(what), " takes ", FormatSize(bytes), " (", bytes,
      " bytes) of registered memory, and device ", ToAbsl(device_name), " registers at most ",
      FormatSize(limit), " in one piece (max_mr_size = ", limit, "): ", ToAbsl(remedy)));
}

}  // namespace verbena::client
