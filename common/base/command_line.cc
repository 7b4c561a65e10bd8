#include "common/base/command_line.h"

#include <gflags/gflags.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/macros.h"
#include "common/base/text.h"

namespace verbena {
namespace {

// Deep enough for any purpose, and a file that names itself ends.
constexpr int kMaxFileDepth = 10;

struct Flag {
  std::string name;  // as gflags knows it
  std::string value;
};

// A flag by the name that stands on the command line.
bool FindFlag(std::string_view written, gflags::CommandLineFlagInfo* info) {
  std::string name(written);
  std::replace(name.begin(), name.end(), '-', '_');
  return gflags::GetCommandLineFlagInfo(name.c_str(), info);
}

class Parser {
 public:
  explicit Parser(std::string_view known_flags) : known_flags_(known_flags) {}

  absl::Status Take(std::vector<std::string> args);
  absl::Status SetAll() const;
  std::vector<std::string> TakeOperands() { return std::move(operands_); }

 private:
  // `next`: the argument behind, which may be the flag's value; nullptr if there is none.
  absl::Status TakeFlag(std::string_view arg, const std::string* next, bool* took_next, int depth);
  absl::Status TakeFile(const std::string& path, int depth);
  absl::Status Unknown(std::string_view arg) const;

  std::string_view known_flags_;
  std::vector<Flag> flags_;
  std::vector<std::string> operands_;
};

absl::Status Parser::Take(std::vector<std::string> args) {
  bool flags_ended = false;
  for (size_t i = 0; i < args.size(); ++i) {
    std::string& arg = args[i];
    if (!flags_ended && arg == "--") {
      flags_ended = true;
    } else if (flags_ended || arg.size() < 2 || arg[0] != '-') {
      operands_.push_back(std::move(arg));
    } else {
      bool took_next = false;
      VERBENA_RETURN_IF_ERROR(
          TakeFlag(arg, i + 1 < args.size() ? &args[i + 1] : nullptr, &took_next, 0));
      if (took_next) ++i;
    }
  }
  return absl::OkStatus();
}

absl::Status Parser::TakeFlag(std::string_view arg, const std::string* next, bool* took_next,
                              int depth) {
  const std::string_view body = arg.substr(arg.starts_with("--") ? 2 : 1);
  const size_t equals = body.find('=');
  const bool has_value = equals != std::string_view::npos;
  const std::string_view written = body.substr(0, equals);
  gflags::CommandLineFlagInfo info;
  if (!FindFlag(written, &info)) {
    if (!has_value && written.starts_with("no") && FindFlag(written.substr(2), &info) &&
        info.type == "bool") {
      flags_.push_back({info.name, "false"});
      return absl::OkStatus();
    }
    return Unknown(arg.substr(0, arg.find('=')));
  }
  Flag flag{info.name, {}};
  if (has_value) {
    flag.value = body.substr(equals + 1);
  } else if (info.type == "bool") {
    flag.value = "true";
  } else if (next != nullptr) {
    flag.value = *next;
    *took_next = true;
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("--", info.name, " needs a value: --", info.name, "=..."));
  }
  if (info.name != "flagfile") {
    flags_.push_back(std::move(flag));
    return absl::OkStatus();
  }
  for (const absl::string_view path : absl::StrSplit(flag.value, ',')) {
    VERBENA_RETURN_IF_ERROR(TakeFile(std::string(path), depth + 1));
  }
  return absl::OkStatus();
}

absl::Status Parser::TakeFile(const std::string& path, int depth) {
  if (depth > kMaxFileDepth) {
    return absl::InvalidArgumentError(
        absl::StrCat("--flagfile=", path, ": the files name each other"));
  }
  std::ifstream file(path);
  if (!file) {
    return absl::InvalidArgumentError(
        absl::StrCat("--flagfile=", path, " cannot be read: ", std::strerror(errno)));
  }
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const std::string_view text = ToStd(absl::StripAsciiWhitespace(line));
    if (text.empty() || text.front() == '#') continue;
    absl::Status status =
        text.size() < 2 || text.front() != '-'
            ? absl::InvalidArgumentError(absl::StrCat("'", ToAbsl(text), "' is no flag"))
            : TakeFlag(text, nullptr, nullptr, depth);
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ", line ", number, ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

absl::Status Parser::Unknown(std::string_view arg) const {
  std::string text = absl::StrCat("unknown flag ", ToAbsl(arg));
  if (!known_flags_.empty()) absl::StrAppend(&text, "; there are ", ToAbsl(known_flags_));
  absl::StrAppend(&text, ". (An operand that begins with '-' goes behind ' -- '.)");
  return absl::InvalidArgumentError(text);
}

absl::Status Parser::SetAll() const {
  for (const Flag& flag : flags_) {
    if (!gflags::SetCommandLineOption(flag.name.c_str(), flag.value.c_str()).empty()) continue;
    const gflags::CommandLineFlagInfo info = gflags::GetCommandLineFlagInfoOrDie(flag.name.c_str());
    const std::string& type = info.type;
    const char* wanted = type == "bool"          ? "true or false"
                         : type == "string"      ? "another text"
                         : type == "double"      ? "a number"
                         : type.starts_with('u') ? "a whole number that is not negative"
                                                 : "a whole number";
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag.name, "=", flag.value, " is not allowed: it must be ", wanted,
                     info.description.empty() ? "" : absl::StrCat(" (", info.description, ")")));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ParseCommandLine(std::vector<std::string> args,
                                                          std::string_view known_flags) {
  Parser parser(known_flags);
  VERBENA_RETURN_IF_ERROR(parser.Take(std::move(args)));
  VERBENA_RETURN_IF_ERROR(parser.SetAll());
  return parser.TakeOperands();
}

}  // namespace verbena
