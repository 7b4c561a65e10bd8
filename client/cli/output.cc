#include "client/cli/output.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/sizes.h"

namespace verbena::cli {
namespace {

using Json = nlohmann::ordered_json;

void AddLines(const Json& object, const std::string& prefix, std::string* out) {
  for (const auto& [name, value] : object.items()) {
    const std::string path = prefix.empty() ? name : absl::StrCat(prefix, ".", name);
    if (value.is_structured()) {
      AddLines(value, path, out);
      continue;
    }
    std::string text = value.is_string() ? EscapedField(value.get<std::string>()) : value.dump();
    if (value.is_number_unsigned() && name.ends_with("bytes") && value.get<uint64_t>() >= kKiB) {
      absl::StrAppend(&text, "  (", FormatSize(value.get<uint64_t>()), ")");
    }
    absl::StrAppendFormat(out, "%-44s %s\n", EscapedField(path), text);
  }
}

}  // namespace

absl::Status WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EPIPE) return absl::UnavailableError("the reader of standard output has gone");
    return absl::InternalError(
        absl::StrCat("cannot write to standard output: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadAll(int fd, uint64_t limit) {
  constexpr size_t kPiece = size_t{64} * 1024;
  std::string bytes;
  size_t used = 0;
  while (true) {
    if (bytes.size() - used < kPiece) bytes.resize(std::max(2 * bytes.size(), kPiece));
    const ssize_t got = read(fd, &bytes[used], bytes.size() - used);
    if (got == 0) break;
    if (got < 0) {
      if (errno == EINTR) continue;
      return absl::InternalError(
          absl::StrCat("cannot read standard input: ", std::strerror(errno)));
    }
    used += static_cast<size_t>(got);
    if (used > limit) {
      return absl::ResourceExhaustedError(
          absl::StrCat("standard input has more than ", FormatSize(limit),
                       ", the most that any server takes as a value"));
    }
  }
  bytes.resize(used);
  return bytes;
}

std::string EscapedField(std::string_view bytes) {
  const bool text = IsUtf8(bytes);
  std::string out;
  out.reserve(bytes.size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto byte = static_cast<uint8_t>(bytes[i]);
    const auto next = static_cast<uint8_t>(i + 1 < bytes.size() ? bytes[i + 1] : 0);
    // U+0080 to U+009F are control characters, too: both of their bytes are written as numbers.
    const bool high_control = text && byte == 0xc2 && next < 0xa0;
    if (byte == '\\') {
      out += "\\\\";
    } else if (byte == '\t') {
      out += "\\t";
    } else if (byte == '\n') {
      out += "\\n";
    } else if (byte == '\r') {
      out += "\\r";
    } else if (high_control) {
      absl::StrAppendFormat(&out, "\\x%02x\\x%02x", byte, next);
      ++i;
    } else if (byte < 0x20 || byte == 0x7f || (byte >= 0x80 && !text)) {
      absl::StrAppendFormat(&out, "\\x%02x", byte);
    } else {
      out += bytes[i];
    }
  }
  return out;
}

std::string InfoTable(std::string_view json) {
  const Json info = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!info.is_object()) return std::string(json);
  std::string out;
  AddLines(info, "", &out);
  return out;
}

}  // namespace verbena::cli
