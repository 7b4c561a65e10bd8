#include "bench/systems/text_backends.h"

#include <charconv>

#include "absl/strings/str_cat.h"
#include "common/base/macros.h"
#include "common/base/sizes.h"
#include "common/base/text.h"

namespace verbena::bench {
namespace {

constexpr std::string_view kEol = "\r\n";
// No answer has a longer line, and none a longer value: a peer that goes on without an end, or that
// announces what will never come, is not waited for. (1 GiB is what --value_size allows.)
constexpr size_t kMaxLine = 64 * kKiB;
constexpr size_t kMaxValue = kGiB;

// The first line of `bytes` without its end; nullopt if the end has not come yet.
absl::StatusOr<std::optional<std::string_view>> FirstLine(std::string_view bytes) {
  const size_t end = bytes.substr(0, kMaxLine).find(kEol);
  if (end != std::string_view::npos) return bytes.substr(0, end);
  if (bytes.size() < kMaxLine) return std::nullopt;
  return absl::UnavailableError("an answer whose line does not end");
}

void AppendNumber(size_t number, std::string& out) {
  char digits[20];
  const char* const end = std::to_chars(digits, digits + sizeof(digits), number).ptr;
  out.append(digits, static_cast<size_t>(end - digits));
}

// All of `text` as the number of bytes of a value; nullopt if it is none.
std::optional<size_t> ParseLength(std::string_view text) {
  size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > kMaxValue) {
    return std::nullopt;
  }
  return value;
}

absl::Status Nonsense(std::string_view line) {
  return absl::UnavailableError(absl::StrCat("unexpected answer: ", ToAbsl(line.substr(0, 100))));
}

// The answer whose value of `length` bytes stands behind a first line of `answer.size` bytes and
// has `tail` behind it; nullopt if it is not complete yet.
absl::StatusOr<std::optional<SocketAnswer>> WithValue(SocketAnswer answer, std::string_view bytes,
                                                      size_t length, std::string_view tail) {
  if (bytes.size() - answer.size < length + tail.size()) return std::nullopt;
  answer.value = bytes.substr(answer.size, length);
  if (bytes.substr(answer.size + length, tail.size()) != tail) {
    return absl::UnavailableError("a value that is longer than its answer says");
  }
  answer.size += length + tail.size();
  return answer;
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
  VERBENA_ASSIGN_OR_RETURN(const auto line, FirstLine(bytes));
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
  return WithValue(answer, bytes, *length, kEol);
}

absl::StatusOr<std::optional<SocketBackend::Answer>> RedisBackend::ParseWrite(
    std::string_view bytes) {
  VERBENA_ASSIGN_OR_RETURN(const auto line, FirstLine(bytes));
  if (!line.has_value()) return std::nullopt;
  Answer answer;
  answer.size = line->size() + kEol.size();
  if (line->empty() || (line->front() != '+' && line->front() != '-')) return Nonsense(*line);
  if (line->front() == '-') answer.status = absl::InternalError(ToAbsl(*line));
  return answer;
}

void RedisBackend::AppendDelete(std::string_view key, std::string& out) {
  out += "*2\r\n$3\r\nDEL\r\n";
  AppendBulk(key, out);
}

absl::StatusOr<std::optional<SocketBackend::Answer>> RedisBackend::ParseDelete(
    std::string_view bytes) {
  VERBENA_ASSIGN_OR_RETURN(const auto line, FirstLine(bytes));
  if (!line.has_value()) return std::nullopt;
  Answer answer;
  answer.size = line->size() + kEol.size();
  if (*line == ":0") {
    answer.status = absl::NotFoundError("no such key");
  } else if (!line->empty() && line->front() == '-') {
    answer.status = absl::InternalError(ToAbsl(*line));
  } else if (*line != ":1") {
    return Nonsense(*line);
  }
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
  constexpr std::string_view kTail = "\r\nEND\r\n";
  VERBENA_ASSIGN_OR_RETURN(const auto line, FirstLine(bytes));
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
  return WithValue(answer, bytes, *length, kTail);
}

absl::StatusOr<std::optional<SocketBackend::Answer>> MemcachedBackend::ParseWrite(
    std::string_view bytes) {
  VERBENA_ASSIGN_OR_RETURN(const auto line, FirstLine(bytes));
  if (!line.has_value()) return std::nullopt;
  Answer answer;
  answer.size = line->size() + kEol.size();
  if (*line != "STORED") answer.status = absl::InternalError(ToAbsl(*line));
  return answer;
}

void MemcachedBackend::AppendDelete(std::string_view key, std::string& out) {
  out += "delete ";
  out += key;
  out += kEol;
}

absl::StatusOr<std::optional<SocketBackend::Answer>> MemcachedBackend::ParseDelete(
    std::string_view bytes) {
  VERBENA_ASSIGN_OR_RETURN(const auto line, FirstLine(bytes));
  if (!line.has_value()) return std::nullopt;
  Answer answer;
  answer.size = line->size() + kEol.size();
  if (*line == "NOT_FOUND") {
    answer.status = absl::NotFoundError("no such key");
  } else if (*line != "DELETED") {
    answer.status = absl::InternalError(ToAbsl(*line));
  }
  return answer;
}

void MemcachedMetaBackend::AppendRead(std::string_view key, std::string& out) {
  out += "mg ";
  out += key;
  out += " v\r\n";
}

void MemcachedMetaBackend::AppendWrite(std::string_view key, std::string_view value,
                                       std::string& out) {
  out += "ms ";
  out += key;
  out += ' ';
  AppendNumber(value.size(), out);
  out += kEol;
  out += value;
  out += kEol;
}

void MemcachedMetaBackend::AppendDelete(std::string_view key, std::string& out) {
  out += "md ";
  out += key;
  out += kEol;
}

absl::StatusOr<std::optional<SocketBackend::Answer>> MemcachedMetaBackend::ParseRead(
    std::string_view bytes) {
  VERBENA_ASSIGN_OR_RETURN(const auto line, FirstLine(bytes));
  if (!line.has_value()) return std::nullopt;
  Answer answer;
  answer.size = line->size() + kEol.size();
  if (*line == "EN") {
    answer.status = absl::NotFoundError("no such key");
    return answer;
  }
  if (line->substr(0, 3) != "VA ") {
    if (line->find("ERROR") == std::string_view::npos) return Nonsense(*line);
    answer.status = absl::InternalError(ToAbsl(*line));
    return answer;
  }
  const auto length = ParseLength(line->substr(3));
  if (!length.has_value()) return Nonsense(*line);
  return WithValue(answer, bytes, *length, kEol);
}

absl::StatusOr<std::optional<SocketBackend::Answer>> MemcachedMetaBackend::ParseWrite(
    std::string_view bytes) {
  VERBENA_ASSIGN_OR_RETURN(const auto line, FirstLine(bytes));
  if (!line.has_value()) return std::nullopt;
  Answer answer;
  answer.size = line->size() + kEol.size();
  if (*line != "HD") answer.status = absl::InternalError(ToAbsl(*line));
  return answer;
}

absl::StatusOr<std::optional<SocketBackend::Answer>> MemcachedMetaBackend::ParseDelete(
    std::string_view bytes) {
  VERBENA_ASSIGN_OR_RETURN(const auto line, FirstLine(bytes));
  if (!line.has_value()) return std::nullopt;
  Answer answer;
  answer.size = line->size() + kEol.size();
  if (*line == "NF") {
    answer.status = absl::NotFoundError("no such key");
  } else if (*line != "HD") {
    answer.status = absl::InternalError(ToAbsl(*line));
  }
  return answer;
}

}  // namespace verbena::bench
