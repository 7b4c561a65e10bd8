// A process on another host, started and watched by a process_agent there. See process.h.
//
// One TCP connection per process carries one call at a time: a message is its length (4 bytes,
// little-endian) and a map in CBOR. A call has the member "call" and its arguments, an answer its
// results, or "error" (a code of absl::Status) and "message". The process is killed when the
// connection ends.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"
#include "tests/integration/process.h"

namespace verbena::testing {

class RemoteProcess : public Process {
 public:
  // `agent`: "ADDR:PORT". Waits for an agent that does not listen yet.
  static absl::StatusOr<std::unique_ptr<RemoteProcess>> Start(std::string_view agent,
                                                              const ProcessOptions& options);

  std::string out() const override;
  std::string err() const override;
  absl::Status WaitForOutput(std::string_view text, std::chrono::milliseconds patience) override;
  void Signal(int signal) override;
  absl::Status Freeze() override;
  absl::StatusOr<ExitStatus> WaitForExit(std::chrono::milliseconds patience) override;
  void CloseInput() override;
  absl::StatusOr<std::chrono::nanoseconds> CpuTime() const override;

 private:
  RemoteProcess() = default;
  // Unavailable if the agent is gone.
  absl::StatusOr<nlohmann::json> Call(const nlohmann::json& call) const;
  // Repeats a call that takes "patience_ms" in rounds, so that other threads' calls get between.
  absl::StatusOr<nlohmann::json> CallPatiently(nlohmann::json call,
                                               std::chrono::milliseconds patience) const;

  mutable std::mutex mutex_;  // one call at a time
  UniqueFd socket_;
};

// One message. Unavailable if the connection has ended.
absl::Status SendMessage(int socket, const nlohmann::json& message);
absl::StatusOr<nlohmann::json> ReceiveMessage(int socket);

}  // namespace verbena::testing
