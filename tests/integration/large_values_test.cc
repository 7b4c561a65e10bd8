// Large values end to end: those that change all the time while they are read, those that are kept
// for a reader, and the largest.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/integration/eventually.h"
#include "tests/integration/fabric_under_test.h"
#include "tests/integration/process.h"
#include "tests/integration/raw_client.h"
#include "verbena/connection.h"

namespace verbena::testing {
namespace {

using wire::OpCode;
using wire::ResultCode;

// As the server documents them.
constexpr size_t kMaxPins = 64;
constexpr auto kPinTime = std::chrono::seconds(10);

Options PatientOptions() {
  Options options;
  options.fabric = FabricName();
  options.connect_timeout = std::chrono::seconds(60);
  options.operation_timeout = std::chrono::seconds(60);
  return options;
}

// A value whose bytes are all the same: any two that were mixed show.
bool IsWhole(const std::string& value, size_t size) {
  return value.size() == size && std::memcmp(value.data(), value.data() + 1, size - 1) == 0;
}

class LargeValues : public ::testing::Test {
 protected:
  void StartServer(std::vector<std::string> flags) {
    auto started = ServerProcess::Start(std::move(flags));
    ASSERT_TRUE(started.ok()) << started.status().ToString();
    server_ = *std::move(started);
  }
  std::unique_ptr<Connection> Connect(const Options& options = PatientOptions()) {
    auto connection = Connection::Connect(server_->address(), options);
    EXPECT_TRUE(connection.ok()) << connection.status();
    return connection.ok() ? *std::move(connection) : nullptr;
  }
  std::unique_ptr<RawClient> Raw(uint64_t value_memory = 0) {
    RawClientOptions options;
    options.value_memory = value_memory;
    auto client = RawClient::ConnectAndGreet(Fabric(), server_->address(), options);
    EXPECT_TRUE(client.ok()) << client.status().ToString();
    return client.ok() ? *std::move(client) : nullptr;
  }
  static nlohmann::json Info(RawClient& client) {
    const auto answer = client.Call(OpCode::kInfo);
    EXPECT_TRUE(answer.ok()) << answer.status().ToString();
    return answer.ok() ? nlohmann::json::parse(answer->value) : nlohmann::json();
  }
  static wire::Location Locate(RawClient& client, std::string_view key) {
    const auto got = client.Call(OpCode::kGet, key);
    EXPECT_TRUE(got.ok()) << got.status().ToString();
    if (!got.ok()) return {};
    EXPECT_EQ(got->code(), ResultCode::kLocated) << got->value;
    const auto location = wire::DecodeLocation(got->value);
    EXPECT_TRUE(location.ok()) << location.status();
    return location.ok() ? *location : wire::Location{};
  }
  static ResultCode Release(RawClient& client, uint64_t pin) {
    wire::OperationHeader header{};
    header.argument = pin;
    const auto answer = client.CallWith(header, OpCode::kRelease, {});
    EXPECT_TRUE(answer.ok()) << answer.status().ToString();
    return answer.ok() ? answer->code() : ResultCode::kInternal;
  }

  // One client overwrites a value as fast as it can while another GETs it; how many of the GETs
  // were answered with an item that the server kept.
  uint64_t GetBesideOverwrites(const Options& options, int gets) {
    const auto size = static_cast<size_t>(Scaled(8 << 20, 1 << 20));
    auto writer = Connect();
    auto reader = Connect(options);
    if (writer == nullptr || reader == nullptr) return 0;
    EXPECT_TRUE(writer->Put("key", std::string(size, 'a')).ok());
    std::atomic<bool> done{false};
    std::atomic<int> writes{0};
    std::thread overwriting([&] {
      std::vector<std::string> values;
      for (char c = 'a'; c < 'e'; ++c) values.emplace_back(size, c);
      for (int i = 0; !done.load(); ++i) {
        const auto put = writer->Put("key", values[static_cast<size_t>(i) % values.size()]);
        EXPECT_TRUE(put.ok()) << put.status();
        if (!put.ok()) return;
        ++writes;
      }
    });
    std::string value;
    uint64_t version = 0;
    for (int i = 0; i < gets; ++i) {
      uint64_t seen = 0;
      const absl::Status status = reader->Get("key", &value, &seen);
      EXPECT_TRUE(status.ok()) << status << " in GET " << i;
      EXPECT_TRUE(IsWhole(value, size)) << "GET " << i;
      EXPECT_GE(seen, version);
      version = seen;
    }
    done.store(true);
    overwriting.join();
    EXPECT_GT(writes.load(), 0);
    return reader->stats().pinned_gets;
  }
  // Until nothing is kept any more.
  void ExpectNothingKept() {
    auto witness = Raw();
    ASSERT_NE(witness, nullptr);
    EXPECT_TRUE(Eventually([&] {
      const auto info = Info(*witness);
      return info["counters"]["pins"] == 0 && info["memory"]["pinned_bytes"] == 0;
    })) << Info(*witness);
  }

  std::unique_ptr<ServerProcess> server_;
};

TEST_F(LargeValues, EveryGetOfAValueThatChangesAllTheTimeReturnsAWholeOne) {
  StartServer({"--memory=256MiB", "--workers=1"});
  const uint64_t kept = GetBesideOverwrites(PatientOptions(), Scaled(100));
  RecordProperty("pinned_gets", static_cast<int>(kept));
  ExpectNothingKept();
}

// The same where each GET is answered by the server.
TEST_F(LargeValues, WithoutOneSidedReadsEachGetIsOfAKeptItem) {
  StartServer({"--memory=256MiB", "--workers=1"});
  Options options = PatientOptions();
  options.one_sided_reads = false;
  const int gets = Scaled(50);
  EXPECT_EQ(GetBesideOverwrites(options, gets), static_cast<uint64_t>(gets));
  ExpectNothingKept();
}

// A client that waits in no call has given back what it has read.
TEST_F(LargeValues, AKeptItemIsReleasedWithTheValue) {
  StartServer({"--memory=64MiB", "--workers=1"});
  Options options = PatientOptions();
  options.one_sided_reads = false;
  auto client = Connect(options);
  ASSERT_NE(client, nullptr);
  const std::string value(1 << 20, 'v');
  ASSERT_TRUE(client->Put("key", value).ok());
  std::string got;
  ASSERT_TRUE(client->Get("key", &got).ok());
  EXPECT_TRUE(got == value);
  EXPECT_EQ(client->stats().pinned_gets, 1u);
  ASSERT_NO_FATAL_FAILURE(ExpectNothingKept());
  auto witness = Raw();
  EXPECT_EQ(Info(*witness)["counters"]["pins_made"], 1);
  EXPECT_EQ(Info(*witness)["counters"]["pins_expired"], 0);
}

TEST_F(LargeValues, AKeptItemCountsUntilItIsReleased) {
  StartServer({"--memory=64MiB", "--workers=1"});
  constexpr size_t kSize = 1 << 20;
  auto owner = Raw(kSize);
  auto other = Raw();
  ASSERT_TRUE(owner != nullptr && other != nullptr);
  ASSERT_EQ(owner->PutByReference("key", std::string(kSize, 'a'))->code(), ResultCode::kOk);
  const auto used = Info(*other)["memory"]["used_bytes"].get<uint64_t>();
  const wire::Location location = Locate(*owner, "key");
  EXPECT_NE(location.pin, 0u);
  EXPECT_EQ(location.value_len, kSize);
  ASSERT_EQ(owner->PutByReference("key", std::string(kSize, 'b'))->code(), ResultCode::kOk);
  auto memory = Info(*other)["memory"];
  EXPECT_EQ(memory["pinned_bytes"], kSize + 27);
  EXPECT_GE(memory["used_bytes"].get<uint64_t>(), used + kSize);
  // Nobody else can let go of it, nor can what is no pin be let go of.
  EXPECT_EQ(Release(*other, location.pin), ResultCode::kNotFound);
  for (const uint64_t id : {uint64_t{0}, location.pin + 1, ~location.pin, UINT64_MAX}) {
    EXPECT_EQ(Release(*owner, id), ResultCode::kNotFound) << id;
  }
  EXPECT_EQ(Info(*other)["counters"]["pins"], 1);
  EXPECT_EQ(Release(*owner, location.pin), ResultCode::kOk);
  EXPECT_EQ(Release(*owner, location.pin), ResultCode::kNotFound);
  memory = Info(*other)["memory"];
  EXPECT_EQ(memory["pinned_bytes"], 0);
  EXPECT_EQ(memory["used_bytes"].get<uint64_t>(), used);
}

// What a client never releases ends with the connection, and before that with its time. It has no
// more than its share meanwhile.
TEST_F(LargeValues, AClientThatNeverReleases) {
  StartServer({"--memory=128MiB", "--workers=1"});
  constexpr size_t kSize = 100'000;
  auto witness = Raw(kSize);
  ASSERT_NE(witness, nullptr);
  ASSERT_EQ(witness->PutByReference("key", std::string(kSize, 'a'))->code(), ResultCode::kOk);
  auto greedy = Raw();
  ASSERT_NE(greedy, nullptr);
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 0; i < kMaxPins; ++i) EXPECT_NE(Locate(*greedy, "key").pin, 0u) << i;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Locate(*greedy, "key").pin, 0u) << i;
  auto counters = Info(*witness)["counters"];
  EXPECT_EQ(counters["pins"], kMaxPins);
  EXPECT_EQ(counters["pins_made"], kMaxPins);
  EXPECT_EQ(counters["pins_refused"], 3);
  // Others have theirs.
  EXPECT_NE(Locate(*witness, "key").pin, 0u);
  greedy.reset();
  EXPECT_TRUE(Eventually([&] { return Info(*witness)["counters"]["pins"] == 1; }));
  EXPECT_EQ(Info(*witness)["counters"]["pins_expired"], 0);
  EXPECT_TRUE(Eventually([&] { return Info(*witness)["counters"]["pins"] == 0; }));
  EXPECT_GE(std::chrono::steady_clock::now() - start, kPinTime);
  counters = Info(*witness)["counters"];
  EXPECT_EQ(counters["pins"], 0);
  EXPECT_EQ(counters["pins_expired"], 1);
  ExpectNothingKept();
}

// Through a region that holds two of them.
void PutAndGet(Connection& client, size_t size) {
  std::string value(size, '\0');
  uint64_t word = size;
  for (size_t i = 0; i + sizeof(word) <= size; i += sizeof(word)) {
    word = word * 6364136223846793005u + 1442695040888963407u;
    std::memcpy(&value[i], &word, sizeof(word));
  }
  for (int i = 0; i < 3; ++i) {
    value.back() = static_cast<char>('a' + i);
    const auto put = client.Put("largest", value);
    ASSERT_TRUE(put.ok()) << put.status();
    std::string got;
    uint64_t version = 0;
    const absl::Status status = client.Get("largest", &got, &version);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(got == value);
    EXPECT_EQ(version, put->version);
  }
  EXPECT_TRUE(absl::IsInvalidArgument(client.Put("more", std::string(size + 1, 'x')).status()));
}

// Where 64 MiB would take too long, the largest is less.
TEST_F(LargeValues, TheLargestByDefault) {
  constexpr int kByDefault = 64 << 20;
  const int largest = Scaled(kByDefault, 4 << 20);
  std::vector<std::string> flags = {"--memory=192MiB", "--workers=1"};
  if (largest < kByDefault) flags.push_back(absl::StrCat("--max_value_size=", largest));
  StartServer(std::move(flags));
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  PutAndGet(*client, static_cast<size_t>(largest));
}

#ifdef VERBENA_FULL_TESTS
TEST_F(LargeValues, TheLargestThereIs) {
  StartServer({"--memory=3GiB", "--max_value_size=1GiB", "--workers=1"});
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  PutAndGet(*client, size_t{1} << 30);
}
#endif

}  // namespace
}  // namespace verbena::testing
