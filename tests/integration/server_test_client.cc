// A client process for tests that kill it: server_test_client ADDR:PORT puts|large|wish. Prints
// "running" once it is in the middle of its work, and goes on for ever ("wish": takes all the
// credits that it can get, and then does nothing).
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "tests/integration/fabric_under_test.h"
#include "tests/integration/raw_client.h"

int main(int argc, char** argv) {
  using verbena::testing::RawClient;
  if (argc != 3) return 2;
  const bool large = std::strcmp(argv[2], "large") == 0;
  const std::string value(large ? static_cast<size_t>(verbena::testing::Scaled(8 << 20)) : 100,
                          'v');
  verbena::testing::RawClientOptions options;
  options.value_memory = value.size();
  auto client = RawClient::ConnectAndGreet(verbena::testing::Fabric(), argv[1], options);
  if (!client.ok()) {
    std::fprintf(stderr, "%s\n", std::string(client.status().message()).c_str());
    return 1;
  }
  if (std::strcmp(argv[2], "wish") == 0) {
    if (!(*client)->Send((*client)->Request(verbena::wire::OpCode::kPing, "", "x", 1000)).ok() ||
        !(*client)->Receive().ok()) {
      return 1;
    }
    std::puts("running");
    std::fflush(stdout);
    pause();
  }
  for (int i = 0;; ++i) {
    const std::string key = "key" + std::to_string(i % 3);
    const auto result = large ? (*client)->PutByReference(key, value)
                              : (*client)->Call(verbena::wire::OpCode::kPut, key, value);
    if (!result.ok() || result->code() != verbena::wire::ResultCode::kOk) {
      std::fprintf(stderr, "%s\n", std::string(result.status().message()).c_str());
      return 1;
    }
    if (i == 3) {
      std::puts("running");
      std::fflush(stdout);
    }
  }
}
