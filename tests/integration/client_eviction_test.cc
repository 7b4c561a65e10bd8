// A server that evicts: what clients read by READ, which it does not see, stays.
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/integration/eventually.h"
#include "tests/integration/patient_options.h"
#include "tests/integration/process.h"
#include "verbena/connection.h"

namespace verbena {
namespace {

using testing::ServerProcess;

TEST(Eviction, KeepsWhatIsReadAndCostsAMessageForAThousandGets) {
  auto server = ServerProcess::Start({"--memory=16MiB", "--eviction=s3fifo"});
  ASSERT_TRUE(server.ok()) << server.status();
  auto connection = Connection::Connect((*server)->address(), testing::PatientOptions());
  ASSERT_TRUE(connection.ok()) << connection.status();
  Connection& client = **connection;

  // Three times what the region holds; less of it where that would take too long, in values that
  // are as much larger. Those that are read again and again are no larger for that.
  const int cold = testing::Scaled(12'000, 1200);
  const std::string value(size_t{48'000'000} / static_cast<size_t>(cold), 'v');
  const std::string hot_value = value.substr(0, 4000);
  const int hot_keys = cold / 240;
  const auto hot = [](int i) { return "hot-" + std::to_string(i); };
  for (int i = 0; i < hot_keys; ++i) ASSERT_TRUE(client.Put(hot(i), hot_value).ok());
  uint64_t sends = 0;
  uint64_t gets = 0;
  std::string got;
  for (int i = 0; i < cold; ++i) {
    const absl::Status put = client.Put("cold-" + std::to_string(i), value).status();
    ASSERT_TRUE(put.ok()) << put;
    const uint64_t before = client.stats().sends;
    for (int k = 0; k < 5; ++k) {
      const absl::Status get = client.Get(hot((i * 5 + k) % hot_keys), &got);
      ASSERT_TRUE(get.ok()) << i << ": " << get;
    }
    sends += client.stats().sends - before;
    gets += 5;
  }
  EXPECT_EQ(got, hot_value);
  EXPECT_TRUE(absl::IsNotFound(client.Get("cold-0", &got)));
  const auto info = client.Info();
  ASSERT_TRUE(info.ok());
  const auto json = nlohmann::json::parse(*info);
  EXPECT_EQ(json["eviction"]["policy"].get<std::string>(), "s3fifo");
  EXPECT_GT(json["eviction"]["evicted"].get<int>(), cold / 3);
  EXPECT_GT(json["eviction"]["touches"].get<uint64_t>(), gets / 32);
  EXPECT_EQ(json["failed_allocations"].get<int>(), 0);
  EXPECT_LE(sends, gets / 1000 + 10);
}

// Also connections of which each makes fewer GETs than fill a report.
TEST(Eviction, HearsOfWhatShortConnectionsRead) {
  auto server = ServerProcess::Start({"--memory=16MiB", "--eviction=s3fifo"});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto connect = [&] {
    return Connection::Connect((*server)->address(), testing::PatientOptions());
  };
  auto first = connect();
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE((*first)->Put("key", "value").ok());
  constexpr int kConnections = 3;
  constexpr int kGets = 200;
  std::string got;
  for (int i = 0; i < kConnections; ++i) {
    auto connection = connect();
    ASSERT_TRUE(connection.ok()) << connection.status();
    for (int k = 0; k < kGets; ++k) ASSERT_TRUE((*connection)->Get("key", &got).ok());
    EXPECT_EQ((*connection)->stats().sends, 0u);
  }
  uint64_t touches = 0;
  EXPECT_TRUE(testing::Eventually([&] {
    const auto info = (*first)->Info();
    if (!info.ok()) return false;
    touches = nlohmann::json::parse(*info, nullptr, false)["eviction"]["touches"];
    return touches >= kConnections * kGets / 32;
  })) << touches;
}

TEST(Eviction, NoneRefusesWritesAndKeepsEverything) {
  auto server = ServerProcess::Start({"--memory=16MiB", "--eviction=none"});
  ASSERT_TRUE(server.ok()) << server.status();
  auto connection = Connection::Connect((*server)->address(), testing::PatientOptions());
  ASSERT_TRUE(connection.ok()) << connection.status();
  const std::string value(100'000, 'v');
  int stored = 0;
  absl::Status status;
  while ((status = (*connection)->Put("key-" + std::to_string(stored), value).status()).ok()) {
    ++stored;
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_GT(stored, 100);
  std::string got;
  for (int i = 0; i < stored; ++i) {
    ASSERT_TRUE((*connection)->Get("key-" + std::to_string(i), &got).ok()) << i;
  }
}

}  // namespace
}  // namespace verbena
