// The server's sessions: changes that are repeated on another connection, and what becomes of the
// connection before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/integration/eventually.h"
#include "tests/integration/fabric_under_test.h"
#include "tests/integration/process.h"
#include "tests/integration/raw_client.h"

namespace verbena::testing {
namespace {

using wire::OpCode;
using wire::ResultCode;

constexpr uint32_t kOperations = wire::kMinSessionOperations;

class Sessions : public ::testing::Test {
 protected:
  void StartServer(std::vector<std::string> flags = {}) {
    flags.push_back("--workers=2");
    auto server = ServerProcess::Start(std::move(flags));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  // A connection of a session that goes on behind sequence number `used`.
  std::unique_ptr<RawClient> Connect(uint64_t session, uint64_t used = 0,
                                     wire::Welcome* welcome = nullptr) {
    RawClientOptions options;
    options.session = session;
    options.operations = kOperations;
    options.value_memory = 1 << 20;
    auto client = RawClient::Connect(Fabric(), server_->address(), options);
    EXPECT_TRUE(client.ok()) << client.status();
    if (!client.ok()) return nullptr;
    const auto welcomed = (*client)->Hello();
    EXPECT_TRUE(welcomed.ok()) << welcomed.status();
    if (!welcomed.ok()) return nullptr;
    if (welcome != nullptr) *welcome = *welcomed;
    (*client)->set_next_sequence(used + 1);
    return *std::move(client);
  }

  static RawResult Call(RawClient& client, OpCode code, std::string_view key,
                        std::string_view value = {}, wire::OperationHeader header = {}) {
    auto result = client.CallWith(header, code, key, value);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : RawResult{};
  }
  static RawResult Add(RawClient& client, std::string_view key) {
    wire::OperationHeader header{};
    header.argument = 1;
    return Call(client, OpCode::kAdd, key, {}, header);
  }
  static RawResult Take(RawClient& client, std::string_view key) {
    wire::OperationHeader header{};
    header.flags = wire::kOpReturnValue;
    return Call(client, OpCode::kDelete, key, {}, header);
  }
  // What the server has logged reaches this process some time later.
  bool LogSays(const std::vector<std::string>& texts) {
    return Eventually([&] {
      const std::string log = server_->process().err();
      return std::all_of(texts.begin(), texts.end(), [&](const std::string& text) {
        return log.find(text) != std::string::npos;
      });
    });
  }
  nlohmann::json Info() {
    if (witness_ == nullptr) {
      auto witness = RawClient::ConnectAndGreet(Fabric(), server_->address());
      EXPECT_TRUE(witness.ok()) << witness.status();
      if (!witness.ok()) return {};
      witness_ = *std::move(witness);
    }
    return nlohmann::json::parse(Call(*witness_, OpCode::kInfo, {}).value, nullptr, false);
  }

  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<RawClient> witness_;
};

void ExpectSame(const RawResult& first, const RawResult& again) {
  EXPECT_EQ(again.header.sequence, first.header.sequence);
  EXPECT_EQ(again.code(), first.code());
  EXPECT_EQ(again.header.version, first.header.version);
  EXPECT_EQ(again.header.argument, first.header.argument);
  EXPECT_EQ(again.value, first.value);
}

// Each kind of change, repeated on another connection, has the same answer and no further effect.
TEST_F(Sessions, RepeatedChangesAreAnsweredAndNotMade) {
  ASSERT_NO_FATAL_FAILURE(StartServer());
  wire::Welcome welcome{};
  auto client = Connect(1, 0, &welcome);
  ASSERT_NE(client, nullptr);
  EXPECT_EQ(welcome.operations, kOperations);
  const uint32_t incarnation = welcome.incarnation;
  const std::string large(100'000, 'l');
  const auto run = [&](RawClient& on) {
    std::vector<RawResult> results;
    results.push_back(Call(on, OpCode::kPut, "key", "value"));
    results.push_back(Add(on, "count"));
    results.push_back(Add(on, "count"));
    results.push_back(Call(on, OpCode::kAppend, "list", "x"));
    results.push_back(Call(on, OpCode::kAppend, "list", "y"));
    results.push_back(Call(on, OpCode::kDelete, "key"));
    results.push_back(Call(on, OpCode::kPut, "taken", "what was taken"));
    results.push_back(Take(on, "taken"));
    wire::OperationHeader minute{};
    minute.argument = 60'000;
    results.push_back(Call(on, OpCode::kExpire, "list", {}, minute));
    results.push_back(Call(on, OpCode::kPersist, "list"));
    auto put = on.PutByReference("large", large);
    EXPECT_TRUE(put.ok()) << put.status();
    if (put.ok()) results.push_back(*std::move(put));
    return results;
  };
  const std::vector<RawResult> first = run(*client);
  for (const RawResult& result : first) EXPECT_EQ(result.code(), ResultCode::kOk);
  EXPECT_EQ(first[2].value, "2");
  EXPECT_EQ(first[7].value, "what was taken");

  auto next = Connect(1, 0, &welcome);
  ASSERT_NE(next, nullptr);
  EXPECT_EQ(welcome.incarnation, incarnation);
  EXPECT_TRUE(client->WaitClosed().ok());
  const std::vector<RawResult> again = run(*next);
  ASSERT_EQ(again.size(), first.size());
  for (size_t i = 0; i < first.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectSame(first[i], again[i]);
  }
  EXPECT_EQ(Call(*next, OpCode::kGet, "count").value, "2");
  EXPECT_EQ(Call(*next, OpCode::kGet, "list").value, "xy");
  EXPECT_EQ(Add(*next, "count").value, "3");
  const auto info = Info();
  EXPECT_EQ(info["counters"]["repeated"], first.size());
  EXPECT_EQ(info["operations"]["add"]["ok"], 3);
  EXPECT_EQ(info["operations"]["append"]["ok"], 2);
  EXPECT_EQ(info["sessions"]["resumed"], 1);
  EXPECT_EQ(info["sessions"]["superseded"], 1);
  EXPECT_EQ(info["counters"]["connections_closed"]["superseded"], 1);
}

// What failed is done again, and may succeed then.
TEST_F(Sessions, WhatHadNoEffectIsDoneAgain) {
  ASSERT_NO_FATAL_FAILURE(StartServer());
  auto client = Connect(2);
  ASSERT_NE(client, nullptr);
  EXPECT_EQ(Call(*client, OpCode::kDelete, "key").code(), ResultCode::kNotFound);
  auto other = Connect(3);
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(Call(*other, OpCode::kPut, "key", "value").code(), ResultCode::kOk);
  auto next = Connect(2);
  ASSERT_NE(next, nullptr);
  EXPECT_EQ(Call(*next, OpCode::kDelete, "key").code(), ResultCode::kOk);
}

// A put whose READ the client's device refuses would end each connection on which it is repeated.
// In between another one is refused as well, and does not count.
TEST_F(Sessions, AValueThatCannotBeReadIsRefusedInTheEnd) {
  if (!DeviceCapabilities().refused_reads_have_a_status()) return;  // then the server cannot tell
  ASSERT_NO_FATAL_FAILURE(StartServer());
  const auto put_with_wrong_key = [](RawClient& on) {
    return on.Send(on.ReferenceRequest("key", 1 << 20, 0, /*rkey_change=*/0x100));
  };
  for (const uint64_t used : std::array<uint64_t, 5>{0, 1, 0, 0, 0}) {
    auto client = Connect(7, used);
    ASSERT_NE(client, nullptr);
    ASSERT_TRUE(put_with_wrong_key(*client).ok());
    EXPECT_TRUE(client->WaitClosed().ok());
  }
  auto client = Connect(7);
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(put_with_wrong_key(*client).ok());
  const auto response = client->Receive();
  ASSERT_TRUE(response.ok()) << response.status();
  ASSERT_EQ(response->results.size(), 1u);
  EXPECT_EQ(response->results[0].code(), ResultCode::kInvalid);
  EXPECT_THAT(response->results[0].value, ::testing::HasSubstr("refused its READs"));
  // The connection goes on, and so does the session: the next number is another operation.
  EXPECT_EQ(Add(*client, "count").value, "1");
  const auto info = Info();
  EXPECT_EQ(info["counters"]["connections_closed"]["read_failed"], 5);
  EXPECT_EQ(info["items"], 1);
}

// Two sessions with the same sequence numbers have nothing to do with each other, and a client
// without a session has nothing kept.
TEST_F(Sessions, SessionsAreApart) {
  ASSERT_NO_FATAL_FAILURE(StartServer());
  auto first = Connect(4);
  auto second = Connect(5);
  ASSERT_TRUE(first != nullptr && second != nullptr);
  EXPECT_EQ(Add(*first, "count").value, "1");
  EXPECT_EQ(Add(*second, "count").value, "2");
  for (int i = 0; i < 2; ++i) {
    auto plain = RawClient::ConnectAndGreet(Fabric(), server_->address());
    ASSERT_TRUE(plain.ok()) << plain.status();
    EXPECT_EQ(Add(**plain, "count").value, absl::StrCat(3 + i));
  }
  EXPECT_EQ(Info()["sessions"]["open"], 2);
}

// A number that is acknowledged, or too far ahead, ends the connection, not the session.
TEST_F(Sessions, WrongSequenceNumbersEndTheConnection) {
  ASSERT_NO_FATAL_FAILURE(StartServer());
  const auto closed = [&](uint64_t acked, uint64_t sequence) {
    auto client = Connect(6);
    if (client == nullptr) return false;
    client->set_acked(acked);
    client->set_next_sequence(sequence);
    EXPECT_TRUE(client->Send(client->Request(OpCode::kPing, {}, "x")).ok());
    return client->Receive().ok() ? false : client->WaitClosed().ok();
  };
  EXPECT_FALSE(closed(0, 1));
  EXPECT_FALSE(closed(0, kOperations));
  EXPECT_TRUE(closed(0, kOperations + 1));
  EXPECT_FALSE(closed(10, 11));
  EXPECT_TRUE(closed(10, 10));
  EXPECT_TRUE(closed(0, 10)) << "acknowledged before";
  EXPECT_FALSE(closed(0, 11));
  EXPECT_FALSE(closed(wire::kLastSequence - 1, wire::kLastSequence));
  EXPECT_EQ(Info()["counters"]["malformed"], 3);
  EXPECT_TRUE(LogSays({"sequence number 257 is not one"})) << server_->process().err();
}

// The answer of one that was made long ago is replaced only when it has been acknowledged.
TEST_F(Sessions, AnswersStayUntilAcknowledged) {
  ASSERT_NO_FATAL_FAILURE(StartServer());
  auto client = Connect(7);
  ASSERT_NE(client, nullptr);
  for (uint32_t i = 1; i <= kOperations; ++i) {
    ASSERT_EQ(Add(*client, "count").value, absl::StrCat(i));
  }
  client = Connect(7);
  ASSERT_NE(client, nullptr);
  for (uint32_t i = 1; i <= kOperations; ++i) {
    ASSERT_EQ(Add(*client, "count").value, absl::StrCat(i));
  }
  client->set_acked(kOperations);
  EXPECT_EQ(Add(*client, "count").value, absl::StrCat(kOperations + 1));
}

// Requests that had arrived on the connection before are dropped or done, never both on the new one
// and behind it: whatever the first connection was about to do, the sum is that of the numbers.
TEST_F(Sessions, TheConnectionBeforeIsFenced) {
  ASSERT_NO_FATAL_FAILURE(StartServer());
  const int rounds = Scaled(300, 20);
  constexpr uint64_t kRequests = 8;
  uint64_t used = 0;
  auto client = Connect(8);
  ASSERT_NE(client, nullptr);
  for (int round = 0; round < rounds; ++round) {
    wire::OperationHeader add{};
    add.argument = 1;
    ASSERT_TRUE(client->Send(client->Request(OpCode::kAdd, "count", {}, 0, add)).ok());
    auto next = Connect(8, used);
    ASSERT_NE(next, nullptr);
    next->set_acked(used);
    for (uint64_t i = 1; i <= kRequests; ++i) {
      ASSERT_EQ(Add(*next, "count").value, absl::StrCat(used + i));
    }
    used += kRequests;
    client = std::move(next);
    client->set_acked(used);
  }
  EXPECT_EQ(Call(*client, OpCode::kGet, "count").value, absl::StrCat(used));
  EXPECT_EQ(Info()["operations"]["add"]["ok"], used);
}

// A get-and-delete whose value cannot be kept is not made: the client is told that it is too large,
// as of one that does not fit the answer, and goes about it otherwise.
TEST_F(Sessions, NoMoreValuesAreTakenThanCanBeKept) {
  ASSERT_NO_FATAL_FAILURE(StartServer());
  auto client = Connect(9);
  ASSERT_NE(client, nullptr);
  const std::string value(10'000, 'v');
  const auto put = [&] {
    const auto result = client->PutByReference("key", value);
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_EQ(result->code(), ResultCode::kOk);
  };
  uint64_t taken = 0;
  RawResult last;
  for (uint32_t i = 0; i < kOperations / 2 && last.code() == ResultCode::kOk; ++i) {
    ASSERT_NO_FATAL_FAILURE(put());
    last = Take(*client, "key");
    if (last.code() == ResultCode::kOk) ++taken;
  }
  EXPECT_EQ(last.code(), ResultCode::kTooLarge);
  EXPECT_EQ(taken, 256 * 1024 / value.size());
  EXPECT_EQ(Call(*client, OpCode::kDelete, "key").code(), ResultCode::kOk) << "still there";
  // All that were taken can be had again.
  client = Connect(9);
  ASSERT_NE(client, nullptr);
  for (uint64_t i = 0; i < taken; ++i) {
    ASSERT_NO_FATAL_FAILURE(put());
    ASSERT_TRUE(Take(*client, "key").value == value);
  }
  // Acknowledged, they make room. (Two more operations came behind those that were repeated, and
  // the first put of the round that failed.)
  client->set_acked(2 * taken + 3);
  client->set_next_sequence(2 * taken + 4);
  ASSERT_NO_FATAL_FAILURE(put());
  EXPECT_TRUE(Take(*client, "key").value == value);
}

// A request with the numbers from `first` on: gets "got", then gets and deletes "taken".
std::vector<uint8_t> GetThenTake(uint64_t first) {
  alignas(8) std::array<uint8_t, 512> buffer;
  wire::RequestWriter writer(buffer);
  wire::OperationHeader header{};
  header.sequence = first;
  header.code = static_cast<uint8_t>(OpCode::kGet);
  EXPECT_TRUE(writer.Add(header, "got", {}));
  header.sequence = first + 1;
  header.code = static_cast<uint8_t>(OpCode::kDelete);
  header.flags = wire::kOpReturnValue;
  EXPECT_TRUE(writer.Add(header, "taken", {}));
  writer.Finish(0, 0);
  return {buffer.data(), buffer.data() + writer.size()};
}

// In one request with a value that has been taken before, a GET leaves that value its room in the
// answer, although the value got has grown meanwhile.
TEST_F(Sessions, WhatIsAheadLeavesRoomForWhatWasTaken) {
  ASSERT_NO_FATAL_FAILURE(StartServer());
  auto client = Connect(13);
  ASSERT_NE(client, nullptr);
  const std::string taken(8'000, 't');
  const std::string grown(8'000, 'g');
  ASSERT_TRUE(client->PutByReference("taken", taken).ok());                        // 1
  ASSERT_EQ(Call(*client, OpCode::kPut, "got", "small").code(), ResultCode::kOk);  // 2
  const std::vector<uint8_t> request = GetThenTake(3);
  const auto ask = [&](RawClient& on) {
    EXPECT_TRUE(on.Send(request).ok());
    auto response = on.Receive();
    EXPECT_TRUE(response.ok() && response->results.size() == 2) << response.status();
    return response.ok() ? *std::move(response) : RawResponse{{}, std::vector<RawResult>(2)};
  };
  RawResponse response = ask(*client);
  EXPECT_EQ(response.results[0].value, "small");
  EXPECT_EQ(response.results[1].value, taken);
  auto other = Connect(14);
  ASSERT_NE(other, nullptr);
  ASSERT_TRUE(other->PutByReference("got", grown).ok());
  client = Connect(13);
  ASSERT_NE(client, nullptr);
  response = ask(*client);
  EXPECT_EQ(response.results[0].code(), ResultCode::kLocated);
  EXPECT_EQ(response.results[1].value, taken);
}

// A value that is taken leaves a GET ahead of it, which found nothing, the room for a location:
// when both are repeated there may be something.
TEST_F(Sessions, WhatIsTakenLeavesRoomForWhatIsAhead) {
  ASSERT_NO_FATAL_FAILURE(StartServer());
  wire::Welcome welcome{};
  auto other = Connect(1000, 0, &welcome);
  ASSERT_NE(other, nullptr);
  const std::string large(20'000, 'g');
  const size_t most = std::min(RawClientOptions().receive_size, welcome.max_message);
  int fitted = 0;
  int refused = 0;
  for (size_t less = 32; less <= 256; less += 8) {
    SCOPED_TRACE(less);
    const std::string taken(most - less, 't');
    Call(*other, OpCode::kDelete, "got");
    ASSERT_TRUE(other->PutByReference("taken", taken).ok());
    const uint64_t session = 2000 + less;
    auto client = Connect(session);
    ASSERT_NE(client, nullptr);
    const std::vector<uint8_t> request = GetThenTake(1);
    ASSERT_TRUE(client->Send(request).ok());
    auto response = client->Receive();
    ASSERT_TRUE(response.ok() && response->results.size() == 2) << response.status();
    EXPECT_EQ(response->results[0].code(), ResultCode::kNotFound);
    if (response->results[1].code() == ResultCode::kTooLarge) {
      ++refused;
      continue;
    }
    ASSERT_EQ(response->results[1].code(), ResultCode::kOk);
    ++fitted;
    ASSERT_TRUE(other->PutByReference("got", large).ok());
    client = Connect(session);
    ASSERT_NE(client, nullptr);
    ASSERT_TRUE(client->Send(request).ok());
    response = client->Receive();
    ASSERT_TRUE(response.ok() && response->results.size() == 2) << response.status();
    EXPECT_EQ(response->results[0].code(), ResultCode::kLocated);
    EXPECT_EQ(response->results[1].value, taken);
  }
  EXPECT_GT(fitted, 0);
  EXPECT_GT(refused, 0);
}

// Requests that would have the server count room that it has not reserved end the connection.
TEST_F(Sessions, NumbersAscendAndHelloIsAlone) {
  ASSERT_NO_FATAL_FAILURE(StartServer());
  const auto send = [&](RawClient& on, bool hello_first, uint64_t first, uint64_t second) {
    alignas(8) std::array<uint8_t, 512> buffer;
    wire::RequestWriter writer(buffer);
    wire::OperationHeader header{};
    if (hello_first) {
      wire::Hello hello{};
      hello.receive_size = 4096;
      hello.receive_count = 4;
      hello.operations = kOperations;
      header.code = static_cast<uint8_t>(OpCode::kHello);
      EXPECT_TRUE(writer.Add(header, {}, wire::AsValue(hello)));
    }
    for (const uint64_t sequence : {first, second}) {
      header.sequence = sequence;
      header.code = static_cast<uint8_t>(OpCode::kDelete);
      header.flags = wire::kOpReturnValue;
      EXPECT_TRUE(writer.Add(header, "key", {}));
    }
    writer.Finish(0, 0);
    EXPECT_TRUE(on.Send({buffer.data(), writer.size()}).ok());
    return on.Receive().ok();
  };
  for (const uint64_t second : {uint64_t{4}, uint64_t{5}, uint64_t{6}}) {
    auto client = Connect(20 + second);
    ASSERT_NE(client, nullptr);
    EXPECT_EQ(Call(*client, OpCode::kPut, "key", "a value").code(), ResultCode::kOk);
    EXPECT_EQ(send(*client, /*hello_first=*/false, 5, second), second == 6) << second;
  }
  RawClientOptions options;
  options.session = 25;  // in which operation 5 has been made
  auto client = RawClient::Connect(Fabric(), server_->address(), options);
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_FALSE(send(**client, /*hello_first=*/true, 5, 6));
  EXPECT_EQ(Info()["counters"]["malformed"], 3);
  EXPECT_TRUE(LogSays({"sequence number 5 comes behind 5", "hello is not alone"}))
      << server_->process().err();
}

// A client that comes back with smaller buffers than its answers need has its connection ended, and
// the answers stay.
TEST_F(Sessions, AnAnswerWithoutRoomStaysKept) {
  ASSERT_NO_FATAL_FAILURE(StartServer());
  const std::string value(2'000, 'v');
  auto client = Connect(15);
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(client->PutByReference("key", value).ok());
  ASSERT_EQ(Take(*client, "key").value, value);
  RawClientOptions options;
  options.session = 15;
  options.operations = kOperations;
  options.receive_size = 512;
  auto small = RawClient::ConnectAndGreet(Fabric(), server_->address(), options);
  ASSERT_TRUE(small.ok()) << small.status();
  wire::OperationHeader header{};
  header.flags = wire::kOpReturnValue;
  (*small)->set_next_sequence(2);
  EXPECT_FALSE((*small)->CallWith(header, OpCode::kDelete, "key").ok());
  client = Connect(15, 1);
  ASSERT_NE(client, nullptr);
  EXPECT_EQ(Take(*client, "key").value, value);
  EXPECT_TRUE(LogSays({"operation 2, which is repeated, has no room"})) << server_->process().err();
}

TEST_F(Sessions, StayForTheirTime) {
  ASSERT_NO_FATAL_FAILURE(StartServer({"--session_linger=0s"}));
  wire::Welcome welcome{};
  ASSERT_NE(Connect(10, 0, &welcome), nullptr);
  ASSERT_TRUE(Eventually([&] { return Info()["sessions"]["dropped"] == 1; }));
  EXPECT_EQ(Info()["sessions"]["open"], 0);
  EXPECT_EQ(Info()["sessions"]["bytes"], 0);
  const uint32_t first = welcome.incarnation;
  const auto unseen = Connect(10, 0, &welcome);
  ASSERT_NE(unseen, nullptr);
  const uint32_t second = welcome.incarnation;
  EXPECT_NE(second, first);
  // Had the client not seen that welcome, the next one would tell it as well.
  ASSERT_NE(Connect(10, 0, &welcome), nullptr);
  EXPECT_EQ(welcome.incarnation, second);
}

// A client that comes back to a full server, of whose connections one is its own, gets in.
TEST_F(Sessions, OfAFullServer) {
  ASSERT_NO_FATAL_FAILURE(StartServer({"--max_connections=2"}));
  Info();  // takes the other one
  const auto start = std::chrono::steady_clock::now();
  auto client = Connect(11);
  ASSERT_NE(client, nullptr);
  EXPECT_EQ(Add(*client, "count").value, "1");
  RawClientOptions options;
  options.session = 12;
  EXPECT_FALSE(RawClient::Connect(Fabric(), server_->address(), options).ok());
  options.session = 11;
  options.operations = kOperations;
  // At first it may be a late attempt of those that made the connection, which stays.
  EXPECT_FALSE(RawClient::Connect(Fabric(), server_->address(), options).ok());
  const bool alive = client->CallWith({}, OpCode::kGet, "count").ok();
  if (std::chrono::steady_clock::now() - start < std::chrono::seconds(3)) {
    EXPECT_TRUE(alive);
  }
  std::unique_ptr<RawClient> next;
  ASSERT_TRUE(Eventually([&] {
    auto attempt = RawClient::ConnectAndGreet(Fabric(), server_->address(), options);
    if (attempt.ok()) next = *std::move(attempt);
    return next != nullptr;
  }));
  next->set_next_sequence(1);
  EXPECT_EQ(Add(*next, "count").value, "1") << "repeated";
  EXPECT_TRUE(client->WaitClosed().ok());
}

}  // namespace
}  // namespace verbena::testing
