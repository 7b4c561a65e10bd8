// What a server does with clients that do what they should not, or die.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/integration/eventually.h"
#include "tests/integration/fabric_under_test.h"
#include "tests/integration/process.h"
#include "tests/integration/raw_client.h"

namespace verbena::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using wire::OpCode;
using wire::RejectReason;
using wire::ResultCode;
using Clock = std::chrono::steady_clock;

std::vector<uint8_t> ProperData(uint16_t protocol = wire::kProtocolVersion,
                                std::string_view tenant = "default") {
  wire::ConnectData data;
  data.protocol = protocol;
  data.layout = 1;
  data.tenant = wire::TenantId(tenant);
  data.session = 7;
  const auto bytes = wire::Encode(data);
  return {bytes.begin(), bytes.end()};
}

class Misuse : public ::testing::Test {
 protected:
  void StartServer(std::vector<std::string> flags = {}) {
    auto started = ServerProcess::Start(std::move(flags));
    ASSERT_TRUE(started.ok()) << started.status().ToString();
    server_ = *std::move(started);
  }
  std::unique_ptr<RawClient> Client(const RawClientOptions& options = {}) {
    auto client = RawClient::ConnectAndGreet(Fabric(), server_->address(), options);
    EXPECT_TRUE(client.ok()) << client.status().ToString();
    return client.ok() ? *std::move(client) : nullptr;
  }
  // Connects with the given private data; what the server refused it with.
  std::optional<wire::RejectData> Refused(const std::vector<uint8_t>& data) {
    std::optional<wire::RejectData> reject;
    RawClientOptions options;
    options.private_data = data;
    const auto client = RawClient::Connect(Fabric(), server_->address(), options, &reject);
    EXPECT_FALSE(client.ok());
    return reject;
  }
  nlohmann::json Info(RawClient& client) {
    const auto answer = client.Call(OpCode::kInfo);
    EXPECT_TRUE(answer.ok()) << answer.status().ToString();
    return answer.ok() ? nlohmann::json::parse(answer->value) : nlohmann::json();
  }
  // A key that is there; its version.
  static uint64_t PutOld(RawClient& client) {
    const auto put = client.Call(OpCode::kPut, "key", kOldValue);
    EXPECT_TRUE(put.ok() && put->code() == ResultCode::kOk);
    return put.ok() ? put->header.version : 0;
  }
  static void ExpectOld(RawClient& client, uint64_t version) {
    const auto got = client.Call(OpCode::kGet, "key");
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->code(), ResultCode::kOk);
    EXPECT_EQ(got->value, kOldValue);
    EXPECT_EQ(got->header.version, version);
  }
  // How long until the server has only `count` connections.
  std::chrono::nanoseconds TimeUntilConnections(RawClient& witness, int count) {
    const auto start = Clock::now();
    while (Info(witness)["connections"] != count) {
      if (Clock::now() - start > kPatience) break;
      std::this_thread::yield();
    }
    return Clock::now() - start;
  }

  static constexpr std::string_view kOldValue = "the old value";

  std::unique_ptr<ServerProcess> server_;
};

TEST_F(Misuse, OtherProtocolVersion) {
  StartServer();
  const auto reject = Refused(ProperData(wire::kProtocolVersion + 1));
  ASSERT_TRUE(reject.has_value());
  EXPECT_EQ(reject->reason, RejectReason::kOtherProtocol);
  EXPECT_EQ(reject->protocol, wire::kProtocolVersion);
  EXPECT_THAT(reject->text, AllOf(HasSubstr(absl::StrCat("version ", wire::kProtocolVersion)),
                                  HasSubstr(absl::StrCat("version ", wire::kProtocolVersion + 1))));
  EXPECT_NE(Client(), nullptr);
}

TEST_F(Misuse, GarbageInPrivateData) {
  StartServer();
  for (const std::vector<uint8_t>& data :
       {std::vector<uint8_t>{1}, std::vector<uint8_t>(56, 0xff), std::vector<uint8_t>(20, 0)}) {
    const auto reject = Refused(data);
    ASSERT_TRUE(reject.has_value());
    EXPECT_EQ(reject->reason, RejectReason::kMalformed);
    EXPECT_THAT(reject->text, HasSubstr("not a Verbena client"));
  }
  EXPECT_NE(Client(), nullptr);
}

TEST_F(Misuse, UnknownTenant) {
  StartServer();
  const auto reject = Refused(ProperData(wire::kProtocolVersion, "somebody"));
  ASSERT_TRUE(reject.has_value());
  EXPECT_EQ(reject->reason, RejectReason::kUnknownTenant);
}

TEST_F(Misuse, OneConnectionTooMany) {
  StartServer({"--max_connections=2"});
  auto first = Client();
  auto second = Client();
  const auto reject = Refused(ProperData());
  ASSERT_TRUE(reject.has_value());
  EXPECT_EQ(reject->reason, RejectReason::kConnectionLimit);
  EXPECT_THAT(reject->text, AllOf(HasSubstr("2 connections"), HasSubstr("--max_connections")));
  // A place that is given back can be taken again.
  second.reset();
  EXPECT_LT(TimeUntilConnections(*first, 1), Soon());
  EXPECT_NE(Client(), nullptr);
}

wire::OperationHeader With(uint8_t flags, uint64_t expected = 0, int64_t argument = 0) {
  wire::OperationHeader header{};
  header.flags = flags;
  header.expected = expected;
  header.argument = static_cast<uint64_t>(argument);
  return header;
}

TEST_F(Misuse, GarbageInMessagesEndsOnlyThatConnection) {
  StartServer();
  auto witness = Client();
  auto probe = Client();
  const std::vector<uint8_t> good = probe->Request(OpCode::kPut, "some key", "some value");
  std::vector<std::vector<uint8_t>> bad;
  for (size_t size = 1; size < good.size(); size += 7) {
    bad.emplace_back(good.begin(), good.begin() + static_cast<ptrdiff_t>(size));
  }
  bad.emplace_back(good.size(), 0xff);
  bad.emplace_back(good.size(), 0);
  bad.push_back(good);
  bad.back()[4] = 2;  // a response
  bad.push_back(good);
  bad.back()[6] = 0;  // no operation
  bad.push_back(good);
  bad.back()[24] = 99;                               // an operation that is none
  for (const int flags : {6, 10, 12, 14, 16, 64}) {  // of another code, or two conditions
    bad.push_back(good);
    bad.back()[25] = static_cast<uint8_t>(flags);
  }
  bad.push_back(good);
  bad.back()[32] = 1;  // an expected version without the flag for it
  for (const OpCode code : {OpCode::kGet, OpCode::kDelete, OpCode::kAdd, OpCode::kAppend}) {
    bad.push_back(probe->Request(code, "some key", "", 0, With(wire::kOpIfAbsent)));
  }
  bad.push_back(good);
  bad.back()[40] = 1;  // an argument without the flag for it
  bad.push_back(probe->Request(OpCode::kGet, "some key", "", 0, With(0, 0, /*argument=*/1)));
  bad.push_back(probe->Request(OpCode::kTouch, "", "123456789"));  // a hash and a part of one
  bad.push_back(good);
  bad.back()[28] = 0xff;  // a value longer than the message
  wire::Hello hello{.receive_size = 4096, .receive_count = 8, .operations = 0, .reserved = 0};
  bad.push_back(probe->Request(
      OpCode::kHello, "", {reinterpret_cast<const char*>(&hello), sizeof(hello)}));  // a second one
  int ended = 0;
  for (const std::vector<uint8_t>& message : bad) {
    auto client = Client();
    ASSERT_TRUE(client->Send(message).ok());
    EXPECT_TRUE(client->WaitClosed().ok()) << "message of " << message.size() << " bytes";
    ++ended;
    const auto put = witness->Call(OpCode::kPut, "witness", "alive");
    ASSERT_TRUE(put.ok()) << put.status().ToString();
    EXPECT_EQ(put->code(), ResultCode::kOk);
  }
  const auto info = Info(*witness);
  EXPECT_EQ(info["counters"]["malformed"], ended);
  EXPECT_EQ(info["counters"]["connections_closed"]["malformed"], ended);
  // What the server has logged reaches this process some time later.
  EXPECT_TRUE(Eventually([&] {
    return server_->process().err().find("malformed request") != std::string::npos;
  })) << server_->process().err();
}

TEST_F(Misuse, WithoutHello) {
  StartServer();
  auto client = RawClient::Connect(Fabric(), server_->address());
  ASSERT_TRUE(client.ok());
  ASSERT_TRUE((*client)->Send((*client)->Request(OpCode::kPing, "", "x")).ok());
  EXPECT_TRUE((*client)->WaitClosed().ok());
  EXPECT_NE(Client(), nullptr);
}

TEST_F(Misuse, HelloWithTinyReceives) {
  StartServer();
  auto client = RawClient::Connect(Fabric(), server_->address());
  ASSERT_TRUE(client.ok());
  wire::Hello hello{.receive_size = 16, .receive_count = 8, .operations = 0, .reserved = 0};
  const auto request = (*client)->Request(OpCode::kHello, "",
                                          {reinterpret_cast<const char*>(&hello), sizeof(hello)});
  ASSERT_TRUE((*client)->Send(request).ok());
  EXPECT_TRUE((*client)->WaitClosed().ok());
}

TEST_F(Misuse, MoreRequestsThanGranted) {
  StartServer();
  auto witness = Client();
  auto greedy = Client();
  const std::vector<uint8_t> request = greedy->Request(OpCode::kPing, "", "x");
  // The server finds them all at once.
  ASSERT_TRUE(server_->process().Freeze().ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(greedy->Send(request).ok());
  server_->process().Signal(SIGCONT);
  EXPECT_TRUE(greedy->WaitClosed().ok());
  EXPECT_THAT(server_->process().WaitForOutput("requests that it may have unanswered").ToString(),
              "OK");
  EXPECT_EQ(Info(*witness)["counters"]["connections_closed"]["over_grant"], 1);
}

TEST_F(Misuse, GrantGrowsWithTheWishAndAllowsThatMany) {
  StartServer();
  auto client = Client();
  ASSERT_TRUE(client->Send(client->Request(OpCode::kPing, "", "x", /*wanted=*/100)).ok());
  const auto response = client->Receive();
  ASSERT_TRUE(response.ok());
  EXPECT_EQ(response->header.grant, 32);
  ASSERT_TRUE(server_->process().Freeze().ok());
  for (int i = 0; i < 32; ++i) {
    ASSERT_TRUE(client->Send(client->Request(OpCode::kPing, "", "x")).ok());
  }
  server_->process().Signal(SIGCONT);
  for (int i = 0; i < 32; ++i) EXPECT_TRUE(client->Receive().ok());
}

TEST_F(Misuse, KilledInTheMiddleOfPuts) {
  StartServer({"--memory=128MiB"});
  auto witness = Client();
  for (const char* mode : {"puts", "large"}) {
    auto client = Process::Start(
        {.program = ProgramPath("server_test_client"), .args = {server_->address(), mode}});
    ASSERT_TRUE(client.ok());
    const absl::Status running = (*client)->WaitForOutput("running");
    ASSERT_TRUE(running.ok()) << running.ToString();
    EXPECT_EQ(Info(*witness)["connections"], 2);
    (*client)->Signal(SIGKILL);
    EXPECT_LT(TimeUntilConnections(*witness, 1), Soon()) << mode;
    EXPECT_EQ(witness->Call(OpCode::kPut, "after", "value")->code(), ResultCode::kOk);
  }
}

TEST_F(Misuse, CreditsOfAKilledClientComeBack) {
  // 31 credits can be lent, and one client takes them all.
  StartServer({"--srq_depth=49", "--window=32", "--max_connections=2"});
  auto witness = Client();
  auto client = Process::Start(
      {.program = ProgramPath("server_test_client"), .args = {server_->address(), "wish"}});
  ASSERT_TRUE(client.ok());
  const absl::Status running = (*client)->WaitForOutput("running");
  ASSERT_TRUE(running.ok()) << running.ToString();
  const auto wish = [&] {
    EXPECT_TRUE(witness->Send(witness->Request(OpCode::kPing, "", "x", /*wanted=*/100)).ok());
    const auto response = witness->Receive();
    return response.ok() ? int{response->header.grant} : 0;
  };
  EXPECT_EQ(wish(), 1);
  (*client)->Signal(SIGKILL);
  EXPECT_LT(TimeUntilConnections(*witness, 1), Soon());
  EXPECT_EQ(wish(), 32);
}

TEST_F(Misuse, LargeValueByReference) {
  StartServer({"--memory=128MiB"});
  RawClientOptions options;
  options.value_memory = 10 << 20;
  auto client = Client(options);
  std::string value(options.value_memory - 3, ' ');
  for (size_t i = 0; i < value.size(); ++i) value[i] = static_cast<char>(i * 2654435761u >> 13);
  const auto put = client->PutByReference("large", value);
  ASSERT_TRUE(put.ok()) << put.status().ToString();
  EXPECT_EQ(put->code(), ResultCode::kOk) << put->value;
  const auto got = client->Call(OpCode::kGet, "large");
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->code(), ResultCode::kLocated);
  EXPECT_EQ(got->header.version, put->header.version);
  // Too large, and empty.
  ASSERT_TRUE(client->Send(client->ReferenceRequest("huge", 100u << 20, 0)).ok());
  auto response = client->Receive();
  ASSERT_TRUE(response.ok());
  EXPECT_EQ(response->results[0].code(), ResultCode::kTooLarge);
  EXPECT_EQ(client->PutByReference("empty", "")->code(), ResultCode::kOk);
  EXPECT_EQ(client->Call(OpCode::kGet, "empty")->code(), ResultCode::kOk);
}

TEST_F(Misuse, ReferenceToMemoryThatIsNotThere) {
  StartServer();
  auto witness = Client();
  const uint64_t version = PutOld(*witness);
  const auto used = Info(*witness)["memory"]["used_bytes"];
  RawClientOptions options;
  options.value_memory = 1 << 20;
  auto client = Client(options);
  ASSERT_TRUE(
      client->Send(client->ReferenceRequest("key", 1 << 20, 0, /*rkey_change=*/0x100)).ok());
  EXPECT_TRUE(client->WaitClosed().ok());
  EXPECT_LT(TimeUntilConnections(*witness, 1), Soon());
  const auto info = Info(*witness);
  const auto& closed = info["counters"]["connections_closed"];
  if (DeviceCapabilities().refused_reads_have_a_status()) {
    EXPECT_EQ(closed["read_failed"], 1);
  } else {
    EXPECT_EQ(closed["read_failed"].get<int>() + closed["peer_left"].get<int>() +
                  closed["transport_error"].get<int>(),
              1)
        << closed;
  }
  // Nothing of the value is left, and the old one stays.
  ExpectOld(*witness, version);
  EXPECT_EQ(info["memory"]["used_bytes"], used);
  EXPECT_EQ(info["items"], 1);
}

// The first pieces can be READ, the last ones not.
TEST_F(Misuse, ReferenceToMemoryThatIsTooShort) {
  StartServer({"--memory=128MiB"});
  auto witness = Client();
  const uint64_t version = PutOld(*witness);
  const auto used = Info(*witness)["memory"]["used_bytes"];
  RawClientOptions options;
  options.value_memory = 4 << 20;
  auto client = Client(options);
  ASSERT_TRUE(client->Send(client->ReferenceRequest("key", (4 << 20) + 1, 0)).ok());
  EXPECT_TRUE(client->WaitClosed().ok());
  EXPECT_LT(TimeUntilConnections(*witness, 1), Soon());
  ExpectOld(*witness, version);
  const auto info = Info(*witness);
  EXPECT_EQ(info["memory"]["used_bytes"], used);
  EXPECT_EQ(info["counters"]["staging_in_use"], 0);
}

// Memory that goes while the server READs it: the value is stored, or the connection ends and the
// key is as it was; and there is memory for as many values as before.
TEST_F(Misuse, MemoryThatIsDeregisteredUnderTheReads) {
  StartServer({"--memory=32MiB"});
  auto witness = Client();
  const auto used = Info(*witness)["memory"]["used_bytes"];
  RawClientOptions options;
  options.value_memory = 8 << 20;
  for (int i = 0; i < Scaled(10, 5); ++i) {
    const uint64_t version = PutOld(*witness);
    auto client = Client(options);
    ASSERT_NE(client, nullptr);
    ASSERT_TRUE(client->Send(client->ReferenceRequest("key", 8 << 20, 0)).ok());
    client->DeregisterValueMemory();
    const auto response = client->Receive();
    if (response.ok()) {
      EXPECT_EQ(response->results[0].code(), ResultCode::kOk) << response->results[0].value;
      const auto found = witness->Call(OpCode::kGet, "key");
      EXPECT_EQ(found->code(), ResultCode::kLocated);
      EXPECT_GT(found->header.version, version);
    } else {
      ExpectOld(*witness, version);
    }
    EXPECT_EQ(witness->Call(OpCode::kDelete, "key")->code(), ResultCode::kOk);
    client.reset();
    EXPECT_LT(TimeUntilConnections(*witness, 1), Soon());
  }
  // The witness, who has been told where the value lay, may keep it for a while.
  witness = Client();
  EXPECT_LT(TimeUntilConnections(*witness, 1), Soon());
  EXPECT_EQ(Info(*witness)["memory"]["used_bytes"], used);
}

TEST_F(Misuse, ReferenceOnAConnectionWithoutReads) {
  StartServer();
  RawClientOptions options;
  options.value_memory = 4096;
  options.responder = false;
  auto client = Client(options);
  const auto put = client->PutByReference("key", "value");
  ASSERT_TRUE(put.ok()) << put.status().ToString();
  EXPECT_EQ(put->code(), ResultCode::kInvalid);
  EXPECT_EQ(client->Call(OpCode::kPing, "", "x")->code(), ResultCode::kOk);
}

TEST_F(Misuse, OperationsThatCannotBeDone) {
  StartServer({"--memory=8MiB", "--max_value_size=4KiB"});
  auto client = Client();
  EXPECT_EQ(client->Call(OpCode::kPut, "", "value")->code(), ResultCode::kInvalid);
  const auto long_key = client->Call(OpCode::kPut, std::string(5000, 'k'), "value");
  EXPECT_EQ(long_key->code(), ResultCode::kTooLarge);
  EXPECT_THAT(long_key->value, AllOf(HasSubstr("5000"), HasSubstr("4072")));
  const auto long_value = client->Call(OpCode::kPut, "key", std::string(4097, 'v'));
  EXPECT_EQ(long_value->code(), ResultCode::kTooLarge);
  EXPECT_THAT(long_value->value, AllOf(HasSubstr("4097"), HasSubstr("4096")));
  EXPECT_EQ(client->Call(OpCode::kDelete, "key")->code(), ResultCode::kNotFound);
  ResultCode code = ResultCode::kOk;
  int stored = 0;
  std::string text;
  for (; stored < 100'000 && code == ResultCode::kOk; ++stored) {
    const auto put =
        client->Call(OpCode::kPut, absl::StrCat("key", stored), std::string(4000, 'v'));
    ASSERT_TRUE(put.ok()) << put.status().ToString();
    code = put->code();
    text = put->value;
  }
  EXPECT_EQ(code, ResultCode::kNoSpace);
  EXPECT_GT(stored, 500);
  EXPECT_FALSE(text.empty());
  const auto got = client->Call(OpCode::kGet, "key0");
  EXPECT_EQ(got->value, std::string(4000, 'v'));
}

// Codes, versions and texts of changes that depend on what is there.
TEST_F(Misuse, ChangesThatDependOnWhatIsThere) {
  StartServer({"--max_value_size=4KiB"});
  auto client = Client();
  const auto absent = client->CallWith(With(wire::kOpIfPresent), OpCode::kPut, "key", "value");
  EXPECT_EQ(absent->code(), ResultCode::kNotFound);
  EXPECT_EQ(absent->header.version, 0u);
  EXPECT_EQ(client->CallWith(With(wire::kOpIfVersion, 5), OpCode::kPut, "key", "value")->code(),
            ResultCode::kNotFound);
  const auto put = client->CallWith(With(wire::kOpIfAbsent), OpCode::kPut, "key", "value");
  ASSERT_EQ(put->code(), ResultCode::kOk) << put->value;
  const auto exists = client->CallWith(With(wire::kOpIfAbsent), OpCode::kPut, "key", "other");
  EXPECT_EQ(exists->code(), ResultCode::kExists);
  EXPECT_EQ(exists->header.version, put->header.version);
  EXPECT_EQ(exists->header.argument, 1u);
  EXPECT_THAT(exists->value, HasSubstr(absl::StrCat(put->header.version)));
  const uint64_t version = put->header.version;
  for (const OpCode code : {OpCode::kPut, OpCode::kDelete, OpCode::kAdd, OpCode::kAppend}) {
    const auto other = client->CallWith(With(wire::kOpIfVersion, version + 1), code, "key");
    EXPECT_EQ(other->code(), ResultCode::kMismatch);
    EXPECT_EQ(other->header.version, version);
    EXPECT_THAT(other->value, HasSubstr(absl::StrCat(version)));
  }
  EXPECT_EQ(client->Call(OpCode::kGet, "key")->value, "value");
  EXPECT_EQ(client->CallWith(With(0, 0, 1), OpCode::kAdd, "key")->code(), ResultCode::kNotANumber);
  const auto appended =
      client->CallWith(With(wire::kOpIfVersion, version), OpCode::kAppend, "key", "s");
  EXPECT_EQ(appended->code(), ResultCode::kOk);
  EXPECT_EQ(client->Call(OpCode::kAppend, "key", std::string(4091, 's'))->code(),
            ResultCode::kTooLarge);
  EXPECT_EQ(client->Call(OpCode::kGet, "key")->value, "values");

  const auto sum = client->CallWith(With(0, 0, INT64_MIN), OpCode::kAdd, "number");
  EXPECT_EQ(sum->code(), ResultCode::kOk);
  EXPECT_EQ(sum->value, "-9223372036854775808");
  EXPECT_EQ(sum->header.argument, 0u);
  const auto overflow = client->CallWith(With(0, 0, -1), OpCode::kAdd, "number");
  EXPECT_EQ(overflow->code(), ResultCode::kOverflow);
  EXPECT_EQ(overflow->header.version, sum->header.version);
  EXPECT_EQ(client->CallWith(With(wire::kOpIfPresent, 0, INT64_MAX), OpCode::kAdd, "number")->value,
            "-1");

  const auto info = Info(*client);
  EXPECT_EQ(info["operations"]["add"]["overflow"], 1);
  EXPECT_EQ(info["operations"]["add"]["not a number"], 1);
  EXPECT_EQ(info["operations"]["put"]["exists"], 1);
  EXPECT_EQ(info["operations"]["append"]["other version"], 1);
}

TEST_F(Misuse, ConditionsOfValuesByReference) {
  StartServer();
  RawClientOptions options;
  options.value_memory = 1 << 20;
  auto client = Client(options);
  const std::string value(options.value_memory, 'v');
  const auto put = client->PutByReference("key", value, With(wire::kOpIfAbsent));
  ASSERT_EQ(put->code(), ResultCode::kOk) << put->value;
  const auto used = Info(*client)["memory"]["used_bytes"];
  const auto exists = client->PutByReference("key", value, With(wire::kOpIfAbsent));
  EXPECT_EQ(exists->code(), ResultCode::kExists);
  EXPECT_EQ(exists->header.version, put->header.version);
  EXPECT_EQ(client->PutByReference("key", "", With(wire::kOpIfVersion, 1))->code(),
            ResultCode::kMismatch);
  EXPECT_EQ(Info(*client)["memory"]["used_bytes"], used);
  const auto swapped =
      client->PutByReference("key", value, With(wire::kOpIfVersion, put->header.version));
  EXPECT_EQ(swapped->code(), ResultCode::kOk);
  EXPECT_GT(swapped->header.version, put->header.version);
}

// What does not fit the answer is not deleted.
TEST_F(Misuse, DeletionsThatReturnTheValue) {
  StartServer();
  RawClientOptions small;
  small.receive_size = 512;
  auto client = Client(small);
  const wire::OperationHeader take = With(wire::kOpReturnValue);
  EXPECT_EQ(client->CallWith(take, OpCode::kDelete, "key")->code(), ResultCode::kNotFound);
  const auto put = client->Call(OpCode::kPut, "key", std::string(600, 'v'));
  const auto refused = client->CallWith(take, OpCode::kDelete, "key");
  EXPECT_EQ(refused->code(), ResultCode::kTooLarge);
  EXPECT_EQ(refused->header.version, put->header.version);
  EXPECT_THAT(refused->value, HasSubstr("600 bytes"));
  const auto kept =
      client->CallWith(With(wire::kOpReturnValue | wire::kOpIfVersion, 1), OpCode::kDelete, "key");
  EXPECT_EQ(kept->code(), ResultCode::kMismatch);
  ASSERT_EQ(client->Call(OpCode::kPut, "key", std::string(300, 'w'))->code(), ResultCode::kOk);
  const auto taken = client->CallWith(take, OpCode::kDelete, "key");
  EXPECT_EQ(taken->code(), ResultCode::kOk);
  EXPECT_EQ(taken->value, std::string(300, 'w'));
  EXPECT_EQ(taken->header.argument, 1u);
  EXPECT_EQ(client->Call(OpCode::kGet, "key")->code(), ResultCode::kNotFound);
}

// A value longer than the client's receives is located rather than sent.
TEST_F(Misuse, AnswersFitTheClientsReceives) {
  StartServer();
  RawClientOptions small;
  small.receive_size = 512;
  auto client = Client(small);
  ASSERT_EQ(client->Call(OpCode::kPut, "key", std::string(300, 'v'))->code(), ResultCode::kOk);
  EXPECT_EQ(client->Call(OpCode::kGet, "key")->value.size(), 300u);
  ASSERT_EQ(client->Call(OpCode::kPut, "key", std::string(600, 'v'))->code(), ResultCode::kOk);
  EXPECT_EQ(client->Call(OpCode::kGet, "key")->code(), ResultCode::kLocated);
  EXPECT_EQ(client->Call(OpCode::kPing, "", std::string(600, 'v'))->code(), ResultCode::kTooLarge);
}

}  // namespace
}  // namespace verbena::testing
