// Lines of JSON over TCP, between a coordinator and its agents.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/net_address.h"
#include "common/base/unique_fd.h"
#include "nlohmann/json.hpp"

namespace verbena::bench {

// One connection. Each message is one JSON object on a line of its own. One thread at a time may
// read and one may write.
class LineSocket {
 public:
  // The longest line that is accepted; a result with six kinds of full histograms has a few MB.
  static constexpr size_t kMostBytes = size_t{64} << 20;

  explicit LineSocket(UniqueFd socket) : socket_(std::move(socket)) {}

  // Unavailable with the address and the reason if there is nobody.
  static absl::StatusOr<LineSocket> Connect(const std::string& address,
                                            std::chrono::milliseconds timeout);

  // Blocks while the other side does not take it, for `timeout` at most.
  absl::Status Write(const nlohmann::json& message,
                     std::chrono::milliseconds timeout = std::chrono::seconds(30));
  // The next message: nullopt if none has come when `timeout` is over. Unavailable: the other side
  // has closed the connection, or it is lost; InvalidArgument: what came is no line of an object,
  // or longer than kMostBytes.
  absl::StatusOr<std::optional<nlohmann::json>> Read(std::chrono::milliseconds timeout);

 private:
  absl::StatusOr<std::optional<nlohmann::json>> TakeLine();

  UniqueFd socket_;
  std::string received_;
  size_t searched_ = 0;  // bytes of received_ in which there is no end of a line
};

// Listens on a TCP address.
class LineListener {
 public:
  static absl::StatusOr<LineListener> Listen(const std::string& address);
  // With the port that was chosen if it was 0.
  const NetAddress& address() const { return address_; }
  // The next connection, or nullopt when `timeout` is over.
  absl::StatusOr<std::optional<LineSocket>> Accept(std::chrono::milliseconds timeout);

 private:
  LineListener(UniqueFd socket, NetAddress address)
      : socket_(std::move(socket)), address_(address) {}
  UniqueFd socket_;
  NetAddress address_;
};

}  // namespace verbena::bench
