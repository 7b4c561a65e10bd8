#include "bench/systems/pingpong_backend.h"

#include <algorithm>

#include "bench/baseline/tcp_target.h"

namespace verbena::bench {
namespace {

void AppendPing(uint32_t size, uint32_t answer, std::string& out) {
  const TcpPing ping = {std::max<uint32_t>(size, sizeof(TcpPing)), answer};
  out.append(reinterpret_cast<const char*>(&ping), sizeof(ping));
  out.append(ping.size - sizeof(ping), 'q');
}

std::optional<SocketAnswer> TakePong(std::string_view bytes, uint32_t size) {
  if (bytes.size() < size) return std::nullopt;
  SocketAnswer answer;
  answer.size = size;
  answer.value = bytes.substr(0, size);
  return answer;
}

}  // namespace

void PingPongBackend::AppendRead(std::string_view /*key*/, std::string& out) {
  AppendPing(sizes_.read_request, sizes_.read_answer, out);
}

void PingPongBackend::AppendWrite(std::string_view /*key*/, std::string_view /*value*/,
                                  std::string& out) {
  AppendPing(sizes_.write_request, sizes_.write_answer, out);
}

void PingPongBackend::AppendDelete(std::string_view /*key*/, std::string& out) {
  AppendPing(sizes_.read_request, sizes_.write_answer, out);
}

absl::StatusOr<std::optional<SocketBackend::Answer>> PingPongBackend::ParseRead(
    std::string_view bytes) {
  return TakePong(bytes, sizes_.read_answer);
}

absl::StatusOr<std::optional<SocketBackend::Answer>> PingPongBackend::ParseWrite(
    std::string_view bytes) {
  return TakePong(bytes, sizes_.write_answer);
}

absl::StatusOr<std::optional<SocketBackend::Answer>> PingPongBackend::ParseDelete(
    std::string_view bytes) {
  return TakePong(bytes, sizes_.write_answer);
}

}  // namespace verbena::bench
