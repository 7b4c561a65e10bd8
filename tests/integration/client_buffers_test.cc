// Values that land in memory of the caller's, and large values that are put from it.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tests/integration/fabric_under_test.h"
#include "tests/integration/patient_options.h"
#include "tests/integration/process.h"
#include "verbena/buffer.h"
#include "verbena/connection.h"

namespace verbena {
namespace {

using testing::PatientOptions;
using testing::ServerProcess;

std::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class ClientBuffersTest : public ::testing::Test {
 protected:
  static constexpr size_t kBytes = size_t{3} << 20;

  static void SetUpTestSuite() {
    auto server = ServerProcess::Start({"--memory=128MiB", "--max_value_size=2MiB"});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = server->release();
  }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }
  void SetUp() override {
    ASSERT_NE(server_, nullptr);
    client_ = Connect();
    ASSERT_NE(client_, nullptr);
    auto buffer = client_->RegisterBuffer(memory_);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    buffer_ = *std::move(buffer);
  }
  static std::unique_ptr<Connection> Connect(const Options& options = PatientOptions()) {
    return testing::MustConnect(server_->address(), options);
  }
  static bool Scatters() { return testing::DeviceCapabilities().read_scatter_elements() >= 2; }
  std::string RandomValue(size_t size) {
    std::string value(size, '\0');
    for (char& c : value) c = static_cast<char>(random_());
    return value;
  }

  static ServerProcess* server_;
  std::mt19937_64 random_{1};
  std::vector<std::byte> memory_ = std::vector<std::byte>(kBytes);
  std::unique_ptr<Connection> client_;
  Buffer buffer_;
};
ServerProcess* ClientBuffersTest::server_ = nullptr;

// Around the limits of a bucket's block, of the first READ, of size classes and of pieces.
TEST_F(ClientBuffersTest, ValuesOfAllSizes) {
  const std::vector<size_t> sizes = {
      0,    1,      7,       100,     4000,    4068,    131'032, 131'033,   4069,     4096,
      8192, 60'000, 262'144, 500'000, 524'288, 600'000, 786'432, 1'000'003, 2'000'000};
  const std::string key = "key-of-all-sizes";
  uint64_t gets = 0;
  for (const size_t size : sizes) {
    const std::string value = RandomValue(size);
    const auto put = client_->Put(key, value);
    ASSERT_TRUE(put.ok()) << put.status();
    // Anywhere in the buffer, twice: without and with the key's bucket in the cache.
    for (const size_t at : {size_t{0}, size_t{13}}) {
      std::memset(memory_.data(), 0x5a, memory_.size());
      size_t got = 0;
      uint64_t version = 0;
      const auto target = buffer_.bytes().subspan(at);
      const absl::Status status = client_->GetInto(key, target, &got, &version);
      ASSERT_TRUE(status.ok()) << size << ": " << status;
      EXPECT_EQ(got, size);
      EXPECT_EQ(version, put->version);
      EXPECT_TRUE(AsText(target.first(size)) == value) << size;
      EXPECT_EQ(memory_[at == 0 ? kBytes - 1 : at - 1], std::byte{0x5a});
      ++gets;
    }
    // Into exactly as much as it takes, and nothing behind.
    std::memset(memory_.data(), 0x5a, memory_.size());
    size_t got = 0;
    ASSERT_TRUE(client_->GetInto(key, buffer_.bytes().first(size), &got).ok()) << size;
    EXPECT_TRUE(AsText(buffer_.bytes().first(size)) == value) << size;
    EXPECT_EQ(memory_[size], std::byte{0x5a}) << size;
    ++gets;
  }
  const ConnectionStats& stats = client_->stats();
  EXPECT_EQ(stats.gets, gets);
  EXPECT_EQ(stats.gets_without_copy + stats.gets_copied, gets);
  EXPECT_EQ(stats.gets_without_copy, Scatters() ? gets : 0);
}

TEST_F(ClientBuffersTest, TooSmallATargetSaysWhatItTakes) {
  for (const size_t size : {size_t{10}, size_t{5000}, size_t{1'500'000}}) {
    const std::string value = RandomValue(size);
    ASSERT_TRUE(client_->Put("key", value).ok());
    for (const size_t room : {size_t{0}, size_t{1}, size - 1}) {
      size_t got = 0;
      const absl::Status status = client_->GetInto("key", buffer_.bytes().first(room), &got);
      EXPECT_TRUE(absl::IsOutOfRange(status)) << status;
      EXPECT_EQ(got, size);
      EXPECT_NE(status.message().find(std::to_string(size)), std::string::npos) << status;
    }
    size_t got = 0;
    ASSERT_TRUE(client_->GetInto("key", buffer_.bytes(), &got).ok());
    EXPECT_TRUE(AsText(buffer_.bytes().first(got)) == value);
  }
  size_t got = 1;
  EXPECT_TRUE(absl::IsNotFound(client_->GetInto("absent", buffer_.bytes(), &got)));
  EXPECT_EQ(got, 0u);
}

TEST_F(ClientBuffersTest, ManyAtOnce) {
  constexpr size_t kRoom = 8192;
  constexpr int kKeys = 40;
  std::vector<std::string> values;
  for (int i = 0; i < kKeys; ++i) {
    values.push_back(RandomValue(static_cast<size_t>(i) * 200));
    ASSERT_TRUE(client_->Put("many-" + std::to_string(i), values.back()).ok());
  }
  int done = 0;
  for (int i = 0; i < kKeys; ++i) {
    const auto target = buffer_.bytes().subspan(static_cast<size_t>(i) * kRoom, kRoom);
    const absl::Status status = client_->SubmitGetInto(
        "many-" + std::to_string(i), target,
        [&, i, target](const absl::Status& outcome, const GetResult& result) {
          ASSERT_TRUE(outcome.ok()) << outcome;
          EXPECT_EQ(result.value.data(), AsText(target).data());
          EXPECT_EQ(result.size, values[static_cast<size_t>(i)].size());
          EXPECT_TRUE(result.value == values[static_cast<size_t>(i)]) << i;
          ++done;
        });
    ASSERT_TRUE(status.ok()) << status;
    // Others beside them.
    if (i % 3 == 0) {
      ASSERT_TRUE(client_
                      ->SubmitGet("many-" + std::to_string(i),
                                  [&, i](const absl::Status& outcome, const GetResult& result) {
                                    EXPECT_TRUE(outcome.ok()) << outcome;
                                    EXPECT_TRUE(result.value == values[static_cast<size_t>(i)]);
                                  })
                      .ok());
    }
    if (i % 16 == 15) client_->Drain();
  }
  client_->Drain();
  EXPECT_EQ(done, kKeys);
}

// What is handed over is whole, although the key changes all the time, from one size to another.
TEST_F(ClientBuffersTest, WhileTheValueChanges) {
  const auto value_of = [](int i) {
    return std::string(static_cast<size_t>(i % 7) * 1500, static_cast<char>('a' + i % 26));
  };
  ASSERT_TRUE(client_->Put("changing", value_of(0)).ok());
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    auto other = Connect();
    for (int i = 0; !stop && other != nullptr; ++i) {
      if (!other->Put("changing", value_of(i)).ok()) break;
    }
  });
  for (int i = 0; i < testing::Scaled(2000, 20); ++i) {
    size_t size = 0;
    const absl::Status status = client_->GetInto("changing", buffer_.bytes(), &size);
    if (!status.ok()) ADD_FAILURE() << status;
    const std::string_view got = AsText(buffer_.bytes().first(size));
    EXPECT_EQ(size % 1500, 0u);
    EXPECT_EQ(got.find_first_not_of(got.empty() ? 'a' : got[0]), std::string_view::npos);
  }
  stop = true;
  writer.join();
}

TEST_F(ClientBuffersTest, LargeValuesArePutFromWhereTheyLie) {
  const std::string value = RandomValue(1'000'000);
  std::memcpy(memory_.data() + 100, value.data(), value.size());
  const std::string_view registered = AsText(buffer_.bytes().subspan(100, value.size()));
  ASSERT_TRUE(client_->Put("large", registered).ok());
  EXPECT_EQ(client_->stats().puts_without_copy, 1u);
  std::string got;
  ASSERT_TRUE(client_->Get("large", &got).ok());
  EXPECT_TRUE(got == value);
  // Not from elsewhere, nor a small one.
  ASSERT_TRUE(client_->Put("large", value).ok());
  ASSERT_TRUE(client_->Put("small", registered.substr(0, 100)).ok());
  EXPECT_EQ(client_->stats().puts_without_copy, 1u);
  int done = 0;
  ASSERT_TRUE(client_
                  ->SubmitPut("large", registered,
                              [&](const absl::Status& status, const ChangeResult&) {
                                EXPECT_TRUE(status.ok()) << status;
                                ++done;
                              })
                  .ok());
  // The operation keeps the registration, although its owner is gone.
  buffer_.Reset();
  client_->Drain();
  EXPECT_EQ(done, 1);
  EXPECT_EQ(client_->stats().puts_without_copy, 2u);
}

TEST_F(ClientBuffersTest, MemoryThatIsNotRegistered) {
  ASSERT_TRUE(client_->Put("key", "value").ok());
  std::vector<std::byte> other(100);
  size_t size = 0;
  EXPECT_TRUE(absl::IsInvalidArgument(client_->GetInto("key", other, &size)));
  EXPECT_TRUE(absl::IsInvalidArgument(client_->GetInto("key", {}, &size)));
  EXPECT_TRUE(absl::IsInvalidArgument(client_->SubmitGetInto("key", other, {})));
  // Nor beyond its end, nor with another connection, nor once it is not registered any more.
  const std::span<std::byte> beyond(memory_.data() + kBytes - 10, 11);
  EXPECT_TRUE(absl::IsInvalidArgument(client_->GetInto("key", beyond, &size)));
  auto second = Connect();
  ASSERT_NE(second, nullptr);
  EXPECT_TRUE(absl::IsInvalidArgument(second->GetInto("key", buffer_.bytes(), &size)));
  buffer_.Reset();
  EXPECT_TRUE(buffer_.bytes().empty());
  EXPECT_TRUE(absl::IsInvalidArgument(client_->GetInto("key", memory_, &size)));
}

TEST_F(ClientBuffersTest, WhatCannotBeRegistered) {
  EXPECT_TRUE(absl::IsInvalidArgument(client_->RegisterBuffer({}).status()));
  const auto overlapping = client_->RegisterBuffer(std::span(memory_).subspan(kBytes - 1));
  EXPECT_TRUE(absl::IsInvalidArgument(overlapping.status())) << overlapping.status();
  // With two connections it may be.
  auto second = Connect();
  ASSERT_NE(second, nullptr);
  EXPECT_TRUE(second->RegisterBuffer(memory_).ok());
  client_->Close();
  EXPECT_TRUE(absl::IsFailedPrecondition(client_->RegisterBuffer(memory_).status()));
}

// In any order with its connection.
TEST_F(ClientBuffersTest, ABufferMayOutliveItsConnection) {
  Buffer moved = std::move(buffer_);
  EXPECT_EQ(moved.bytes().size(), kBytes);
  client_.reset();
  EXPECT_EQ(moved.bytes().size(), kBytes);
  moved = Buffer();
  EXPECT_TRUE(moved.bytes().empty());
}

// Memory that is taken away while it is registered: the operation on it fails once and says so, and
// the connection goes on. (An adapter has pinned the pages, and puts what is in them.)
TEST_F(ClientBuffersTest, MemoryThatIsTakenAway) {
  ASSERT_TRUE(client_->Put("key", "value").ok());
  void* const at =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  const std::span<std::byte> memory(static_cast<std::byte*>(at), kBytes);
  auto buffer = client_->RegisterBuffer(memory);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  const std::string_view value = AsText(memory.first(1'000'000));
  ASSERT_TRUE(client_->Put("large", value).ok());
  ASSERT_EQ(mprotect(at, kBytes, PROT_NONE), 0);
  std::vector<absl::Status> ended;
  ASSERT_TRUE(client_
                  ->SubmitPut("large", value,
                              [&](const absl::Status& status, const ChangeResult&) {
                                ended.push_back(status);
                              })
                  .ok());
  const auto start = std::chrono::steady_clock::now();
  client_->Drain();
  const auto taken = std::chrono::steady_clock::now() - start;
  ASSERT_EQ(ended.size(), 1u);
  if (testing::FabricName() == "soft") {
    EXPECT_TRUE(absl::IsFailedPrecondition(ended[0])) << ended[0];
    EXPECT_NE(ended[0].message().find("not mapped"), std::string::npos) << ended[0];
    EXPECT_LT(taken, testing::Soon());
    EXPECT_GE(client_->stats().reconnects, 1u);
    // Those that begin now fail at once.
    EXPECT_TRUE(absl::IsFailedPrecondition(client_->Put("large", value).status()));
    size_t size = 7;
    EXPECT_TRUE(absl::IsFailedPrecondition(client_->GetInto("key", memory, &size)));
  }
  std::string got;
  EXPECT_TRUE(client_->Get("key", &got).ok());
  EXPECT_EQ(got, "value");
  EXPECT_TRUE(client_->Put("key", AsText(buffer_.bytes().first(1'000'000))).ok());
  buffer->Reset();
  munmap(at, kBytes);
}

// Memory that is mapped, but that the server is refused to READ: its change ends by itself, long
// before its time is over, and says why. (An adapter has pinned the pages, and puts what was there,
// unless it has to register them anew.)
TEST_F(ClientBuffersTest, MemoryThatTheServerMayNotRead) {
  const int file = memfd_create("cut short", MFD_CLOEXEC);
  ASSERT_GE(file, 0);
  ASSERT_EQ(ftruncate(file, kBytes), 0);
  void* const at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ASSERT_NE(at, MAP_FAILED);
  const std::span<std::byte> memory(static_cast<std::byte*>(at), kBytes);
  auto buffer = client_->RegisterBuffer(memory);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  const std::string_view value = AsText(memory.first(1'000'000));
  ASSERT_TRUE(client_->Put("large", value).ok());
  ASSERT_EQ(ftruncate(file, 0), 0);
  std::vector<absl::Status> ended(4);
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 0; i < ended.size(); ++i) {
    // The others, which were lost with its connections, are made.
    ASSERT_TRUE(
        client_
            ->SubmitPut(
                i == 1 ? "large" : "key" + std::to_string(i), i == 1 ? value : "value",
                [&, i](const absl::Status& status, const ChangeResult&) { ended[i] = status; })
            .ok());
  }
  client_->Drain();
  const auto taken = std::chrono::steady_clock::now() - start;
  if (testing::FabricName() == "soft") {
    EXPECT_TRUE(absl::IsInvalidArgument(ended[1])) << ended[1];
    EXPECT_NE(ended[1].message().find("refused its READs"), std::string::npos) << ended[1];
    EXPECT_FALSE(OutcomeUnknown(ended[1]));
    EXPECT_LT(taken, testing::Soon());
    EXPECT_GE(client_->stats().reconnects, 3u);
  }
  for (const size_t i : {size_t{0}, size_t{2}, size_t{3}}) {
    EXPECT_TRUE(ended[i].ok()) << ended[i];
    EXPECT_TRUE(client_->Get("key" + std::to_string(i), nullptr).ok());
  }
  // From other memory it can be put.
  EXPECT_TRUE(client_->Put("large", AsText(buffer_.bytes().first(1'000'000))).ok());
  EXPECT_TRUE(client_->Put("large", std::string(1'000'000, 'v')).ok());
  buffer->Reset();
  munmap(at, kBytes);
  close(file);
}

TEST_F(ClientBuffersTest, AnsweredByTheServer) {
  Options options = PatientOptions();
  options.one_sided_reads = false;
  client_ = Connect(options);
  ASSERT_NE(client_, nullptr);
  auto buffer = client_->RegisterBuffer(memory_);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  for (const size_t size : {size_t{10}, size_t{1'000'000}}) {
    const std::string value = RandomValue(size);
    ASSERT_TRUE(client_->Put("key", value).ok());
    size_t got = 0;
    ASSERT_TRUE(client_->GetInto("key", buffer->bytes(), &got).ok());
    EXPECT_TRUE(AsText(buffer->bytes().first(got)) == value);
  }
  EXPECT_EQ(client_->stats().gets_copied, 2u);
}

}  // namespace
}  // namespace verbena
