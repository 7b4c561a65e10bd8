// The client library against a real server process: what it gives back, whatever the sizes, the
// order and the number of operations in flight.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/layout/item.h"
#include "common/layout/size_class.h"
#include "tests/integration/fabric_under_test.h"
#include "tests/integration/patient_options.h"
#include "tests/integration/process.h"
#include "verbena/connection.h"

namespace verbena {
namespace {

using std::chrono::milliseconds;
using testing::PatientOptions;
using testing::ServerProcess;

std::string RandomBytes(std::mt19937_64& random, size_t size) {
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

// One server for all tests of the suite; each test uses keys of its own.
class ClientTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto server = ServerProcess::Start({"--memory=256MiB", "--max_value_size=8MiB"});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = server->release();
  }
  static void TearDownTestSuite() {
    if (server_ != nullptr) {
      const auto stopped = server_->Stop();
      EXPECT_TRUE(stopped.ok() && stopped->exited && stopped->code == 0);
    }
    delete server_;
    server_ = nullptr;
  }
  void SetUp() override { ASSERT_NE(server_, nullptr); }

  static std::unique_ptr<Connection> Connect(const Options& options = PatientOptions()) {
    auto connection = Connection::Connect(server_->address(), options);
    EXPECT_TRUE(connection.ok()) << connection.status();
    return connection.ok() ? *std::move(connection) : nullptr;
  }
  // The test's own prefix and a number.
  static std::string Key(int i) {
    return std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()) + "-" +
           std::to_string(i);
  }

  static ServerProcess* server_;
};
ServerProcess* ClientTest::server_ = nullptr;

TEST_F(ClientTest, SaysWhatItIsConnectedTo) {
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  EXPECT_EQ(client->fabric(), testing::FabricName());
  EXPECT_FALSE(client->device().empty());
  EXPECT_NE(client->server_epoch(), 0u);
  EXPECT_GE(client->limits().max_key_size, 1024u);
  EXPECT_EQ(client->limits().max_value_size, 8u << 20);
  EXPECT_GT(client->limits().eager_limit, 0u);
  EXPECT_GT(client->limits().window, 1u);
  EXPECT_TRUE(client->status().ok());
  EXPECT_TRUE(client->Ping().ok());
  const auto info = client->Info();
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->front(), '{');
}

// The description of a server with items of every size does not fit one message.
TEST_F(ClientTest, InfoOfItemsOfEverySize) {
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  for (uint32_t i = 0; i < layout::kSizeClasses; ++i) {
    const std::string key = Key(static_cast<int>(i));
    const uint64_t bytes = layout::BlockSize(i);
    const std::string value(bytes - std::min(bytes, layout::ItemSize(key.size(), 0)), 'v');
    ASSERT_TRUE(client->Put(key, value).ok()) << i;
  }
  const auto text = client->Info();
  ASSERT_TRUE(text.ok()) << text.status();
  const auto info = nlohmann::json::parse(*text, nullptr, false);
  ASSERT_TRUE(info.is_object()) << *text;
  EXPECT_GE(info["items"], layout::kSizeClasses);
  EXPECT_GE(info["heap"]["classes"].size(), layout::kSizeClasses * 9 / 10);
}

TEST_F(ClientTest, AutoTakesTheFabricOfTheAddress) {
  Options options = PatientOptions();
  options.fabric = "auto";
  auto client = Connect(options);
  ASSERT_NE(client, nullptr);
  EXPECT_EQ(client->fabric(), testing::FabricName());
  EXPECT_TRUE(client->Ping().ok());
}

TEST_F(ClientTest, PutGetDelete) {
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  const std::string key = Key(0);
  std::string value;
  uint64_t version = 0;
  EXPECT_TRUE(absl::IsNotFound(client->Get(key, &value)));
  const auto first = client->Put(key, "one");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_FALSE(first->existed);
  EXPECT_GT(first->version, 0u);
  ASSERT_TRUE(client->Get(key, &value, &version).ok());
  EXPECT_EQ(value, "one");
  EXPECT_EQ(version, first->version);
  const auto second = client->Put(key, "another, longer value");
  ASSERT_TRUE(second.ok());
  EXPECT_TRUE(second->existed);
  EXPECT_GT(second->version, first->version);
  ASSERT_TRUE(client->Get(key, &value, &version).ok());
  EXPECT_EQ(value, "another, longer value");
  EXPECT_EQ(version, second->version);
  const auto deleted = client->Delete(key);
  ASSERT_TRUE(deleted.ok()) << deleted.status();
  EXPECT_TRUE(deleted->existed);
  EXPECT_TRUE(absl::IsNotFound(client->Get(key, &value)));
  EXPECT_TRUE(absl::IsNotFound(client->Delete(key).status()));
}

TEST_F(ClientTest, KeysAreBytesUpToTheLimit) {
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  std::mt19937_64 random(1);
  const uint32_t limit = client->limits().max_key_size;
  std::map<std::string, std::string> model;
  for (const size_t size : {size_t{1}, size_t{2}, size_t{7}, size_t{8}, size_t{100}, size_t{1024},
                            size_t{limit - 1}, size_t{limit}}) {
    model[RandomBytes(random, size)] = RandomBytes(random, size % 300);
  }
  model[std::string(3, '\0')] = std::string(5, '\0');
  for (const auto& [key, value] : model) ASSERT_TRUE(client->Put(key, value).ok());
  std::string value;
  for (const auto& [key, expected] : model) {
    ASSERT_TRUE(client->Get(key, &value).ok());
    EXPECT_EQ(value, expected);
  }
  const std::string too_long(limit + 1, 'k');
  for (const std::string& bad : {std::string(), too_long}) {
    EXPECT_TRUE(absl::IsInvalidArgument(client->Get(bad, &value)));
    EXPECT_TRUE(absl::IsInvalidArgument(client->Put(bad, "v").status()));
    EXPECT_TRUE(absl::IsInvalidArgument(client->Delete(bad).status()));
    EXPECT_TRUE(absl::IsInvalidArgument(client->SubmitGet(bad, {})));
    EXPECT_TRUE(absl::IsInvalidArgument(client->SubmitPut(bad, "v", {})));
    EXPECT_TRUE(absl::IsInvalidArgument(client->SubmitDelete(bad, {})));
  }
  EXPECT_EQ(client->in_flight(), 0u);
}

TEST_F(ClientTest, ValuesOfAllSizes) {
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  std::mt19937_64 random(2);
  const size_t eager = client->limits().eager_limit;
  const size_t limit = client->limits().max_value_size;
  std::vector<size_t> sizes = {0,         1,         4000,       4096,          eager - 1, eager,
                               eager + 1, 64 * 1024, 512 * 1024, (1 << 20) + 1, 3 << 20,   limit};
  std::string value;
  for (const size_t size : sizes) {
    const std::string key = Key(static_cast<int>(size));
    const std::string expected = RandomBytes(random, size);
    const auto put = client->Put(key, expected);
    ASSERT_TRUE(put.ok()) << size << ": " << put.status();
    for (int round = 0; round < 2; ++round) {
      const absl::Status status = client->Get(key, &value);
      ASSERT_TRUE(status.ok()) << size << ": " << status;
      ASSERT_TRUE(value == expected) << size;
    }
    ASSERT_TRUE(client->Delete(key).ok());
  }
  const auto refused = client->Put(Key(0), std::string(limit + 1, 'v'));
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status())) << refused.status();
  EXPECT_TRUE(client->Ping().ok());
}

// Answered by the server's CPU: values that fit a message, and locations of those that do not.
// Each connection has its own: what arrives at once must find as many receives as were granted.
TEST(ServerWithoutSharedReceiveQueues, TakesBurstsOfSeveralClients) {
  auto server = ServerProcess::Start({"--srq=off"});
  ASSERT_TRUE(server.ok()) << server.status();
  constexpr size_t kClients = 3;
  const int keys = testing::Scaled(500);
  std::vector<std::unique_ptr<Connection>> clients;
  size_t stored = 0;
  for (size_t c = 0; c < kClients; ++c) {
    auto client = Connection::Connect((*server)->address(), PatientOptions());
    ASSERT_TRUE(client.ok()) << client.status();
    clients.push_back(*std::move(client));
  }
  const auto key = [](size_t client, int i) {
    return std::to_string(client) + "-" + std::to_string(i);
  };
  for (int i = 0; i < keys; ++i) {
    for (size_t c = 0; c < kClients; ++c) {
      while (clients[c]->in_flight() >= PatientOptions().depth) clients[c]->Poll();
      const std::string both = key(c, i);  // small, so that it is copied at once
      ASSERT_TRUE(clients[c]
                      ->SubmitPut(both, both,
                                  [&](const absl::Status& status, const ChangeResult&) {
                                    EXPECT_TRUE(status.ok()) << status;
                                    ++stored;
                                  })
                      .ok());
    }
  }
  for (const auto& client : clients) client->Drain();
  EXPECT_EQ(stored, kClients * static_cast<size_t>(keys));
  // Each reads what its neighbour has written.
  std::string value;
  for (int i = 0; i < keys; ++i) {
    for (size_t c = 0; c < kClients; ++c) {
      const std::string written = key((c + 1) % kClients, i);
      ASSERT_TRUE(clients[c]->Get(written, &value).ok());
      EXPECT_EQ(value, written);
    }
  }
}

TEST_F(ClientTest, WithoutOneSidedReads) {
  Options options = PatientOptions();
  options.one_sided_reads = false;
  auto client = Connect(options);
  ASSERT_NE(client, nullptr);
  std::mt19937_64 random(3);
  std::string value;
  for (const size_t size : {size_t{0}, size_t{100}, size_t{8192}, size_t{20000}, size_t{2 << 20}}) {
    const std::string expected = RandomBytes(random, size);
    ASSERT_TRUE(client->Put(Key(0), expected).ok());
    const absl::Status status = client->Get(Key(0), &value);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(value == expected) << size;
  }
  EXPECT_TRUE(absl::IsNotFound(client->Get(Key(1), &value)));
  EXPECT_EQ(client->stats().rpc_gets, 6u);
}

TEST_F(ClientTest, ManyKeysAcrossSplits) {
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  const int keys = testing::Scaled(30000, 500);
  int failed = 0;
  for (int i = 0; i < keys; ++i) {
    while (client->in_flight() >= 60) client->Wait(milliseconds(1000));
    const std::string text = "value-" + std::to_string(i);
    ASSERT_TRUE(client
                    ->SubmitPut(Key(i), text,
                                [&failed](const absl::Status& status, const ChangeResult& result) {
                                  failed += status.ok() && !result.existed ? 0 : 1;
                                })
                    .ok());
  }
  client->Drain();
  ASSERT_EQ(failed, 0);
  std::string value;
  for (int round = 0; round < 2; ++round) {
    const ConnectionStats before = client->stats();
    for (int i = 0; i < keys; ++i) {
      ASSERT_TRUE(client->Get(Key(i), &value).ok());
      ASSERT_EQ(value, "value-" + std::to_string(i));
    }
    const double reads = static_cast<double>(client->stats().reads - before.reads) / keys;
    if (round == 1) {
      EXPECT_LE(reads, 1.02) << "with the index cached";
    }
    EXPECT_EQ(client->stats().rpc_gets, 0u);
  }
}

TEST_F(ClientTest, WithoutCache) {
  Options options = PatientOptions();
  options.cache_bytes = 0;
  auto client = Connect(options);
  ASSERT_NE(client, nullptr);
  const int keys = testing::Scaled(2000, 100);
  for (int i = 0; i < keys; ++i) ASSERT_TRUE(client->Put(Key(i), std::to_string(i)).ok());
  const ConnectionStats before = client->stats();
  std::string value;
  for (int i = 0; i < keys; ++i) {
    ASSERT_TRUE(client->Get(Key(i), &value).ok());
    ASSERT_EQ(value, std::to_string(i));
  }
  const double reads = static_cast<double>(client->stats().reads - before.reads) / keys;
  EXPECT_LE(reads, 2.1);
  EXPECT_EQ(client->stats().cache_hits, 0u);
}

TEST_F(ClientTest, TwoClientsSeeEachOthersWrites) {
  auto one = Connect();
  auto two = Connect();
  ASSERT_NE(one, nullptr);
  ASSERT_NE(two, nullptr);
  std::string value;
  std::mt19937_64 random(4);
  for (int round = 0; round < testing::Scaled(500, 50); ++round) {
    Connection& writer = round % 2 == 0 ? *one : *two;
    Connection& reader = round % 2 == 0 ? *two : *one;
    const std::string key = Key(round % 7);
    if (random() % 5 == 0) {
      writer.Delete(key).IgnoreError();
      ASSERT_TRUE(absl::IsNotFound(reader.Get(key, &value)));
    } else {
      const std::string expected = RandomBytes(random, random() % 600);
      const auto put = writer.Put(key, expected);
      ASSERT_TRUE(put.ok());
      uint64_t version = 0;
      ASSERT_TRUE(reader.Get(key, &value, &version).ok());
      ASSERT_EQ(value, expected);
      ASSERT_EQ(version, put->version);
    }
  }
}

// A random mixture with many operations in flight, on keys that no two of them share, against a
// model; large values among them.
TEST_F(ClientTest, PipelinedMixture) {
  for (const uint32_t depth : {1u, 3u, 64u, 300u}) {
    Options options = PatientOptions();
    options.depth = depth;
    auto client = Connect(options);
    ASSERT_NE(client, nullptr);
    constexpr int kKeys = 400;
    std::mt19937_64 random(depth);
    std::vector<std::string> model(kKeys);
    std::vector<bool> there(kKeys, false);
    std::vector<bool> busy(kKeys, false);
    int finished = 0;
    int submitted = 0;
    for (int i = 0; i < testing::Scaled(4000, 300); ++i) {
      const int k = static_cast<int>(random() % kKeys);
      const std::string key = Key(k);
      while (busy[static_cast<size_t>(k)] || client->in_flight() == depth) {
        client->Wait(milliseconds(1000));
      }
      const auto slot = static_cast<size_t>(k);
      busy[slot] = true;
      ++submitted;
      absl::Status status;
      switch (random() % 4) {
        case 0: {
          // Borrowed until the callback if large: the model keeps it.
          model[slot] = RandomBytes(random, random() % 100 == 0 ? 200000 : random() % 900);
          there[slot] = true;
          status = client->SubmitPut(key, model[slot],
                                     [&, slot](const absl::Status& result, const ChangeResult&) {
                                       EXPECT_TRUE(result.ok()) << result;
                                       busy[slot] = false;
                                       ++finished;
                                     });
          break;
        }
        case 1: {
          const bool was_there = there[slot];
          there[slot] = false;
          status = client->SubmitDelete(
              key, [&, slot, was_there](const absl::Status& result, const ChangeResult&) {
                EXPECT_EQ(result.ok(), was_there) << result;
                EXPECT_EQ(absl::IsNotFound(result), !was_there) << result;
                busy[slot] = false;
                ++finished;
              });
          break;
        }
        default:
          status =
              client->SubmitGet(key, [&, slot](const absl::Status& result, const GetResult& got) {
                EXPECT_EQ(result.ok(), static_cast<bool>(there[slot])) << result;
                EXPECT_TRUE(!result.ok() || got.value == model[slot]);
                busy[slot] = false;
                ++finished;
              });
      }
      ASSERT_TRUE(status.ok()) << status;
    }
    client->Drain();
    EXPECT_EQ(client->in_flight(), 0u);
    EXPECT_EQ(finished, submitted);
    for (int k = 0; k < kKeys; ++k) client->Delete(Key(k)).IgnoreError();
  }
}

// A callback may submit, also when the depth has just been full; the value it was given stays.
TEST_F(ClientTest, CallbacksSubmit) {
  Options options = PatientOptions();
  options.depth = 4;
  auto client = Connect(options);
  ASSERT_NE(client, nullptr);
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(client->Put(Key(i), std::string(300, static_cast<char>('a' + i))).ok());
  }
  struct Chain {
    Connection* client;
    int left;
    int next;
    int wrong = 0;
    void Step() {
      if (left-- == 0) return;
      const int i = next++ % 10;
      const absl::Status status =
          client->SubmitGet(Key(i), [this, i](const absl::Status& result, const GetResult& got) {
            const std::string_view value = got.value;
            Step();
            if (!result.ok() || value != std::string(300, static_cast<char>('a' + i))) ++wrong;
          });
      if (!status.ok()) ++wrong;
    }
  };
  std::vector<Chain> chains;
  for (int i = 0; i < 4; ++i) chains.push_back({client.get(), 500, i});
  for (Chain& chain : chains) chain.Step();
  client->Drain();
  for (const Chain& chain : chains) {
    EXPECT_EQ(chain.wrong, 0);
    EXPECT_EQ(chain.left, -1);
  }
}

TEST_F(ClientTest, MoreThanTheDepthIsRefused) {
  Options options = PatientOptions();
  options.depth = 8;
  auto client = Connect(options);
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(client->Put(Key(0), "v").ok());
  int called = 0;
  for (int i = 0; i < 8; ++i) {
    if (i % 2 == 0) {
      ASSERT_TRUE(
          client->SubmitGet(Key(0), [&](const absl::Status&, const GetResult&) { ++called; }).ok());
    } else {
      ASSERT_TRUE(
          client
              ->SubmitPut(Key(i), "v", [&](const absl::Status&, const ChangeResult&) { ++called; })
              .ok());
    }
  }
  EXPECT_TRUE(absl::IsResourceExhausted(
      client->SubmitGet(Key(0), [&](const absl::Status&, const GetResult&) { called += 100; })));
  EXPECT_EQ(client->in_flight(), 8u);
  // A synchronous call waits for a free place.
  std::string value;
  EXPECT_TRUE(client->Get(Key(0), &value).ok());
  client->Drain();
  EXPECT_EQ(called, 8);
}

TEST_F(ClientTest, WaitEndsWithItsTimeOrACallback) {
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  EXPECT_EQ(client->Wait(milliseconds(60000)), 0) << "nothing is in flight: it returns at once";
  int called = 0;
  ASSERT_TRUE(
      client->SubmitPut(Key(0), "v", [&](const absl::Status&, const ChangeResult&) { ++called; })
          .ok());
  EXPECT_EQ(client->Wait(milliseconds(60000)), 1);
  EXPECT_EQ(called, 1);
}

TEST_F(ClientTest, SleepsAtOnceIfToldSo) {
  Options options = PatientOptions();
  options.poll_time = std::chrono::microseconds(0);
  auto client = Connect(options);
  ASSERT_NE(client, nullptr);
  std::string value;
  for (int i = 0; i < testing::Scaled(200, 20); ++i) {
    ASSERT_TRUE(client->Put(Key(i), std::to_string(i)).ok());
    ASSERT_TRUE(client->Get(Key(i), &value).ok());
    ASSERT_EQ(value, std::to_string(i));
  }
}

TEST_F(ClientTest, EveryCallbackOnceOnDestruction) {
  for (int round = 0; round < testing::Scaled(20, 3); ++round) {
    auto client = Connect();
    ASSERT_NE(client, nullptr);
    std::vector<int> calls(64, 0);
    std::vector<absl::Status> results(64);
    const std::string large(300000, 'l');
    for (size_t i = 0; i < 64; ++i) {
      absl::Status status;
      if (i % 2 == 0) {
        status = client->SubmitGet(Key(static_cast<int>(i)),
                                   [&, i](const absl::Status& result, const GetResult&) {
                                     ++calls[i];
                                     results[i] = result;
                                   });
      } else {
        status =
            client->SubmitPut(Key(static_cast<int>(i)), i % 8 == 1 ? std::string_view(large) : "v",
                              [&, i](const absl::Status& result, const ChangeResult&) {
                                ++calls[i];
                                results[i] = result;
                              });
      }
      ASSERT_TRUE(status.ok()) << status;
    }
    for (int poll = 0; poll < round; ++poll) client->Poll();
    const std::vector<int> before = calls;
    client.reset();
    for (size_t i = 0; i < 64; ++i) {
      EXPECT_EQ(calls[i], 1);
      EXPECT_TRUE(before[i] == 1 || absl::IsCancelled(results[i])) << results[i];
    }
  }
}

TEST_F(ClientTest, WrongOptionsAndAddresses) {
  const auto code = [](std::string_view address, auto change) {
    Options options = PatientOptions();
    change(options);
    return Connection::Connect(address, options).status().code();
  };
  const std::string& address = server_->address();
  EXPECT_EQ(code(address, [](Options& o) { o.depth = 0; }), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(address, [](Options& o) { o.depth = 1025; }), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(address, [](Options& o) { o.fabric = "tcp"; }),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(address, [](Options& o) { o.operation_timeout = milliseconds(0); }),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("nonsense", [](Options&) {}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(testing::ServerAddress(0), [](Options&) {}), absl::StatusCode::kInvalidArgument);
  // Nobody listens on the discard port.
  EXPECT_EQ(code(testing::ServerAddress(9), [](Options&) {}), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace verbena
