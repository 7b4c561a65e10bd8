// A ping-pong over TCP as a backend: messages of a read's and a write's size, and answers of
// theirs, with no store behind them. Reads return nothing that could be verified.
#pragma once

#include <string>

#include "bench/systems/socket_backend.h"

namespace verbena::bench {

// Bytes of the messages, both ways.
struct PingPongSizes {
  uint32_t read_request = 0;
  uint32_t read_answer = 0;
  uint32_t write_request = 0;
  uint32_t write_answer = 0;
};

class PingPongBackend final : public SocketBackend {
 public:
  PingPongBackend(UniqueFd socket, const PingPongSizes& sizes)
      : SocketBackend(std::move(socket)), sizes_(sizes) {}
  bool keeps_values() const override { return false; }

 protected:
  void AppendRead(std::string_view key, std::string& out) override;
  void AppendWrite(std::string_view key, std::string_view value, std::string& out) override;
  void AppendDelete(std::string_view key, std::string& out) override;
  absl::StatusOr<std::optional<Answer>> ParseRead(std::string_view bytes) override;
  absl::StatusOr<std::optional<Answer>> ParseWrite(std::string_view bytes) override;
  absl::StatusOr<std::optional<Answer>> ParseDelete(std::string_view bytes) override;

 private:
  const PingPongSizes sizes_;
};

}  // namespace verbena::bench
