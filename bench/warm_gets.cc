#include <cstdio>

#include "bench/backend_verbena.h"
#include "bench/baseline_client.h"
#include "bench/commands.h"
#include "verbena/connection.h"

namespace verbena::bench {

// The script tells callgrind to count from entry to exit of this function.
extern "C" __attribute__((noinline)) uint64_t VerbenaBenchMeasuredGets(Connection* connection,
                                                                       const KeySequence* keys) {
  uint64_t found = 0;
  for (size_t i = 0; i < keys->size(); ++i) {
    bool done = false;
    const absl::Status submitted = connection->SubmitGet(
        (*keys)[i], [&done, &found](const absl::Status& status, const GetResult&) {
          found += status.ok() ? 1U : 0U;
          done = true;
        });
    while (submitted.ok() && !done) connection->Poll();
  }
  return found;
}

int WarmGets(const Config& config) {
  const auto client = ClientBaseline::Create(config);
  if (!client.ok()) {
    std::fprintf(stderr, "verbena-bench: %s\n", client.status().ToString().c_str());
    return kExitConnection;
  }
  Connection& connection = (*client)->connection();
  const KeySequence keys(config, config.operations, config.seed);
  const ConnectionStats before = connection.stats();
  const uint64_t found = VerbenaBenchMeasuredGets(&connection, &keys);
  const ConnectionStats& after = connection.stats();
  std::printf("gets %zu reads %llu\n", keys.size(),
              static_cast<unsigned long long>(after.reads - before.reads));
  return found == keys.size() ? kExitOk : kExitWrong;
}

}  // namespace verbena::bench
