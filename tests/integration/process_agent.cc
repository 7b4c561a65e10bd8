// process_agent ADDR:PORT: starts and watches processes for tests that run on another host
// (remote_process.h). It runs whatever it is told to: for virtual machines and loopback only.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/macros.h"
#include "common/base/net_address.h"
#include "common/base/unique_fd.h"
#include "tests/integration/local_process.h"
#include "tests/integration/remote_process.h"

namespace verbena::testing {
namespace {

using Json = nlohmann::json;

absl::StatusOr<std::unique_ptr<LocalProcess>> StartProcess(const Json& call) {
  ProcessOptions options;
  options.program = call.at("program");
  options.args = call.at("args");
  options.environment = call.at("environment");
  options.input = call.at("input");
  options.keep_input_open = call.at("keep_input_open");
  return LocalProcess::Start(std::move(options));
}

absl::StatusOr<Json> Answer(LocalProcess& process, const Json& call) {
  const std::string name = call.value("call", "");
  const std::chrono::milliseconds patience(call.value("patience_ms", 0));
  if (name == "output") return Json{{"out", process.out()}, {"err", process.err()}};
  if (name == "wait_for_output") {
    VERBENA_RETURN_IF_ERROR(process.WaitForOutput(call.value("text", ""), patience));
  } else if (name == "signal") {
    process.Signal(call.value("signal", 0));
  } else if (name == "freeze") {
    VERBENA_RETURN_IF_ERROR(process.Freeze());
  } else if (name == "wait_for_exit") {
    VERBENA_ASSIGN_OR_RETURN(const ExitStatus exit, process.WaitForExit(patience));
    return Json{{"exited", exit.exited}, {"code", exit.code}, {"signal", exit.signal}};
  } else if (name == "close_input") {
    process.CloseInput();
  } else if (name == "cpu_time") {
    VERBENA_ASSIGN_OR_RETURN(const std::chrono::nanoseconds used, process.CpuTime());
    return Json{{"nanos", used.count()}};
  } else {
    return absl::InvalidArgumentError(absl::StrCat("no call \"", name, "\""));
  }
  return Json::object();
}

// The process lives as long as its connection. It dies with its thread, so this one starts it.
void Serve(UniqueFd socket) {
  std::unique_ptr<LocalProcess> process;
  while (true) {
    const absl::StatusOr<Json> call = ReceiveMessage(socket.get());
    if (!call.ok()) return;
    absl::StatusOr<Json> answer = absl::InvalidArgumentError("nothing has been started");
    try {  // Json's at() and conversions throw
      if (process != nullptr) {
        answer = Answer(*process, *call);
      } else if (absl::StatusOr<std::unique_ptr<LocalProcess>> started = StartProcess(*call);
                 started.ok()) {
        process = *std::move(started);
        answer = Json::object();
      } else {
        answer = started.status();
      }
    } catch (const Json::exception& error) {
      answer = absl::InvalidArgumentError(error.what());
    }
    const Json message = answer.ok() ? *answer
                                     : Json{{"error", static_cast<int>(answer.status().code())},
                                            {"message", std::string(answer.status().message())}};
    if (!SendMessage(socket.get(), message).ok()) return;
  }
}

int Run(const char* where) {
  absl::StatusOr<NetAddress> address = NetAddress::Parse(where);
  if (!address.ok()) {
    std::fprintf(stderr, "process_agent: %s\n", std::string(address.status().message()).c_str());
    return 2;
  }
  const UniqueFd listener(socket(address->family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(listener.get(), address->addr(), address->length()) != 0 ||
      listen(listener.get(), 64) != 0) {
    std::fprintf(stderr, "process_agent: %s: %s\n", where, std::strerror(errno));
    return 1;
  }
  socklen_t length = sizeof(sockaddr_storage);
  getsockname(listener.get(), address->addr(), &length);
  std::printf("ready %s\n", address->ToString().c_str());
  std::fflush(stdout);
  while (true) {
    UniqueFd accepted(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!accepted.valid()) continue;
    setsockopt(accepted.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    std::thread([socket = std::move(accepted)]() mutable { Serve(std::move(socket)); }).detach();
  }
}

}  // namespace
}  // namespace verbena::testing

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "Usage: process_agent ADDR:PORT\n");
    return 2;
  }
  signal(SIGPIPE, SIG_IGN);
  return verbena::testing::Run(argv[1]);
}
