#include "bench/systems/socket_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <string>
#include <vector>

#include "bench/baseline/tcp_target.h"
#include "bench/systems/pingpong_backend.h"
#include "bench/systems/text_backends.h"

namespace verbena::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Recorder : public CompletionSink {
 public:
  void OnRead(uint32_t slot, const absl::Status& status, std::string_view value) override {
    events.push_back("read " + std::to_string(slot) + " " + Text(status) + " " +
                     std::string(value));
  }
  void OnWrite(uint32_t slot, const absl::Status& status) override {
    events.push_back("write " + std::to_string(slot) + " " + Text(status));
  }
  void OnScan(uint32_t slot, const absl::Status& status,
              std::span<const ScannedRecord> records) override {
    events.push_back("scan " + std::to_string(slot) + " " + Text(status) + " " +
                     std::to_string(records.size()));
  }
  std::vector<std::string> events;

 private:
  static std::string Text(const absl::Status& status) {
    return absl::StatusCodeToString(status.code());
  }
};

// A backend and the server's end of its socket, played by the test.
template <typename T>
struct Session {
  Session() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    backend = std::make_unique<T>(UniqueFd(ends[0]));
    server = UniqueFd(ends[1]);
    backend->set_sink(&recorder);
  }
  std::string Received() const {
    char buffer[4096];
    const ssize_t n = recv(server.get(), buffer, sizeof(buffer), 0);
    return n > 0 ? std::string(buffer, static_cast<size_t>(n)) : std::string();
  }
  void Answer(std::string_view bytes) const {
    EXPECT_EQ(send(server.get(), bytes.data(), bytes.size(), 0),
              static_cast<ssize_t>(bytes.size()));
  }

  Recorder recorder;
  std::unique_ptr<Backend> backend;
  UniqueFd server;
};

TEST(RedisBackend, SpeaksResp) {
  Session<RedisBackend> session;
  ASSERT_TRUE(session.backend->SubmitRead(1, "k1").ok());
  ASSERT_TRUE(session.backend->SubmitWrite(2, "k2", "value").ok());
  ASSERT_TRUE(session.backend->SubmitRead(3, "k3").ok());
  EXPECT_EQ(session.backend->Poll(), 0);
  EXPECT_EQ(session.Received(),
            "*2\r\n$3\r\nGET\r\n$2\r\nk1\r\n"
            "*3\r\n$3\r\nSET\r\n$2\r\nk2\r\n$5\r\nvalue\r\n"
            "*2\r\n$3\r\nGET\r\n$2\r\nk3\r\n");
  session.Answer("$4\r\na\r\nb\r\n+OK\r\n$-1\r\n");
  EXPECT_EQ(session.backend->Poll(), 3);
  EXPECT_THAT(session.recorder.events,
              ElementsAre("read 1 OK a\r\nb", "write 2 OK", "read 3 NOT_FOUND "));
}

TEST(RedisBackend, ErrorsOfTheServerAreErrorsOfTheOperation) {
  Session<RedisBackend> session;
  ASSERT_TRUE(session.backend->SubmitRead(1, "k").ok());
  ASSERT_TRUE(session.backend->SubmitWrite(2, "k", "v").ok());
  session.Answer("-WRONGTYPE no\r\n-OOM command not allowed\r\n");
  EXPECT_EQ(session.backend->Poll(), 2);
  EXPECT_THAT(session.recorder.events, ElementsAre("read 1 INTERNAL ", "write 2 INTERNAL"));
  EXPECT_TRUE(session.backend->status().ok());
}

TEST(MemcachedBackend, SpeaksItsTextProtocol) {
  Session<MemcachedBackend> session;
  ASSERT_TRUE(session.backend->SubmitRead(1, "k1").ok());
  ASSERT_TRUE(session.backend->SubmitWrite(2, "k2", "value").ok());
  ASSERT_TRUE(session.backend->SubmitRead(3, "k3").ok());
  ASSERT_TRUE(session.backend->SubmitWrite(4, "k4", "").ok());
  EXPECT_EQ(session.backend->Poll(), 0);
  EXPECT_EQ(session.Received(),
            "get k1\r\nset k2 0 0 5\r\nvalue\r\nget k3\r\nset k4 0 0 0\r\n\r\n");
  session.Answer(
      "VALUE k1 0 4\r\na\r\nb\r\nEND\r\nSTORED\r\nEND\r\nSERVER_ERROR out of memory\r\n");
  EXPECT_EQ(session.backend->Poll(), 4);
  EXPECT_THAT(session.recorder.events, ElementsAre("read 1 OK a\r\nb", "write 2 OK",
                                                   "read 3 NOT_FOUND ", "write 4 INTERNAL"));
}

TEST(MemcachedMetaBackend, SpeaksTheMetaProtocol) {
  Session<MemcachedMetaBackend> session;
  ASSERT_TRUE(session.backend->SubmitRead(1, "k1").ok());
  ASSERT_TRUE(session.backend->SubmitWrite(2, "k2", "value").ok());
  ASSERT_TRUE(session.backend->SubmitRead(3, "k3").ok());
  ASSERT_TRUE(session.backend->SubmitWrite(4, "k4", "").ok());
  ASSERT_TRUE(session.backend->SubmitDelete(5, "k5").ok());
  ASSERT_TRUE(session.backend->SubmitDelete(6, "k6").ok());
  EXPECT_EQ(session.backend->Poll(), 0);
  EXPECT_EQ(session.Received(),
            "mg k1 v\r\nms k2 5\r\nvalue\r\nmg k3 v\r\nms k4 0\r\n\r\nmd k5\r\nmd k6\r\n");
  session.Answer("VA 4\r\na\r\nb\r\nHD\r\nEN\r\nSERVER_ERROR out of memory\r\nHD\r\nNF\r\n");
  EXPECT_EQ(session.backend->Poll(), 6);
  EXPECT_THAT(session.recorder.events,
              ElementsAre("read 1 OK a\r\nb", "write 2 OK", "read 3 NOT_FOUND ", "write 4 INTERNAL",
                          "write 5 OK", "write 6 NOT_FOUND"));
}

TEST(PingPongBackend, SendsAndTakesMessagesOfTheirSizes) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  const UniqueFd server(ends[1]);
  PingPongBackend backend(UniqueFd(ends[0]), {.read_request = 4,  // less than a header
                                              .read_answer = 30,
                                              .write_request = 100,
                                              .write_answer = 10});
  Recorder recorder;
  backend.set_sink(&recorder);
  EXPECT_FALSE(backend.keeps_values());
  ASSERT_TRUE(backend.SubmitRead(1, "k").ok());
  ASSERT_TRUE(backend.SubmitWrite(2, "k", "v").ok());
  EXPECT_EQ(backend.Poll(), 0);
  char bytes[200];
  ASSERT_EQ(recv(server.get(), bytes, sizeof(bytes), 0),
            static_cast<ssize_t>(sizeof(TcpPing) + 100));
  TcpPing ping;
  std::memcpy(&ping, bytes, sizeof(ping));
  EXPECT_EQ(ping.size, sizeof(ping));
  EXPECT_EQ(ping.answer, 30U);
  ASSERT_EQ(send(server.get(), std::string(39, 'p').data(), 39, 0), 39);
  EXPECT_EQ(backend.Poll(), 1);
  ASSERT_EQ(send(server.get(), "p", 1, 0), 1);
  EXPECT_EQ(backend.Poll(), 1);
  EXPECT_THAT(recorder.events, ElementsAre("read 1 OK " + std::string(30, 'p'), "write 2 OK"));
}

TEST(SocketBackend, Deletes) {
  Session<RedisBackend> redis;
  ASSERT_TRUE(redis.backend->SubmitDelete(1, "k1").ok());
  ASSERT_TRUE(redis.backend->SubmitDelete(2, "k").ok());
  ASSERT_TRUE(redis.backend->SubmitDelete(3, "k").ok());
  redis.Answer(":1\r\n:0\r\n-READONLY no\r\n");
  EXPECT_EQ(redis.backend->Poll(), 3);
  EXPECT_EQ(redis.Received().substr(0, 19), "*2\r\n$3\r\nDEL\r\n$2\r\nk1");
  EXPECT_THAT(redis.recorder.events,
              ElementsAre("write 1 OK", "write 2 NOT_FOUND", "write 3 INTERNAL"));

  Session<MemcachedBackend> memcached;
  ASSERT_TRUE(memcached.backend->SubmitDelete(1, "k1").ok());
  ASSERT_TRUE(memcached.backend->SubmitDelete(2, "k2").ok());
  memcached.Answer("DELETED\r\nNOT_FOUND\r\n");
  EXPECT_EQ(memcached.backend->Poll(), 2);
  EXPECT_EQ(memcached.Received(), "delete k1\r\ndelete k2\r\n");
  EXPECT_THAT(memcached.recorder.events, ElementsAre("write 1 OK", "write 2 NOT_FOUND"));
}

TEST(SocketBackend, CountsBytesAndCalls) {
  Session<RedisBackend> session;
  ASSERT_TRUE(session.backend->SubmitRead(1, "k").ok());
  session.Answer("$1\r\nx\r\n");
  ASSERT_EQ(session.backend->Poll(), 1);
  const BackendCounters counters = session.backend->counters();
  EXPECT_EQ(counters.gets, 1U);
  EXPECT_EQ(counters.bytes_out, session.Received().size());
  EXPECT_EQ(counters.bytes_in, 7U);
  EXPECT_EQ(counters.system_calls, 2U);  // send and recv
}

// Answers may come in pieces of any size.
template <typename T>
void FeedByteByByte(const std::string& answers, const std::vector<std::string>& expected) {
  Session<T> session;
  ASSERT_TRUE(session.backend->SubmitRead(1, "k").ok());
  ASSERT_TRUE(session.backend->SubmitWrite(2, "k", "v").ok());
  ASSERT_TRUE(session.backend->SubmitRead(3, "k").ok());
  for (const char c : answers) {
    session.Answer({&c, 1});
    session.backend->Poll();
  }
  EXPECT_EQ(session.recorder.events, expected);
}

TEST(SocketBackend, TakesAnswersInPieces) {
  const std::vector<std::string> expected = {"read 1 OK \r\n", "write 2 OK", "read 3 NOT_FOUND "};
  FeedByteByByte<RedisBackend>("$2\r\n\r\n\r\n+OK\r\n$-1\r\n", expected);
  FeedByteByByte<MemcachedBackend>("VALUE k 0 2\r\n\r\n\r\nEND\r\nSTORED\r\nEND\r\n", expected);
}

TEST(SocketBackend, LargeValuesArrive) {
  Session<RedisBackend> session;
  const std::string value(100'000, 'x');
  ASSERT_TRUE(session.backend->SubmitRead(1, "k").ok());
  session.Answer("$100000\r\n");
  for (size_t at = 0; at < value.size(); at += 10'000) {
    session.Answer(std::string_view(value).substr(at, 10'000));
    session.backend->Poll();
  }
  session.Answer("\r\n");
  session.backend->Poll();
  EXPECT_THAT(session.recorder.events, ElementsAre("read 1 OK " + value));
}

TEST(SocketBackend, RefusesScans) {
  Session<RedisBackend> redis;
  Session<MemcachedBackend> memcached;
  for (Backend* backend : {static_cast<Backend*>(redis.backend.get()),
                           static_cast<Backend*>(memcached.backend.get())}) {
    const absl::Status status = backend->SubmitScan(1, "k", "", 10);
    EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
    EXPECT_THAT(status.ToString(), HasSubstr("no order of its keys"));
  }
}

TEST(SocketBackend, EndOfTheServerIsNoticed) {
  Session<MemcachedBackend> session;
  ASSERT_TRUE(session.backend->SubmitRead(1, "k").ok());
  session.server.Reset();
  session.backend->Wait(std::chrono::seconds(1));
  EXPECT_EQ(session.backend->status().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(session.backend->SubmitRead(2, "k").ok());
}

TEST(SocketBackend, NonsenseEndsTheConnection) {
  Session<RedisBackend> redis;
  ASSERT_TRUE(redis.backend->SubmitRead(1, "k").ok());
  redis.Answer("HTTP/1.1 200 OK\r\n");
  redis.backend->Poll();
  EXPECT_THAT(redis.backend->status().ToString(), HasSubstr("HTTP/1.1"));

  Session<MemcachedBackend> memcached;
  ASSERT_TRUE(memcached.backend->SubmitRead(1, "k").ok());
  memcached.Answer("VALUE k 0 many\r\n");
  memcached.backend->Poll();
  EXPECT_FALSE(memcached.backend->status().ok());
}

// One operation of `kind` ('r', 'w' or 'd') and an answer that no such server gives.
template <typename T>
absl::Status AfterAnswer(char kind, std::string_view answer) {
  Session<T> session;
  const absl::Status submitted = kind == 'r'   ? session.backend->SubmitRead(1, "k")
                                 : kind == 'w' ? session.backend->SubmitWrite(1, "k", "v")
                                               : session.backend->SubmitDelete(1, "k");
  EXPECT_TRUE(submitted.ok());
  session.Answer(answer);
  for (int i = 0; i < 8; ++i) session.backend->Poll();
  return session.backend->status();
}

TEST(SocketBackend, HostileAnswersEndTheConnection) {
  const std::string endless(70'000, 'x');
  for (const std::string answer :
       {"$99999999999999999999\r\n", "$-5\r\n", "$1073741825\r\n", "$1\r\nxyz\r\n", "\r\n",
        ":1\r\n", "$\r\n", "$1x\r\n", endless.c_str(), "+OK\r\n", "$0\r\n\r\n$0\r\n\r\n"}) {
    EXPECT_FALSE(AfterAnswer<RedisBackend>('r', answer).ok()) << answer.substr(0, 100);
  }
  for (const std::string answer : {"$1\r\n", "\r\n", endless.c_str(), ":1\r\n"}) {
    EXPECT_FALSE(AfterAnswer<RedisBackend>('w', answer).ok()) << answer.substr(0, 100);
  }
  for (const std::string answer : {"+OK\r\n", "\r\n", ":7\r\n", endless.c_str()}) {
    EXPECT_FALSE(AfterAnswer<RedisBackend>('d', answer).ok()) << answer.substr(0, 100);
  }
  for (const std::string answer :
       {"VALUE k 0 18446744073709551615\r\n", "VALUE k 0 -1\r\n", "VALUE k 0 \r\n",
        "VALUE k 0 1\r\nxyz\r\nEND\r\n", "VALUE k 0 1\r\nx\r\nBAD\r\n", "VALU\r\n", "\r\n",
        endless.c_str()}) {
    EXPECT_FALSE(AfterAnswer<MemcachedBackend>('r', answer).ok()) << answer.substr(0, 100);
  }
  for (const std::string answer : {"VA \r\n", "VA x\r\n", "VA 1\r\nxyz\r\n", "VA 99999999999\r\n",
                                   "HD\r\n", "\r\n", endless.c_str()}) {
    EXPECT_FALSE(AfterAnswer<MemcachedMetaBackend>('r', answer).ok()) << answer.substr(0, 100);
  }
}

TEST(ConnectTcp, SaysWhatIsWrong) {
  // A port that was just given back: nobody listens there.
  auto address = NetAddress::Parse("127.0.0.1:0");
  ASSERT_TRUE(address.ok());
  {
    const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(bind(socket.get(), address->addr(), address->length()), 0);
    socklen_t size = sizeof(sockaddr_in);
    ASSERT_EQ(getsockname(socket.get(), address->addr(), &size), 0);
  }
  const auto connected = ConnectTcp(*address, std::chrono::seconds(5));
  EXPECT_EQ(connected.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(connected.status().ToString(), HasSubstr(address->ToString()));
}

TEST(ConnectUnix, SaysWhatIsWrong) {
  EXPECT_THAT(ConnectUnix("/nonexistent/socket").status().ToString(),
              HasSubstr("/nonexistent/socket"));
  EXPECT_EQ(ConnectUnix(std::string(200, 'x')).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace verbena::bench
