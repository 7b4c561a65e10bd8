#include "bench/workload/trace.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bench/workload/key_names.h"
#include "bench/workload/sizes.h"
#include "common/base/macros.h"
#include "common/base/text.h"
#include "common/wire/messages.h"

namespace verbena::bench {
namespace {

constexpr size_t kFields = 7;
// Timestamps may be of any epoch, also in milliseconds; what is more is no time.
constexpr double kMaxSeconds = 1e13;
// Longer ones no server takes.
constexpr uint64_t kMaxTtlSeconds = wire::kMaxTtlMillis / 1000;
static_assert(kMaxTtlSeconds <= UINT32_MAX, "fits TraceRequest::ttl_seconds");

struct TraceName {
  std::string_view name;
  TraceOp op;
};
constexpr std::array<TraceName, 11> kTraceNames = {{
    {"get", TraceOp::kRead},
    {"gets", TraceOp::kRead},
    {"set", TraceOp::kStore},
    {"add", TraceOp::kAdd},
    {"replace", TraceOp::kReplace},
    {"cas", TraceOp::kReplace},
    {"append", TraceOp::kExtend},
    {"prepend", TraceOp::kExtend},
    {"delete", TraceOp::kDelete},
    {"incr", TraceOp::kCount},
    {"decr", TraceOp::kCount},
}};

using Fields = std::array<std::string_view, kFields>;

absl::Status BadField(std::string_view what, std::string_view text, std::string_view allowed) {
  constexpr size_t kShown = 40;
  return absl::InvalidArgumentError(
      absl::StrCat(ToAbsl(what), " '", ToAbsl(PrintableText(text.substr(0, kShown))),
                   text.size() > kShown ? "...' is no " : "' is no ", ToAbsl(allowed)));
}

// Takes a quoted field and what ends it off `*rest`; `*unquoted` is what the view is of where there
// were quotes in it.
absl::Status TakeQuoted(std::string_view* rest, std::string* unquoted, std::string_view* field) {
  unquoted->clear();
  for (size_t at = 1; at < rest->size(); ++at) {
    if ((*rest)[at] != '"') {
      unquoted->push_back((*rest)[at]);
    } else if (at + 1 < rest->size() && (*rest)[at + 1] == '"') {
      unquoted->push_back('"');
      ++at;
    } else if (at + 1 == rest->size() || (*rest)[at + 1] == ',') {
      rest->remove_prefix(at + 1);
      *field = *unquoted;
      return absl::OkStatus();
    } else {
      return absl::InvalidArgumentError("something follows a quoted field without a comma");
    }
  }
  return absl::InvalidArgumentError("a quote has no end");
}

// `unquoted` holds the contents of quoted fields.
absl::Status SplitFields(std::string_view line, std::array<std::string, kFields>* unquoted,
                         Fields* fields) {
  size_t count = 0;
  for (std::string_view rest = line;;) {
    std::string_view field;
    if (!rest.empty() && rest.front() == '"' && count < kFields) {
      VERBENA_RETURN_IF_ERROR(TakeQuoted(&rest, &(*unquoted)[count], &field));
    } else {
      field = rest.substr(0, rest.find(','));
      rest.remove_prefix(field.size());
    }
    if (count < kFields) (*fields)[count] = field;
    ++count;
    if (rest.empty()) break;
    rest.remove_prefix(1);  // the comma
  }
  if (count == kFields) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(count, count == 1 ? " field instead of " : " fields instead of ", kFields));
}

absl::Status TakeSize(std::string_view what, std::string_view text, uint64_t most, uint64_t* size) {
  if (absl::SimpleAtoi(ToAbsl(text), size) && *size <= most) return absl::OkStatus();
  return BadField(what, text, absl::StrCat("number from 0 to ", most));
}

}  // namespace

absl::Status ParseTraceLine(std::string_view line, TraceRequest* request) {
  if (line.size() > kMaxTraceLine) {
    return absl::InvalidArgumentError(
        absl::StrCat("it is longer than ", kMaxTraceLine, " characters"));
  }
  std::array<std::string, kFields> unquoted;
  Fields fields;
  VERBENA_RETURN_IF_ERROR(SplitFields(line, &unquoted, &fields));
  const auto [timestamp, name, key_bytes, value_bytes, client, operation, ttl] = fields;
  // (Written so that no NaN passes.)
  if (!absl::SimpleAtod(ToAbsl(timestamp), &request->seconds) ||
      !(request->seconds >= 0 && request->seconds <= kMaxSeconds)) {
    return BadField("timestamp", timestamp, "number of seconds");
  }
  if (name.empty() || name.size() > KeyNames::kMaxKeySize) {
    return BadField("key", name,
                    absl::StrCat("name of 1 to ", KeyNames::kMaxKeySize, " characters"));
  }
  uint64_t key_size = 0;
  VERBENA_RETURN_IF_ERROR(TakeSize("key size", key_bytes, KeyNames::kMaxKeySize, &key_size));
  VERBENA_RETURN_IF_ERROR(
      TakeSize("value size", value_bytes, Sizes::kMaxSize, &request->value_size));
  const std::string_view verb = ToStd(absl::StripAsciiWhitespace(ToAbsl(operation)));
  const auto* const known =
      std::find_if(kTraceNames.begin(), kTraceNames.end(),
                   [verb](const TraceName& candidate) { return candidate.name == verb; });
  if (known == kTraceNames.end()) {
    return BadField("operation", operation,
                    "get, gets, set, add, replace, cas, append, prepend, incr, decr or delete");
  }
  request->op = known->op;
  uint64_t seconds = 0;
  VERBENA_RETURN_IF_ERROR(TakeSize("TTL", ttl, kMaxTtlSeconds, &seconds));
  request->ttl_seconds = static_cast<uint32_t>(seconds);
  request->key.assign(key_size > name.size() ? key_size - name.size() : 0, '0');
  request->key += name;
  return absl::OkStatus();
}

}  // namespace verbena::bench
