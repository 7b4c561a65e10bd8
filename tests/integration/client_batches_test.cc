// Several operations at once: what they give back, and that they share READs' doorbells and SENDs.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/integration/fabric_under_test.h"
#include "tests/integration/patient_options.h"
#include "tests/integration/process.h"
#include "verbena/batch.h"
#include "verbena/connection.h"

namespace verbena {
namespace {

using std::chrono::milliseconds;
using testing::PatientOptions;
using testing::ServerProcess;

std::vector<std::string_view> Views(const std::vector<std::string>& keys) {
  return {keys.begin(), keys.end()};
}

class ClientBatchesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = ServerProcess::Start({"--memory=64MiB", "--max_value_size=1MiB"});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    client_ = Connect();
    ASSERT_NE(client_, nullptr);
  }
  std::unique_ptr<Connection> Connect(const Options& options = PatientOptions()) {
    return testing::MustConnect(server_->address(), options);
  }
  // "key-0" and so on, each with itself as its value.
  std::vector<std::string> PutKeys(int count) {
    std::vector<std::string> keys;
    std::vector<KeyValue> items;
    for (int i = 0; i < count; ++i) keys.push_back("key-" + std::to_string(i));
    for (const std::string& key : keys) items.push_back({key, key});
    const absl::Status status = client_->MultiPut(items);
    EXPECT_TRUE(status.ok()) << status;
    return keys;
  }

  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<Connection> client_;
};

TEST_F(ClientBatchesTest, CachedKeysTakeOneReadEachAndOneDoorbell) {
  const std::vector<std::string> keys = PutKeys(16);
  std::vector<GetItem> items;
  // The first time their buckets are not in the cache: two rounds.
  ASSERT_TRUE(client_->MultiGet(Views(keys), &items).ok());
  ASSERT_TRUE(client_->MultiGet(Views(keys), &items).ok());

  const ConnectionStats before = client_->stats();
  ASSERT_TRUE(client_->MultiGet(Views(keys), &items).ok());
  const ConnectionStats after = client_->stats();
  ASSERT_EQ(items.size(), keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    EXPECT_TRUE(items[i].status.ok()) << items[i].status;
    EXPECT_EQ(items[i].value, keys[i]);
    EXPECT_NE(items[i].version, 0u);
  }
  EXPECT_EQ(after.gets - before.gets, keys.size());
  EXPECT_EQ(after.sends, before.sends);
  // Two keys of a bucket may share a fingerprint, and then one of them takes a READ more.
  EXPECT_GE(after.reads - before.reads, keys.size());
  EXPECT_LE(after.reads - before.reads, keys.size() + 2);
  // Another device or server may allow fewer READs at once.
  if (testing::FabricName() == "soft") {
    EXPECT_LE(after.doorbells - before.doorbells, 1 + (after.reads - before.reads - keys.size()));
  }
}

TEST_F(ClientBatchesTest, UncachedKeysGoInTwoRounds) {
  const std::vector<std::string> keys = PutKeys(16);
  Options options = PatientOptions();
  options.cache_bytes = 0;
  auto client = Connect(options);
  ASSERT_NE(client, nullptr);
  std::vector<GetItem> items;
  const ConnectionStats before = client->stats();
  ASSERT_TRUE(client->MultiGet(Views(keys), &items).ok());
  const ConnectionStats after = client->stats();
  for (size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(items[i].value, keys[i]);
  EXPECT_GE(after.reads - before.reads, 2 * keys.size());
  EXPECT_EQ(after.sends, before.sends);
}

TEST_F(ClientBatchesTest, ChangesShareMessages) {
  std::vector<std::string> keys = PutKeys(1);
  const ConnectionStats before = client_->stats();
  keys = PutKeys(64);
  const uint64_t puts = client_->stats().sends - before.sends;
  EXPECT_GE(puts, 1u);
  EXPECT_LE(puts, 4u);
  std::vector<absl::StatusOr<ChangeResult>> results;
  ASSERT_TRUE(client_->MultiDelete(Views(keys), {}, &results).ok());
  EXPECT_LE(client_->stats().sends - before.sends - puts, 4u);
  ASSERT_EQ(results.size(), keys.size());
  for (const auto& result : results) EXPECT_TRUE(result.ok() && result->existed);
  // That they are gone already is no error of the batch.
  ASSERT_TRUE(client_->MultiDelete(Views(keys), {}, &results).ok());
  for (const auto& result : results) EXPECT_TRUE(absl::IsNotFound(result.status()));
}

TEST_F(ClientBatchesTest, MoreThanTheDepth) {
  Options options = PatientOptions();
  options.depth = 3;
  client_ = Connect(options);
  ASSERT_NE(client_, nullptr);
  const std::vector<std::string> keys = PutKeys(testing::Scaled(500, 20));
  std::vector<GetItem> items;
  ASSERT_TRUE(client_->MultiGet(Views(keys), &items).ok());
  for (size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(items[i].value, keys[i]);
  EXPECT_EQ(client_->in_flight(), 0u);
}

TEST_F(ClientBatchesTest, NoneAtAll) {
  std::vector<GetItem> items(3);
  EXPECT_TRUE(client_->MultiGet({}, &items).ok());
  EXPECT_TRUE(items.empty());
  EXPECT_TRUE(client_->MultiPut({}).ok());
  EXPECT_TRUE(client_->MultiDelete({}).ok());
  Batch batch;
  EXPECT_TRUE(client_->Execute(batch).ok());
}

TEST_F(ClientBatchesTest, EachKeyHasItsOwnOutcome) {
  PutKeys(2);
  const std::string too_long(client_->limits().max_key_size + 1, 'k');
  const std::vector<std::string_view> keys = {"key-0", "absent", too_long, "key-1"};
  std::vector<GetItem> items;
  const absl::Status status = client_->MultiGet(keys, &items);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_TRUE(items[0].status.ok());
  EXPECT_TRUE(absl::IsNotFound(items[1].status));
  EXPECT_TRUE(absl::IsInvalidArgument(items[2].status));
  EXPECT_EQ(items[3].value, "key-1");

  const std::string too_large(client_->limits().max_value_size + 1, 'v');
  const std::vector<KeyValue> puts = {{"a", "1"}, {"b", too_large}, {"c", "3"}};
  std::vector<absl::StatusOr<ChangeResult>> results;
  EXPECT_TRUE(absl::IsInvalidArgument(client_->MultiPut(puts, {}, &results)));
  EXPECT_TRUE(results[0].ok());
  EXPECT_TRUE(absl::IsInvalidArgument(results[1].status()));
  EXPECT_TRUE(results[2].ok());

  EXPECT_TRUE(absl::IsAlreadyExists(client_->MultiPut(puts, Condition::IfAbsent(), &results)));
  EXPECT_TRUE(absl::IsAlreadyExists(results[0].status()));
  EXPECT_TRUE(absl::IsInvalidArgument(client_->MultiPut(puts, {.ttl = milliseconds(0)})));
}

TEST_F(ClientBatchesTest, OperationsOfAllKinds) {
  PutKeys(3);
  ASSERT_TRUE(client_->Put("number", "40").ok());
  const std::string large(300'000, 'l');
  Batch batch;
  EXPECT_TRUE(absl::IsFailedPrecondition(batch.result(batch.Get("key-0")).status));
  const size_t put = batch.Put("new", "value", {.ttl = milliseconds(3'600'000)});
  const size_t refused = batch.Put("key-1", "value", Condition::IfAbsent());
  const size_t deleted = batch.Delete("key-1");
  const size_t absent = batch.Delete("absent");
  const size_t added = batch.Add("number", 2);
  const size_t appended = batch.Append("list", "x");
  const size_t taken = batch.GetAndDelete("key-2");
  const size_t put_large = batch.Put("large", large);
  EXPECT_EQ(batch.size(), 9u);
  absl::Status status = client_->Execute(batch);
  // The first that failed; that a key to be deleted is absent does not count.
  EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
  EXPECT_EQ(batch.result(0).value, "key-0");
  EXPECT_NE(batch.result(0).change.version, 0u);
  EXPECT_TRUE(batch.result(put).status.ok());
  EXPECT_FALSE(batch.result(put).change.existed);
  EXPECT_TRUE(absl::IsAlreadyExists(batch.result(refused).status));
  EXPECT_NE(batch.result(refused).change.version, 0u);
  EXPECT_TRUE(batch.result(deleted).status.ok());
  EXPECT_TRUE(absl::IsNotFound(batch.result(absent).status));
  EXPECT_EQ(batch.result(added).change.number, 42);
  EXPECT_TRUE(batch.result(appended).status.ok());
  EXPECT_EQ(batch.result(taken).value, "key-2");
  EXPECT_TRUE(batch.result(put_large).status.ok()) << batch.result(put_large).status;

  // Once more, with others.
  batch.Clear();
  EXPECT_TRUE(batch.empty());
  const size_t got = batch.Get("large");
  const size_t expire = batch.Expire("list", milliseconds(3'600'000));
  const size_t persist = batch.Persist("new");
  const size_t gone = batch.Get("key-2");
  status = client_->Execute(batch);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(batch.result(got).value, large);
  EXPECT_FALSE(batch.result(expire).change.existed);
  EXPECT_TRUE(batch.result(persist).change.existed);
  EXPECT_TRUE(absl::IsNotFound(batch.result(gone).status));
}

TEST_F(ClientBatchesTest, WhatIsWrongInABatch) {
  Batch batch;
  const size_t empty_key = batch.Get("");
  const size_t condition = batch.Delete("key", Condition::IfAbsent());
  const size_t ttl = batch.Expire("key", milliseconds(0));
  const size_t timeout = batch.Get("key", {.timeout = milliseconds(0)});
  const size_t suffix = batch.Append("key", std::string(client_->limits().eager_limit + 1, 's'));
  const size_t good = batch.Put("key", "value");
  EXPECT_TRUE(absl::IsInvalidArgument(client_->Execute(batch)));
  for (const size_t i : {empty_key, condition, ttl, timeout, suffix}) {
    EXPECT_TRUE(absl::IsInvalidArgument(batch.result(i).status)) << i;
  }
  EXPECT_TRUE(batch.result(good).status.ok());
  client_->Close();
  EXPECT_TRUE(absl::IsFailedPrecondition(client_->Execute(batch)) ||
              absl::IsInvalidArgument(client_->Execute(batch)));
  EXPECT_TRUE(absl::IsFailedPrecondition(batch.result(good).status));
}

// Also where none was begun: nothing of an earlier call is left.
TEST_F(ClientBatchesTest, ResultsAreOfThisCall) {
  const std::vector<KeyValue> puts = {{"a", "1"}, {"b", "2"}};
  std::vector<absl::StatusOr<ChangeResult>> results;
  ASSERT_TRUE(client_->MultiPut(puts, {}, &results).ok());
  ASSERT_TRUE(absl::IsInvalidArgument(client_->MultiPut(puts, {.ttl = milliseconds(0)}, &results)));
  ASSERT_EQ(results.size(), 2u);
  for (const auto& result : results) EXPECT_TRUE(absl::IsInvalidArgument(result.status()));

  uint64_t present = 7;
  EXPECT_TRUE(absl::IsAlreadyExists(client_->PutIfAbsent("a", "3", &present).status()));
  EXPECT_NE(present, 0u);
  EXPECT_TRUE(absl::IsInvalidArgument(client_->PutIfAbsent("", "3", &present).status()));
  EXPECT_EQ(present, 0u);
  present = 7;
  EXPECT_TRUE(absl::IsInvalidArgument(client_->Delete("", {}, &present).status()));
  EXPECT_EQ(present, 0u);
  uint64_t version = 7;
  std::string value;
  EXPECT_TRUE(absl::IsInvalidArgument(client_->GetAndDelete("", &value, &version)));
  EXPECT_EQ(version, 0u);
  version = 7;
  size_t size = 7;
  EXPECT_TRUE(absl::IsInvalidArgument(client_->GetInto("", {}, &size, &version)));
  EXPECT_EQ(version, 0u);
  EXPECT_EQ(size, 0u);
}

TEST_F(ClientBatchesTest, InACallbackTheyAreRefused) {
  PutKeys(1);
  absl::Status inner;
  ASSERT_TRUE(client_
                  ->SubmitGet("key-0",
                              [&](const absl::Status&, const GetResult&) {
                                std::vector<GetItem> items;
                                const std::vector<std::string_view> keys = {"key-0"};
                                inner = client_->MultiGet(keys, &items);
                              })
                  .ok());
  client_->Drain();
  EXPECT_TRUE(absl::IsFailedPrecondition(inner)) << inner;
}

// A callback that runs during a call has the place of that call's results, and its batch, at hand.
TEST_F(ClientBatchesTest, CallbacksMayUseWhatACallIsUsing) {
  const std::vector<std::string> keys = PutKeys(200);  // more than the depth: in several rounds
  int ran = 0;
  const auto meanwhile = [&](auto use) {
    const absl::Status submitted =
        client_->SubmitGet("key-0", [&, use](const absl::Status&, const GetResult&) {
          use();
          ++ran;
        });
    ASSERT_TRUE(submitted.ok()) << submitted;
  };
  std::vector<GetItem> got;
  meanwhile([&] { EXPECT_TRUE(client_->MultiGet({}, &got).ok()); });
  ASSERT_TRUE(client_->MultiGet(Views(keys), &got).ok());
  ASSERT_EQ(ran, 1);
  ASSERT_EQ(got.size(), keys.size());
  for (size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(got[i].value, keys[i]);

  std::vector<KeyValue> items;
  for (const std::string& key : keys) items.push_back({key, "other"});
  std::vector<absl::StatusOr<ChangeResult>> changed;
  meanwhile([&] { EXPECT_TRUE(client_->MultiPut({}, {}, &changed).ok()); });
  ASSERT_TRUE(client_->MultiPut(items, {}, &changed).ok());
  ASSERT_EQ(ran, 2);
  EXPECT_EQ(changed.size(), keys.size());

  Batch batch;
  for (const std::string& key : keys) batch.Get(key);
  meanwhile([&] {
    EXPECT_TRUE(absl::IsFailedPrecondition(client_->Execute(batch)));
    batch.Clear();
    batch.Get("key-0");
  });
  ASSERT_TRUE(client_->Execute(batch).ok());
  ASSERT_EQ(ran, 3);
  ASSERT_EQ(batch.size(), keys.size());
  for (size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(batch.result(i).value, "other");

  meanwhile([&] { EXPECT_TRUE(client_->MultiDelete({}, {}, &changed).ok()); });
  ASSERT_TRUE(client_->MultiDelete(Views(keys), {}, &changed).ok());
  ASSERT_EQ(ran, 4);
  EXPECT_EQ(changed.size(), keys.size());
}

}  // namespace
}  // namespace verbena
