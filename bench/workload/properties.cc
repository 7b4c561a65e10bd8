#include "bench/workload/properties.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/macros.h"
#include "common/base/text.h"

namespace verbena::bench {
namespace {

constexpr std::string_view kBlanks = " \t\f";

bool IsBlank(char c) { return kBlanks.find(c) != std::string_view::npos; }

std::string_view WithoutLeadingBlanks(std::string_view text) {
  const size_t at = text.find_first_not_of(kBlanks);
  return at == std::string_view::npos ? std::string_view() : text.substr(at);
}

bool GoesOn(std::string_view line) {
  const size_t last = line.find_last_not_of('\\');
  const size_t slashes = line.size() - (last == std::string_view::npos ? 0 : last + 1);
  return slashes % 2 == 1;
}

// Natural lines joined to logical ones.
class LogicalLines {
 public:
  explicit LogicalLines(std::string_view text) : rest_(text) {}

  // The next one that is no comment and not empty; `number` is that of its first natural line.
  bool Next(std::string* line, int* number) {
    line->clear();
    bool begun = false;
    while (!rest_.empty()) {
      std::string_view natural = WithoutLeadingBlanks(TakeNatural());
      if (!begun && (natural.empty() || natural[0] == '#' || natural[0] == '!')) continue;
      if (!begun) *number = number_;
      begun = true;
      const bool more = GoesOn(natural);
      if (more) natural.remove_suffix(1);
      line->append(natural);
      if (!more) return true;
    }
    return begun;
  }

 private:
  std::string_view TakeNatural() {
    ++number_;
    const size_t end = rest_.find_first_of("\r\n");
    const std::string_view line = rest_.substr(0, end);
    if (end == std::string_view::npos) {
      rest_ = {};
    } else {
      const bool both = rest_.substr(end, 2) == "\r\n";
      rest_.remove_prefix(end + (both ? 2 : 1));
    }
    return line;
  }

  std::string_view rest_;
  int number_ = 0;
};

void AppendUtf8(uint32_t code, std::string* out) {
  if (code < 0x80) {
    out->push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out->push_back(static_cast<char>(0xc0 | code >> 6));
    out->push_back(static_cast<char>(0x80 | (code & 0x3f)));
  } else {
    out->push_back(static_cast<char>(0xe0 | code >> 12));
    out->push_back(static_cast<char>(0x80 | (code >> 6 & 0x3f)));
    out->push_back(static_cast<char>(0x80 | (code & 0x3f)));
  }
}

// The text without its escapes; nullopt for a \u without four hexadecimal digits.
std::optional<std::string> Unescape(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out.push_back(text[i]);
      continue;
    }
    if (++i == text.size()) break;
    switch (text[i]) {
      case 't':
        out.push_back('\t');
        break;
      case 'n':
        out.push_back('\n');
        break;
      case 'r':
        out.push_back('\r');
        break;
      case 'f':
        out.push_back('\f');
        break;
      case 'u': {
        uint32_t code = 0;
        const std::string_view digits = text.substr(i + 1, 4);
        if (digits.size() != 4 ||
            !std::all_of(digits.begin(), digits.end(),
                         [](unsigned char c) { return std::isxdigit(c) != 0; }) ||
            !absl::SimpleHexAtoi(ToAbsl(digits), &code)) {
          return std::nullopt;
        }
        AppendUtf8(code, &out);
        i += 4;
        break;
      }
      default:
        out.push_back(text[i]);
    }
  }
  return out;
}

// Where the name ends: at the first '=', ':' or blank that no backslash stands before.
size_t EndOfName(std::string_view line) {
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\\') {
      ++i;
    } else if (line[i] == '=' || line[i] == ':' || IsBlank(line[i])) {
      return i;
    }
  }
  return line.size();
}

std::string_view ValueBehind(std::string_view line) {
  line = WithoutLeadingBlanks(line);
  if (!line.empty() && (line[0] == '=' || line[0] == ':')) {
    line = WithoutLeadingBlanks(line.substr(1));
  }
  return line;
}

std::string Trimmed(std::string text) {
  while (!text.empty() && IsBlank(text.back())) text.pop_back();
  return text;
}

// Edits between two names: Levenshtein's, and the exchange of neighbours.
size_t Edits(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> edits(a.size() + 1, std::vector<size_t>(b.size() + 1));
  const auto same = [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) ==
           std::tolower(static_cast<unsigned char>(y));
  };
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        edits[i][j] = i + j;
        continue;
      }
      edits[i][j] = std::min({edits[i - 1][j] + 1, edits[i][j - 1] + 1,
                              edits[i - 1][j - 1] + (same(a[i - 1], b[j - 1]) ? 0 : 1)});
      if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1])) {
        edits[i][j] = std::min(edits[i][j], edits[i - 2][j - 2] + 1);
      }
    }
  }
  return edits[a.size()][b.size()];
}

}  // namespace

absl::Status Properties::AddText(std::string_view text, const std::string& source) {
  asked_for_ = true;
  LogicalLines lines(text);
  std::string line;
  for (int number = 0; lines.Next(&line, &number);) {
    const std::string from = absl::StrCat(source, ": line ", number);
    const size_t end = EndOfName(line);
    const auto name = Unescape(std::string_view(line).substr(0, end));
    const auto value = Unescape(ValueBehind(std::string_view(line).substr(end)));
    if (!name.has_value() || !value.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat(from, ": \\u must be followed by four hexadecimal digits"));
    }
    if (name->empty()) {
      return absl::InvalidArgumentError(absl::StrCat(from, ": there is no name before the value"));
    }
    entries_[*name] = {Trimmed(*value), from};
  }
  return absl::OkStatus();
}

absl::Status Properties::AddFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file.is_open()) file.peek();  // of a folder it fails
  if (!file.is_open() || file.bad()) {
    return absl::InvalidArgumentError(absl::StrCat("-P ", path, ": the file cannot be read"));
  }
  file.clear();
  text << file.rdbuf();
  return AddText(text.str(), path);
}

absl::Status Properties::AddAssignment(std::string_view text) {
  asked_for_ = true;
  const size_t end = text.find('=');
  if (end == 0 || end == std::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("-p ", ToAbsl(text), " is not allowed: it must be name=value"));
  }
  entries_[std::string(text.substr(0, end))] = {std::string(text.substr(end + 1)),
                                                absl::StrCat("-p ", ToAbsl(text))};
  return absl::OkStatus();
}

const Properties::Entry* Properties::Find(const std::string& name) const {
  const auto at = entries_.find(name);
  return at == entries_.end() ? nullptr : &at->second;
}

absl::StatusOr<Properties> TakeProperties(std::vector<std::string>* args) {
  std::vector<std::string> rest;
  std::vector<std::string> files;
  std::vector<std::string> assignments;
  for (size_t i = 0; i < args->size(); ++i) {
    const std::string& arg = (*args)[i];
    if (arg == "--") {
      rest.insert(rest.end(), args->begin() + static_cast<ptrdiff_t>(i), args->end());
      break;
    }
    const bool file = arg == "-P";
    if (!file && arg != "-p") {
      rest.push_back(arg);
      continue;
    }
    if (++i == args->size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          arg, " is not complete: it must be followed by ", file ? "a file" : "name=value"));
    }
    std::string operand = (*args)[i];
    (file ? files : assignments).push_back(std::move(operand));
  }
  *args = std::move(rest);
  Properties properties;
  for (const std::string& path : files) VERBENA_RETURN_IF_ERROR(properties.AddFile(path));
  for (const std::string& text : assignments) {
    VERBENA_RETURN_IF_ERROR(properties.AddAssignment(text));
  }
  return properties;
}

std::string_view NearestName(std::string_view name, const std::vector<std::string_view>& known) {
  return *std::min_element(
      known.begin(), known.end(),
      [name](std::string_view a, std::string_view b) { return Edits(name, a) < Edits(name, b); });
}

}  // namespace verbena::bench
