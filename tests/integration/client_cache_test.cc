// The client's cache of the index seen from outside: how many READs a GET takes.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "tests/integration/fabric_under_test.h"
#include "tests/integration/patient_options.h"
#include "tests/integration/process.h"
#include "verbena/connection.h"

namespace verbena {
namespace {

using testing::PatientOptions;
using testing::ServerProcess;

class ClientCacheTest : public ::testing::Test {
 protected:
  void Start() {
    auto server = ServerProcess::Start({"--memory=128MiB"});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::unique_ptr<Connection> Connect(const Options& options = PatientOptions()) {
    return testing::MustConnect(server_->address(), options);
  }
  void Fill(int keys) {
    auto client = Connect();
    ASSERT_NE(client, nullptr);
    for (int i = 0; i < keys; ++i) {
      while (client->in_flight() >= 32) client->Poll();
      const std::string value = Value(i);  // small, so that it is copied at once
      ASSERT_TRUE(client
                      ->SubmitPut(Key(i), value,
                                  [](const absl::Status& status, const ChangeResult&) {
                                    EXPECT_TRUE(status.ok()) << status;
                                  })
                      .ok());
    }
    client->Drain();
  }
  // READs for one GET of each key.
  static double ReadsPerGet(Connection& client, int keys) {
    const uint64_t before = client.stats().reads;
    std::string value;
    for (int i = 0; i < keys; ++i) {
      EXPECT_TRUE(client.Get(Key(i), &value).ok());
      EXPECT_EQ(value, Value(i));
    }
    return static_cast<double>(client.stats().reads - before) / keys;
  }
  static std::string Key(int i) { return "key-" + std::to_string(i); }
  static std::string Value(int i) { return "value-" + std::to_string(i); }

  std::unique_ptr<ServerProcess> server_;
};

TEST_F(ClientCacheTest, AfterAPreloadTheFirstGetOfEachKeyIsOneRead) {
  ASSERT_NO_FATAL_FAILURE(Start());
  const int keys = testing::Scaled(20000, 2000);
  ASSERT_NO_FATAL_FAILURE(Fill(keys));
  auto cold = Connect();
  ASSERT_NE(cold, nullptr);
  EXPECT_GT(ReadsPerGet(*cold, keys), 1.05) << "so that the test says something";
  Options options = PatientOptions();
  options.preload = true;
  auto client = Connect(options);
  ASSERT_NE(client, nullptr);
  // Large READs: the directory in pieces of 64 KiB and a READ for each segment, not each bucket.
  EXPECT_LT(client->stats().reads, static_cast<uint64_t>(keys) / 50 + 20);
  const ConnectionStats before = client->stats();
  // But for two keys of a bucket with one fingerprint, a few in ten thousand.
  EXPECT_LE(ReadsPerGet(*client, keys), 1.005);
  EXPECT_EQ(client->stats().directory_reads, before.directory_reads);
  EXPECT_EQ(client->stats().cache_misses, 0u);
}

TEST_F(ClientCacheTest, APreloadTakesWhatTheCacheHasRoomFor) {
  ASSERT_NO_FATAL_FAILURE(Start());
  const int keys = testing::Scaled(20000, 5000);
  ASSERT_NO_FATAL_FAILURE(Fill(keys));
  Options options = PatientOptions();
  options.preload = true;
  options.cache_bytes = 3 * 36 * 1024;
  auto client = Connect(options);
  ASSERT_NE(client, nullptr);
  // The header, the directory of 128 MiB in one or two pieces, three segments.
  EXPECT_LE(client->stats().reads, 1u + 2u + 3u);
  EXPECT_LE(ReadsPerGet(*client, keys), 3.0);
  EXPECT_GT(client->stats().cache_hits, 0u);
  options.cache_bytes = 0;
  auto without = Connect(options);
  ASSERT_NE(without, nullptr);
  EXPECT_LE(without->stats().reads, 1u + 2u);
}

// One client replaces a value by ones of other sizes, so that it lies elsewhere each time; another
// one GETs it after each change, and other keys between.
TEST_F(ClientCacheTest, AKeyThatKeepsMovingCostsNoReadInVain) {
  ASSERT_NO_FATAL_FAILURE(Start());
  const int keys = testing::Scaled(2000, 500);
  ASSERT_NO_FATAL_FAILURE(Fill(keys));
  auto writer = Connect();
  auto reader = Connect();
  ASSERT_NE(writer, nullptr);
  ASSERT_NE(reader, nullptr);
  ReadsPerGet(*reader, keys);
  uint64_t hot_reads = 0;
  uint64_t other_reads = 0;
  const int rounds = testing::Scaled(400, 100);
  std::string value;
  for (int round = 0; round < rounds; ++round) {
    const std::string sent(static_cast<size_t>(200 + round % 9 * 70), 'h');
    ASSERT_TRUE(writer->Put(Key(0), sent).ok());
    const uint64_t before = reader->stats().reads;
    ASSERT_TRUE(reader->Get(Key(0), &value).ok());
    ASSERT_EQ(value, sent);
    const uint64_t between = reader->stats().reads;
    ASSERT_TRUE(reader->Get(Key(1 + round % (keys - 1)), &value).ok());
    hot_reads += between - before;
    other_reads += reader->stats().reads - between;
  }
  EXPECT_LE(static_cast<double>(hot_reads) / rounds, 2.05);
  EXPECT_LE(static_cast<double>(other_reads) / rounds, 1.02);
}

}  // namespace
}  // namespace verbena
