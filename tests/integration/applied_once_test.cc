// Every change is applied once and in order, whatever the fabric loses on the way: several
// connections with many operations in flight, each key with one operation at a time, against a
// model. A change that was lost or came twice would show in what the operations find (existed,
// versions, values), in the server's counts of operations, or in what is there at the end.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/integration/fabric_under_test.h"
#include "tests/integration/process.h"
#include "verbena/connection.h"

namespace verbena {
namespace {

constexpr int kConnections = 3;
constexpr int kKeysEach = 40;
constexpr uint32_t kDepth = 16;

std::unique_ptr<Connection> Connect(const std::string& server) {
  Options options;
  options.fabric = testing::FabricName();
  options.connect_timeout = std::chrono::seconds(60);
  options.operation_timeout = std::chrono::seconds(60);
  options.depth = kDepth;
  auto connection = Connection::Connect(server, options);
  EXPECT_TRUE(connection.ok()) << connection.status();
  return connection.ok() ? *std::move(connection) : nullptr;
}

struct Totals {
  int64_t puts = 0;
  int64_t deletes = 0;  // of keys that were there
  int64_t vain = 0;     // deletes of keys that were not
  int64_t gets = 0;
};

// One connection and the keys that only it changes.
class Owner {
 public:
  Owner(std::unique_ptr<Connection> connection, int number, Totals& totals)
      : connection_(std::move(connection)),
        random_(static_cast<unsigned>(number)),
        totals_(totals) {
    for (int i = 0; i < kKeysEach; ++i) {
      keys_.emplace_back();
      keys_.back().name = "key-" + std::to_string(number) + "-" + std::to_string(i);
    }
  }

  // Submits operations while there is room, and counts them down in `left`. False when all are.
  bool Fill(int* left) {
    while (*left > 0 && connection_->in_flight() < kDepth) {
      Key& key = keys_[random_() % keys_.size()];
      if (key.busy) break;  // the next call takes another one
      --*left;
      key.busy = true;
      const unsigned choice = static_cast<unsigned>(random_() % 8);
      const absl::Status submitted = choice < 4 ? Put(key) : choice < 6 ? Delete(key) : Get(key);
      EXPECT_TRUE(submitted.ok()) << submitted;
    }
    connection_->Poll();
    return *left > 0;
  }
  Connection& connection() { return *connection_; }

  void ExpectAllThere(Connection& reader) {
    std::string value;
    for (const Key& key : keys_) {
      uint64_t version = 0;
      const absl::Status status = reader.Get(key.name, &value, &version);
      EXPECT_EQ(status.ok(), key.there) << key.name << ": " << status;
      EXPECT_TRUE(status.ok() || absl::IsNotFound(status)) << status;
      if (!key.there) continue;
      EXPECT_TRUE(value == key.value) << key.name;
      EXPECT_EQ(version, key.version) << key.name;
    }
  }
  int there() const {
    int count = 0;
    for (const Key& key : keys_) count += key.there ? 1 : 0;
    return count;
  }

 private:
  struct Key {
    std::string name;
    std::string value;
    uint64_t version = 0;  // of the last put
    bool there = false;
    bool busy = false;
  };

  absl::Status Put(Key& key) {
    ++totals_.puts;
    const std::string stamp = key.name + ":" + std::to_string(totals_.puts) + ";";
    // Some values are fetched by the server with READs.
    const size_t size = totals_.puts % 50 == 0 ? 30'000 : random_() % 1500;
    key.value.clear();
    do key.value += stamp;
    while (key.value.size() < size);
    return connection_->SubmitPut(
        key.name, key.value, [this, &key](const absl::Status& status, const ChangeResult& result) {
          EXPECT_TRUE(status.ok()) << status;
          EXPECT_EQ(result.existed, key.there) << key.name;
          EXPECT_GT(result.version, key.version) << key.name;
          key.version = result.version;
          key.there = true;
          key.busy = false;
        });
  }

  absl::Status Delete(Key& key) {
    ++(key.there ? totals_.deletes : totals_.vain);
    return connection_->SubmitDelete(
        key.name, [this, &key](const absl::Status& status, const ChangeResult& result) {
          if (key.there) {
            EXPECT_TRUE(status.ok()) << key.name << ": " << status;
            EXPECT_EQ(result.version, key.version) << "the version that it deleted, " << key.name;
          } else {
            EXPECT_TRUE(absl::IsNotFound(status)) << key.name << ": " << status;
          }
          key.there = false;
          key.busy = false;
        });
  }

  absl::Status Get(Key& key) {
    ++totals_.gets;
    return connection_->SubmitGet(key.name,
                                  [&key](const absl::Status& status, const GetResult& result) {
                                    EXPECT_EQ(status.ok(), key.there) << key.name << ": " << status;
                                    EXPECT_TRUE(status.ok() || absl::IsNotFound(status)) << status;
                                    if (status.ok()) {
                                      EXPECT_TRUE(result.value == key.value) << key.name;
                                      EXPECT_EQ(result.version, key.version) << key.name;
                                    }
                                    key.busy = false;
                                  });
  }

  std::unique_ptr<Connection> connection_;
  std::minstd_rand random_;
  std::vector<Key> keys_;
  Totals& totals_;
};

TEST(AppliedOnce, WhateverIsLostOnTheWay) {
  auto server = testing::ServerProcess::Start({"--workers=2"});
  ASSERT_TRUE(server.ok()) << server.status();
  Totals totals;
  std::vector<Owner> owners;
  owners.reserve(kConnections);
  for (int i = 0; i < kConnections; ++i) {
    auto connection = Connect((*server)->address());
    ASSERT_NE(connection, nullptr);
    owners.emplace_back(std::move(connection), i, totals);
  }
  int left = testing::Scaled(40'000, 2000);
  bool more = true;
  while (more && !HasFailure()) {
    more = false;
    for (Owner& owner : owners) more |= owner.Fill(&left);
  }
  for (Owner& owner : owners) owner.connection().Drain();

  const auto reader = Connect((*server)->address());
  ASSERT_NE(reader, nullptr);
  const auto text = reader->Info();
  ASSERT_TRUE(text.ok()) << text.status();
  const auto info = nlohmann::json::parse(*text, nullptr, false);
  int there = 0;
  for (const Owner& owner : owners) there += owner.there();
  EXPECT_EQ(info["operations"]["put"]["ok"], totals.puts);
  EXPECT_EQ(info["operations"]["delete"]["ok"], totals.deletes);
  // What changes nothing is no change to be kept: it is made again where a connection was lost.
  const auto vain = info["operations"]["delete"].value("not found", int64_t{0});
  uint64_t reconnects = 0;
  for (Owner& owner : owners) reconnects += owner.connection().stats().reconnects;
  EXPECT_GE(vain, totals.vain);
  if (reconnects == 0) {
    EXPECT_EQ(vain, totals.vain);
  }
  EXPECT_EQ(info["items"], there);
  for (Owner& owner : owners) owner.ExpectAllThere(*reader);
  std::cout << "puts " << totals.puts << ", deletes " << totals.deletes + totals.vain << ", gets "
            << totals.gets << "\n";
}

}  // namespace
}  // namespace verbena
