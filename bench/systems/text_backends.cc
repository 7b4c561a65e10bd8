#include "bench/systems/text_backends.h"

#include <charconv>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"

namespace verbena::bench {
namespace {

constexpr std::string_view kEol = "\r\n";

// The first line of `bytes` without its end; nullopt if the end has not come yet.
std::optional<std::string_view> FirstLine(std::string_view bytes) {
  const size_t end = bytes.find(kEol);
  if (end == std::string_view::npos) return std::nullopt;
  return bytes.substr(0, end);
}

void AppendNumber(size_t number, std::string& out) {
  char digits[20];
  const char* const end = std::to_chars(digits, digits + sizeof(digits), number).ptr;
  out.append(digits, static_cast<size_t>(end - digits));
}

// All of `text` as a number of bytes; nullopt if it is none.
std::optional<size_t> ParseLength(std::string_view text) {
  size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

absl::Status Nonsense(std::string_view line) {
  return absl::UnavailableError(absl::StrCat("unexpected answer: ", ToAbsl(line.substr(0, 100))));
}

void AppendBulk(std::string_view text, std::string& out) {
  out += '$';
  AppendNumber(text.size(), out);
  out += kEol;
  out += text;
  out += kEol;
}

}  // namespace

void RedisBackend::AppendRead(std::string_view key, std::string& out) {
  out += "*2\r\n$3\r\nGET\r\n";
  AppendBulk(key, out);
}

void RedisBackend::AppendWrite(std::string_view key, std::string_view value, std::string& out) {
  out += "*3\r\n$3\r\nSET\r\n";
  AppendBulk(key, out);
  AppendBulk(value, out);
}

absl::StatusOr<std::optional<SocketBackend::Answer>> RedisBackend::ParseRead(
    std::string_view bytes) {
  const auto line = FirstLine(bytes);
  if (!line.has_value()) return std::nullopt;
  Answer answer;
  answer.size = line->size() + kEol.size();
  if (*line == "$-1") {
    answer.status = absl::NotFoundError("no such key");
    return answer;
  }
  if (!line->empty() && line->front() == '-') {
    answer.status = absl::InternalError(ToAbsl(*line));
    return answer;
  }
  const auto length =
      line->empty() || line->front() != '$' ? std::nullopt : ParseLength(line->substr(1));
  if (!length.has_value()) return Nonsense(*line);
  if (bytes.size() - answer.size < *length + kEol.size()) return std::nullopt;
  answer.value = bytes.substr(answer.size, *length);
  answer.size += *length + kEol.size();
  return answer;
}

absl::StatusOr<std::optional<SocketBackend::Answer>> RedisBackend::ParseWrite(
    std::string_view bytes) {
  const auto line = FirstLine(bytes);
  if (!line.has_value()) return std::nullopt;
  Answer answer;
  answer.size = line->size() + kEol.size();
  if (line->empty() || (line->front() != '+' && line->front() != '-')) return Nonsense(*line);
  if (line->front() == '-') answer.status = absl::InternalError(ToAbsl(*line));
  return answer;
}

void MemcachedBackend::AppendRead(std::string_view key, std::string& out) {
  out += "get ";
  out += key;
  out += kEol;
}

void MemcachedBackend::AppendWrite(std::string_view key, std::string_view value, std::string& out) {
  out += "set ";
  out += key;
  out += " 0 0 ";
  AppendNumber(value.size(), out);
  out += kEol;
  out += value;
  out += kEol;
}

absl::StatusOr<std::optional<SocketBackend::Answer>> MemcachedBackend::ParseRead(
    std::string_view bytes) {
  constexpr std::string_view kEnd = "END\r\n";
  const auto line = FirstLine(bytes);
  if (!line.has_value()) return std::nullopt;
  Answer answer;
  answer.size = line->size() + kEol.size();
  if (*line == "END") {
    answer.status = absl::NotFoundError("no such key");
    return answer;
  }
  if (line->substr(0, 6) != "VALUE ") {  // ERROR, CLIENT_ERROR ..., SERVER_ERROR ...
    if (line->find("ERROR") == std::string_view::npos) return Nonsense(*line);
    answer.status = absl::InternalError(ToAbsl(*line));
    return answer;
  }
  const auto length = ParseLength(line->substr(line->rfind(' ') + 1));
  if (!length.has_value()) return Nonsense(*line);
  if (bytes.size() - answer.size < *length + kEol.size() + kEnd.size()) return std::nullopt;
  answer.value = bytes.substr(answer.size, *length);
  answer.size += *length + kEol.size() + kEnd.size();
  return answer;
}

absl::StatusOr<std::optional<SocketBackend::Answer>> MemcachedBackend::ParseWrite(
    std::string_view bytes) {
  const auto line = FirstLine(bytes);
  if (!line.has_value()) return std::nullopt;
  Answer answer;
  answer.size = line->size() + kEol.size();
  if (*line != "STORED") answer.status = absl::InternalError(ToAbsl(*line));
  return answer;
}

}  // namespace verbena::bench
