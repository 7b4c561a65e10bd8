// Redis (RESP) and memcached (text and meta protocol) as backends.
#pragma once

#include <memory>
#include <string>

#include "bench/systems/socket_backend.h"

namespace verbena::bench {

class RedisBackend final : public SocketBackend {
 public:
  using SocketBackend::SocketBackend;

 protected:
  void AppendRead(std::string_view key, std::string& out) override;
  void AppendWrite(std::string_view key, std::string_view value, std::string& out) override;
  void AppendDelete(std::string_view key, std::string& out) override;
  absl::StatusOr<std::optional<Answer>> ParseRead(std::string_view bytes) override;
  absl::StatusOr<std::optional<Answer>> ParseWrite(std::string_view bytes) override;
  absl::StatusOr<std::optional<Answer>> ParseDelete(std::string_view bytes) override;
};

class MemcachedBackend final : public SocketBackend {
 public:
  using SocketBackend::SocketBackend;

 protected:
  void AppendRead(std::string_view key, std::string& out) override;
  void AppendWrite(std::string_view key, std::string_view value, std::string& out) override;
  void AppendDelete(std::string_view key, std::string& out) override;
  absl::StatusOr<std::optional<Answer>> ParseRead(std::string_view bytes) override;
  absl::StatusOr<std::optional<Answer>> ParseWrite(std::string_view bytes) override;
  absl::StatusOr<std::optional<Answer>> ParseDelete(std::string_view bytes) override;
};

// The meta protocol of memcached 1.6 and later.
class MemcachedMetaBackend final : public SocketBackend {
 public:
  using SocketBackend::SocketBackend;

 protected:
  void AppendRead(std::string_view key, std::string& out) override;
  void AppendWrite(std::string_view key, std::string_view value, std::string& out) override;
  void AppendDelete(std::string_view key, std::string& out) override;
  absl::StatusOr<std::optional<Answer>> ParseRead(std::string_view bytes) override;
  absl::StatusOr<std::optional<Answer>> ParseWrite(std::string_view bytes) override;
  absl::StatusOr<std::optional<Answer>> ParseDelete(std::string_view bytes) override;
};

}  // namespace verbena::bench
