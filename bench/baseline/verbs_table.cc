#include "absl/strings/str_cat.h"
#include "bench/baseline/raw_endpoint.h"
#include "common/base/clock.h"
#include "common/base/text.h"
#include "common/softverbs/softverbs.h"
#include "common/verbs/rdma_core.h"

namespace verbena::bench {

verbs::VerbsApi* VerbsTable(std::string_view fabric) {
  if (fabric == "soft") return &softverbs::SoftVerbs();
  if (fabric == "verbs") return &verbs::RdmaCoreVerbs();
  return nullptr;
}

}  // namespace verbena::bench
