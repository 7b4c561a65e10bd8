// What the text protocols over a stream socket have in common: requests are appended to a buffer
// and written at once, answers come in the order of the requests.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "bench/systems/backend.h"
#include "common/base/net_address.h"
#include "common/base/unique_fd.h"

namespace verbena::bench {

// Connects to a Unix-domain stream socket; non-blocking.
absl::StatusOr<UniqueFd> ConnectUnix(const std::string& path);
// Connects over TCP, within `timeout`; non-blocking, and without Nagle's delay.
absl::StatusOr<UniqueFd> ConnectTcp(const NetAddress& address, std::chrono::milliseconds timeout);

// An answer cut from the front of the received bytes.
struct SocketAnswer {
  size_t size = 0;  // bytes that it takes up
  absl::Status status;
  std::string_view value;
};

class SocketBackend : public Backend {
 public:
  explicit SocketBackend(UniqueFd socket) : socket_(std::move(socket)) {}

  absl::Status SubmitRead(uint32_t slot, std::string_view key) final;
  absl::Status SubmitWrite(uint32_t slot, std::string_view key, std::string_view value) final;
  absl::Status SubmitDelete(uint32_t slot, std::string_view key) final;
  int Poll() final { return Progress(0); }
  int Wait(std::chrono::nanoseconds timeout) final;
  absl::Status status() const final { return status_; }
  BackendCounters counters() const final { return counters_; }

 protected:
  using Answer = SocketAnswer;

  virtual void AppendRead(std::string_view key, std::string& out) = 0;
  virtual void AppendWrite(std::string_view key, std::string_view value, std::string& out) = 0;
  virtual void AppendDelete(std::string_view key, std::string& out) = 0;
  // The first answer in `bytes`, nullopt if it is not complete yet; an error if it makes no sense
  // (the connection is then given up).
  virtual absl::StatusOr<std::optional<Answer>> ParseRead(std::string_view bytes) = 0;
  virtual absl::StatusOr<std::optional<Answer>> ParseWrite(std::string_view bytes) = 0;
  virtual absl::StatusOr<std::optional<Answer>> ParseDelete(std::string_view bytes) = 0;

 private:
  enum class Kind : uint8_t { kRead, kWrite, kDelete };
  struct Pending {
    uint32_t slot;
    Kind kind;
  };

  absl::StatusOr<std::optional<Answer>> Parse(Kind kind, std::string_view bytes);

  int Progress(int timeout_ms);
  bool Flush();
  bool Receive();
  int Deliver();
  void Fail(absl::Status status);

  UniqueFd socket_;
  absl::Status status_;
  BackendCounters counters_;
  std::string out_;
  size_t sent_ = 0;  // of out_
  std::string in_;   // received and not yet parsed from parsed_ to filled_
  size_t parsed_ = 0;
  size_t filled_ = 0;
  std::deque<Pending> pending_;
};

}  // namespace verbena::bench
