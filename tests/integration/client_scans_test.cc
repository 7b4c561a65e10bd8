// Scans and times to live, over the wire.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/integration/eventually.h"
#include "tests/integration/fabric_under_test.h"
#include "tests/integration/patient_options.h"
#include "tests/integration/process.h"
#include "verbena/connection.h"

namespace verbena {
namespace {

using std::chrono::milliseconds;
using testing::PatientOptions;
using testing::ServerProcess;

class ClientScansTest : public ::testing::Test {
 protected:
  void SetUp() override { Start({"--memory=64MiB", "--expiry_tick=10ms"}); }
  void Start(const std::vector<std::string>& flags) {
    client_.reset();
    server_.reset();
    auto server = ServerProcess::Start(flags);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    client_ = Connect();
    ASSERT_NE(client_, nullptr);
  }
  std::unique_ptr<Connection> Connect(const Options& options = PatientOptions()) {
    return testing::MustConnect(server_->address(), options);
  }
  std::vector<std::string> Keys(Connection& client, const ScanRange& range, size_t limit) {
    std::vector<ScanItem> items;
    const absl::Status status = client.Scan(range, limit, &items);
    EXPECT_TRUE(status.ok()) << status;
    std::vector<std::string> keys;
    for (const ScanItem& item : items) keys.push_back(item.key);
    return keys;
  }
  bool Has(std::string_view key) {
    std::string value;
    const absl::Status status = client_->Get(key, &value);
    EXPECT_TRUE(status.ok() || absl::IsNotFound(status)) << status;
    return status.ok();
  }

  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<Connection> client_;
};

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What else is under way takes none of the room that a scan's answer needs.
TEST_F(ClientScansTest, GoesOnBesideGetsThatFillTheAnswers) {
  const std::string value(300, 'v');
  std::vector<std::string> keys;
  for (int i = 0; i < 20; ++i) keys.push_back(std::string(100, static_cast<char>('a' + i)));
  for (const std::string& key : keys) ASSERT_TRUE(client_->Put(key, value).ok());
  Options options = PatientOptions();
  options.one_sided_reads = false;
  options.depth = 128;
  const auto client = Connect(options);
  ASSERT_NE(client, nullptr);
  int found = 0;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(client
                    ->SubmitGet(keys[static_cast<size_t>(i) % keys.size()],
                                [&](const absl::Status& status, const GetResult&) {
                                  if (status.ok()) ++found;
                                })
                    .ok());
  }
  EXPECT_EQ(Keys(*client, {.keys_only = true}, 1000), keys);
  EXPECT_TRUE(client->Info().ok());
  client->Drain();
  EXPECT_EQ(found, 100);
}

TEST_F(ClientScansTest, GivesKeysAndValuesInOrder) {
  std::mt19937_64 random(9);
  std::map<std::string, std::string> model;
  std::map<std::string, uint64_t> versions;
  for (int i = 0; i < 1000; ++i) {
    const std::string key = "key-" + std::to_string(random() % 100'000);
    const std::string value(random() % 10 == 0 ? 20'000 : random() % 200,
                            static_cast<char>(random()));
    const auto put = client_->Put(key, value);
    ASSERT_TRUE(put.ok()) << put.status();
    model[key] = value;
    versions[key] = put->version;
  }
  for (const bool one_sided : {true, false}) {
    Options options = PatientOptions();
    options.one_sided_reads = one_sided;
    const auto client = Connect(options);
    for (const size_t limit : {1u, 7u, 500u, 5000u}) {
      const std::string start = "key-" + std::to_string(random() % 100'000);
      std::vector<ScanItem> items;
      ASSERT_TRUE(client->Scan({.start = start}, limit, &items).ok());
      auto expected = model.lower_bound(start);
      for (const ScanItem& item : items) {
        ASSERT_NE(expected, model.end());
        EXPECT_EQ(item.key, expected->first);
        EXPECT_EQ(item.value, expected->second);
        EXPECT_EQ(item.version, versions[item.key]);
        ++expected;
      }
      EXPECT_TRUE(items.size() == limit || expected == model.end());
    }
  }
}

TEST_F(ClientScansTest, RangesAndPrefixes) {
  for (const char* key : {"a", "user:1", "user:2", "user:30", "z"}) {
    ASSERT_TRUE(client_->Put(key, "v").ok());
  }
  EXPECT_THAT(Keys(*client_, {}, 100), ElementsAre("a", "user:1", "user:2", "user:30", "z"));
  EXPECT_THAT(Keys(*client_, {.prefix = "user:"}, 100), ElementsAre("user:1", "user:2", "user:30"));
  EXPECT_THAT(Keys(*client_, {.start = "user:1", .after = true}, 2),
              ElementsAre("user:2", "user:30"));
  EXPECT_THAT(Keys(*client_, {.start = "b", .keys_only = true}, 1), ElementsAre("user:1"));
  EXPECT_THAT(Keys(*client_, {.start = "zz"}, 10), ElementsAre());
  // No limit.
  EXPECT_THAT(Keys(*client_, {}, 0), ElementsAre("a", "user:1", "user:2", "user:30", "z"));
  EXPECT_THAT(Keys(*client_, {.prefix = "user:"}, 0), ElementsAre("user:1", "user:2", "user:30"));
  size_t found = 0;
  ASSERT_TRUE(client_
                  ->SubmitScan({}, 0,
                               [&](const absl::Status& status, std::vector<ScanItem> all) {
                                 EXPECT_TRUE(status.ok()) << status;
                                 found = all.size();
                               })
                  .ok());
  client_->Drain();
  EXPECT_EQ(found, 5u);
  std::vector<ScanItem> items;
  const std::string too_long(client_->limits().max_key_size + 1, 'x');
  EXPECT_TRUE(absl::IsInvalidArgument(client_->Scan({.start = too_long}, 1, &items)));
  EXPECT_TRUE(absl::IsInvalidArgument(client_->Scan({.prefix = too_long}, 1, &items)));
}

TEST_F(ClientScansTest, KeysOfTheLargestSize) {
  const size_t size = client_->limits().max_key_size;
  for (const char first : {'c', 'a', 'b'}) {
    ASSERT_TRUE(client_->Put(std::string(size, first), std::string(1, first)).ok());
  }
  EXPECT_THAT(Keys(*client_, {}, 10),
              ElementsAre(std::string(size, 'a'), std::string(size, 'b'), std::string(size, 'c')));
}

TEST_F(ClientScansTest, WithoutAnOrderedIndexItIsRefused) {
  Start({"--memory=64MiB", "--ordered_index=off"});
  std::vector<ScanItem> items;
  const absl::Status status = client_->Scan({}, 10, &items);
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("--ordered_index"));
  EXPECT_TRUE(client_->Put("key", "value").ok());
}

// Values that change and keys that come and go while somebody scans: keys that stay are in every
// scan, with a value that is whole.
TEST_F(ClientScansTest, BesideChanges) {
  constexpr int kKeys = 100;
  const auto key = [](int i) { return "key-" + std::to_string(1000 + i); };
  const auto value = [](int i, int round) {
    return std::string(static_cast<size_t>(1 + round % 7 * 100), static_cast<char>('a' + i % 26));
  };
  for (int i = 0; i < kKeys; i += 2) ASSERT_TRUE(client_->Put(key(i), value(i, 0)).ok());
  std::atomic<bool> stop{false};
  const auto writing = Connect();
  std::thread writer([&] {
    for (int round = 0; !stop; ++round) {
      const int i = round * 37 % kKeys;
      if (i % 2 == 1 && round % 3 == 0) {
        const auto deleted = writing->Delete(key(i));
        EXPECT_TRUE(deleted.ok() || absl::IsNotFound(deleted.status())) << deleted.status();
      } else {
        EXPECT_TRUE(writing->Put(key(i), value(i, round)).ok());
      }
    }
  });
  for (int scan = 0; scan < testing::Scaled(100); ++scan) {
    std::vector<ScanItem> items;
    const absl::Status status = client_->Scan({}, 1000, &items);
    ASSERT_TRUE(status.ok()) << status;
    int staying = 0;
    std::string last;
    for (const ScanItem& item : items) {
      EXPECT_LT(last, item.key);
      last = item.key;
      const int i = std::stoi(item.key.substr(4)) - 1000;
      staying += i % 2 == 0;
      ASSERT_FALSE(item.value.empty());
      EXPECT_EQ(item.value, std::string(item.value.size(), static_cast<char>('a' + i % 26)));
    }
    EXPECT_EQ(staying, kKeys / 2);
  }
  stop = true;
  writer.join();
}

TEST_F(ClientScansTest, KeysGoWhenTheirTimeIsOver) {
  ASSERT_TRUE(client_->Put("short", "1", {.ttl = milliseconds(50)}).ok());
  ASSERT_TRUE(client_->Put("long", std::string(100'000, 'x'), {.ttl = milliseconds(600'000)}).ok());
  ASSERT_TRUE(client_->Put("for ever", "3").ok());
  const auto left = client_->Ttl("long");
  ASSERT_TRUE(left.ok() && left->has_value());
  EXPECT_GT(**left, milliseconds(500'000));
  EXPECT_LE(**left, milliseconds(600'000));
  EXPECT_EQ(*client_->Ttl("for ever"), std::nullopt);
  EXPECT_TRUE(testing::Eventually([&] { return !Has("short"); }));
  EXPECT_TRUE(absl::IsNotFound(client_->Ttl("short").status()));
  EXPECT_TRUE(Has("long"));
  EXPECT_TRUE(Has("for ever"));
  EXPECT_THAT(Keys(*client_, {}, 10), ElementsAre("for ever", "long"));
}

TEST_F(ClientScansTest, ExpireAndPersist) {
  const uint64_t version = client_->Put("key", "value")->version;
  EXPECT_TRUE(absl::IsNotFound(client_->Expire("other", milliseconds(1000)).status()));
  EXPECT_TRUE(absl::IsNotFound(client_->Persist("other").status()));
  EXPECT_TRUE(absl::IsNotFound(client_->Ttl("other").status()));
  EXPECT_FALSE(client_->Expire("key", milliseconds(500'000))->existed);
  const auto again = client_->Expire("key", milliseconds(600'000));
  EXPECT_TRUE(again->existed);
  EXPECT_EQ(again->version, version);
  EXPECT_GT(**client_->Ttl("key"), milliseconds(500'000));
  ASSERT_TRUE(client_->Append("key", "!").ok());
  EXPECT_TRUE(client_->Persist("key")->existed);
  EXPECT_FALSE(client_->Persist("key")->existed);
  EXPECT_EQ(*client_->Ttl("key"), std::nullopt);
  ASSERT_TRUE(client_->Expire("key", milliseconds(1)).ok());
  EXPECT_TRUE(testing::Eventually([&] { return !Has("key"); }));
}

TEST_F(ClientScansTest, TimesOutOfRangeAreRefused) {
  for (const milliseconds ttl : {milliseconds(0), milliseconds(-1), milliseconds::max()}) {
    EXPECT_TRUE(absl::IsInvalidArgument(client_->Put("key", "v", {.ttl = ttl}).status()));
    EXPECT_TRUE(absl::IsInvalidArgument(client_->Expire("key", ttl).status()));
  }
  EXPECT_FALSE(Has("key"));
}

TEST_F(ClientScansTest, ValuesAreReadTogether) {
  constexpr size_t kKeys = 256;
  for (size_t i = 0; i < kKeys; ++i) {
    ASSERT_TRUE(client_->Put("key-" + std::to_string(1000 + i), std::to_string(i)).ok());
  }
  Options options = PatientOptions();
  options.depth = 64;
  const auto client = Connect(options);
  ASSERT_NE(client, nullptr);
  std::vector<ScanItem> items;
  const ConnectionStats before = client->stats();
  ASSERT_TRUE(client->Scan({}, kKeys, &items).ok());
  const ConnectionStats after = client->stats();
  ASSERT_EQ(items.size(), kKeys);
  for (size_t i = 0; i < kKeys; ++i) EXPECT_EQ(items[i].value, std::to_string(i));
  // One READ for each, where the server says that its item lies.
  EXPECT_EQ(after.reads - before.reads, kKeys);
  EXPECT_LE(after.sends - before.sends, 2u);
  // As many with one doorbell as may be in flight at once. Another device may allow fewer, or
  // complete them one by one.
  EXPECT_LT(after.doorbells - before.doorbells, kKeys);
  if (testing::FabricName() == "soft") {
    EXPECT_LE(after.doorbells - before.doorbells, kKeys / 16 + 2);
  }
}

// Several at once, in whatever room the depth leaves them, beside other operations.
TEST_F(ClientScansTest, AsynchronousScans) {
  const int count = testing::Scaled(300, 20);
  std::vector<std::string> keys;
  for (int i = 0; i < count; ++i) keys.push_back("key-" + std::to_string(1000 + i));
  for (const std::string& key : keys) ASSERT_TRUE(client_->Put(key, "value of " + key).ok());
  for (const uint32_t depth : {1u, 2u, 64u}) {
    Options options = PatientOptions();
    options.depth = depth;
    auto client = Connect(options);
    ASSERT_NE(client, nullptr);
    const uint32_t scans = std::min(depth, 3u);
    uint32_t done = 0;
    for (uint32_t i = 0; i < scans; ++i) {
      const absl::Status submitted =
          client->SubmitScan({.prefix = "key-"}, keys.size() + 5,
                             [&](const absl::Status& status, std::vector<ScanItem> items) {
                               EXPECT_TRUE(status.ok()) << status;
                               ASSERT_EQ(items.size(), keys.size());
                               for (size_t k = 0; k < keys.size(); ++k) {
                                 EXPECT_EQ(items[k].key, keys[k]);
                                 EXPECT_EQ(items[k].value, "value of " + keys[k]);
                                 EXPECT_NE(items[k].version, 0u);
                               }
                               ++done;
                             });
      ASSERT_TRUE(submitted.ok()) << submitted;
    }
    if (depth <= 2) {
      EXPECT_TRUE(absl::IsResourceExhausted(client->SubmitScan({}, 1, {})));
    }
    while (client->in_flight() != 0) {
      client->Wait(std::chrono::seconds(60));
      // As much as is allowed, all the time.
      if (done < scans) {
        while (client->SubmitGet(keys[0], {}).ok()) {
        }
      }
    }
    EXPECT_EQ(done, scans);
  }
}

TEST_F(ClientScansTest, AsynchronousScanIsCancelled) {
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(client_->Put("key-" + std::to_string(i), "v").ok());
  ASSERT_TRUE(server_->process().Freeze().ok());
  absl::Status outcome;
  int called = 0;
  const absl::Status submitted =
      client_->SubmitScan({}, 50, [&](const absl::Status& status, const std::vector<ScanItem>&) {
        outcome = status;
        ++called;
      });
  ASSERT_TRUE(submitted.ok()) << submitted;
  client_->Poll();
  client_->Close();
  EXPECT_EQ(called, 1);
  EXPECT_TRUE(absl::IsCancelled(outcome)) << outcome;
}

TEST_F(ClientScansTest, AsynchronousTimesToLive) {
  ASSERT_TRUE(client_->Put("key", "v", {.ttl = milliseconds(3'600'000)}).ok());
  ASSERT_TRUE(client_->Put("forever", "v").ok());
  int done = 0;
  const auto submit = [&](std::string_view key, absl::StatusCode code, bool has_time) {
    const absl::Status submitted = client_->SubmitTtl(
        key, [&, code, has_time](const absl::Status& status, std::optional<milliseconds> left) {
          EXPECT_EQ(status.code(), code) << status;
          EXPECT_EQ(left.has_value(), has_time);
          EXPECT_LE(left.value_or(milliseconds(0)), milliseconds(3'600'000));
          ++done;
        });
    EXPECT_TRUE(submitted.ok()) << submitted;
  };
  submit("key", absl::StatusCode::kOk, true);
  submit("forever", absl::StatusCode::kOk, false);
  submit("absent", absl::StatusCode::kNotFound, false);
  client_->Drain();
  EXPECT_EQ(done, 3);
}

}  // namespace
}  // namespace verbena
