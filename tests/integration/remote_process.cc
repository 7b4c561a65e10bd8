#include "tests/integration/remote_process.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/macros.h"
#include "common/base/net_address.h"
#include "common/base/text.h"

namespace verbena::testing {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kLongestMessage = 64 << 20;
// Of a call that waits.
constexpr std::chrono::milliseconds kRound{500};
// Between attempts to connect.
constexpr std::chrono::milliseconds kRetry{50};

absl::Status Gone(const char* what) {
  return absl::UnavailableError(
      absl::StrCat("the connection to the process agent has ended: ", what));
}

absl::Status ReceiveAll(int socket, std::span<uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = recv(socket, bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Gone(std::strerror(errno));
    if (got == 0) return Gone("closed");
    bytes = bytes.subspan(static_cast<size_t>(got));
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> ConnectTo(std::string_view agent) {
  VERBENA_ASSIGN_OR_RETURN(const NetAddress address, NetAddress::Parse(agent));
  const auto deadline = Clock::now() + kPatience;
  while (true) {
    UniqueFd fd(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(fd.get(), address.addr(), address.length()) == 0) {
      const int on = 1;
      setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      return fd;
    }
    if (Clock::now() > deadline) {
      return absl::UnavailableError(
          absl::StrCat("no process agent at ", ToAbsl(agent), ": ", std::strerror(errno)));
    }
    std::this_thread::sleep_for(kRetry);
  }
}

}  // namespace

absl::Status SendMessage(int socket, const Json& message) {
  std::vector<uint8_t> bytes(sizeof(uint32_t));
  Json::to_cbor(message, bytes);
  const auto length = static_cast<uint32_t>(bytes.size() - sizeof(uint32_t));
  std::memcpy(bytes.data(), &length, sizeof(length));
  std::span<const uint8_t> rest(bytes);
  while (!rest.empty()) {
    const ssize_t sent = send(socket, rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return Gone(std::strerror(errno));
    rest = rest.subspan(static_cast<size_t>(sent));
  }
  return absl::OkStatus();
}

absl::StatusOr<Json> ReceiveMessage(int socket) {
  uint32_t length = 0;
  VERBENA_RETURN_IF_ERROR(
      ReceiveAll(socket, {reinterpret_cast<uint8_t*>(&length), sizeof(length)}));
  if (length > kLongestMessage) return Gone("a message of impossible length");
  std::vector<uint8_t> bytes(length);
  VERBENA_RETURN_IF_ERROR(ReceiveAll(socket, bytes));
  Json message = Json::from_cbor(bytes, /*strict=*/true, /*allow_exceptions=*/false);
  if (!message.is_object()) return Gone("a message that is no map");
  return message;
}

absl::StatusOr<std::unique_ptr<RemoteProcess>> RemoteProcess::Start(std::string_view agent,
                                                                    const ProcessOptions& options) {
  std::unique_ptr<RemoteProcess> process(new RemoteProcess);
  VERBENA_ASSIGN_OR_RETURN(process->socket_, ConnectTo(agent));
  VERBENA_RETURN_IF_ERROR(process
                              ->Call({{"call", "start"},
                                      {"program", options.program},
                                      {"args", options.args},
                                      {"environment", options.environment},
                                      {"input", options.input},
                                      {"keep_input_open", options.keep_input_open}})
                              .status());
  return process;
}

absl::StatusOr<Json> RemoteProcess::Call(const Json& call) const {
  const std::lock_guard lock(mutex_);
  VERBENA_RETURN_IF_ERROR(SendMessage(socket_.get(), call));
  VERBENA_ASSIGN_OR_RETURN(Json answer, ReceiveMessage(socket_.get()));
  if (answer.contains("error")) {
    return absl::Status(static_cast<absl::StatusCode>(answer["error"].get<int>()),
                        answer.value("message", ""));
  }
  return answer;
}

absl::StatusOr<Json> RemoteProcess::CallPatiently(Json call,
                                                  std::chrono::milliseconds patience) const {
  const auto deadline = Clock::now() + patience;
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    call["patience_ms"] = std::clamp(left, std::chrono::milliseconds(0), kRound).count();
    absl::StatusOr<Json> answer = Call(call);
    if (answer.ok() || !absl::IsDeadlineExceeded(answer.status()) || left <= kRound) return answer;
  }
}

std::string RemoteProcess::out() const {
  const absl::StatusOr<Json> answer = Call({{"call", "output"}});
  return answer.ok() ? answer->value("out", "") : std::string(answer.status().message());
}

std::string RemoteProcess::err() const {
  const absl::StatusOr<Json> answer = Call({{"call", "output"}});
  return answer.ok() ? answer->value("err", "") : std::string(answer.status().message());
}

absl::Status RemoteProcess::WaitForOutput(std::string_view text,
                                          std::chrono::milliseconds patience) {
  return CallPatiently({{"call", "wait_for_output"}, {"text", text}}, patience).status();
}

void RemoteProcess::Signal(int signal) {
  Call({{"call", "signal"}, {"signal", signal}}).IgnoreError();
}

absl::Status RemoteProcess::Freeze() { return Call({{"call", "freeze"}}).status(); }

absl::StatusOr<ExitStatus> RemoteProcess::WaitForExit(std::chrono::milliseconds patience) {
  VERBENA_ASSIGN_OR_RETURN(const Json answer, CallPatiently({{"call", "wait_for_exit"}}, patience));
  return ExitStatus{answer.value("exited", false), answer.value("code", -1),
                    answer.value("signal", 0)};
}

void RemoteProcess::CloseInput() { Call({{"call", "close_input"}}).IgnoreError(); }

absl::StatusOr<std::chrono::nanoseconds> RemoteProcess::CpuTime() const {
  VERBENA_ASSIGN_OR_RETURN(const Json answer, Call({{"call", "cpu_time"}}));
  return std::chrono::nanoseconds(answer.value("nanos", int64_t{0}));
}

}  // namespace verbena::testing
