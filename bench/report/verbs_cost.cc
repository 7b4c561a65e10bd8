#include "bench/report/verbs_cost.h"

namespace verbena::bench {

Figures ClientVerbs(const RunResult& result) {
  const BackendCounters& counters = result.counters;
  if (result.operations() == 0 || counters.reads + counters.sends == 0) return {};
  const auto each = [&result](uint64_t count) {
    return static_cast<double>(count) / static_cast<double>(result.operations());
  };
  // Lists of READs ring once each; a SEND rings for itself.
  return {{"READs", each(counters.reads)},
          {"SENDs", each(counters.sends)},
          {"WQEs", each(counters.reads + counters.sends)},
          {"doorbells", each(counters.doorbells + counters.sends)},
          {"CQEs", each(counters.completions)},
          {"bytes read", each(counters.bytes_read)},
          {"bytes sent", each(counters.bytes_sent)}};
}

Figures ServerVerbs(const RunResult& result) {
  if (!result.server_verbs.has_value() || result.operations() == 0) return {};
  const ServerVerbCounters& counters = *result.server_verbs;
  const auto each = [&result](uint64_t count) {
    return static_cast<double>(count) / static_cast<double>(result.operations());
  };
  return {{"SENDs", each(counters.sends)},
          {"READs", each(counters.reads)},
          {"WQEs", each(counters.sends + counters.reads + counters.receives)},
          {"doorbells", each(counters.doorbells)},
          {"CQEs", each(counters.completions)},
          {"bytes sent", each(counters.bytes_sent)}};
}

}  // namespace verbena::bench
