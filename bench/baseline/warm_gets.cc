#include <cstdio>
#include <string>

#include "bench/baseline/baseline_client.h"
#include "bench/commands.h"
#include "bench/systems/backend_verbena.h"
#include "verbena/connection.h"

namespace verbena::bench {

// The script tells callgrind to count from entry to exit of one of these functions.
extern "C" __attribute__((noinline)) uint64_t VerbenaBenchMeasuredGets(Connection* connection,
                                                                       const KeySequence* keys) {
  uint64_t found = 0;
  std::string value;
  uint64_t version = 0;
  for (size_t i = 0; i < keys->size(); ++i) {
    found += connection->Get((*keys)[i], &value, &version).ok() ? 1U : 0U;
  }
  return found;
}

extern "C" __attribute__((noinline)) uint64_t VerbenaBenchMeasuredSubmits(Connection* connection,
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
  const uint64_t reads = connection.stats().reads;
  const uint64_t found = VerbenaBenchMeasuredGets(&connection, &keys) +
                         VerbenaBenchMeasuredSubmits(&connection, &keys);
  std::printf("gets %zu reads %llu\n", 2 * keys.size(),
              static_cast<unsigned long long>(connection.stats().reads - reads));
  return found == 2 * keys.size() ? kExitOk : kExitWrong;
}

}  // namespace verbena::bench
