#include "client/cli/commands.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "client/cli/output.h"
#include "common/base/macros.h"
#include "common/base/net_address.h"
#include "common/base/text.h"
#include "common/base/wait_notice.h"
#include "common/layout/item.h"
#include "verbena/connection.h"

namespace verbena::cli {
namespace {

using Json = nlohmann::ordered_json;

// A key in a message for people: quoted, with control characters and such escaped.
std::string Quoted(std::string_view key) {
  constexpr size_t kMost = 80;
  const absl::string_view shown = ToAbsl(key.substr(0, kMost));
  // A key that is no text must not reach a terminal, or JSON, as it is. Nor half of a character.
  return absl::StrCat(
      "'", IsUtf8(ToStd(shown)) ? absl::Utf8SafeCHexEscape(shown) : absl::CHexEscape(shown),
      key.size() > kMost ? "...'" : "'");
}

// A member with bytes: as text if it is text, else as NAME_base64.
void SetBytes(Json& object, const std::string& name, std::string_view bytes) {
  if (IsUtf8(bytes)) {
    object[name] = bytes;
  } else {
    object[name + "_base64"] = absl::Base64Escape(ToAbsl(bytes));
  }
}

// What bounds the waiting, for people.
std::string Bound(const Arguments& arguments) {
  return absl::StrCat("--timeout=", absl::FormatDuration(absl::FromChrono(arguments.timeout)));
}

// One run of a command: where it writes, and how errors are told.
class Session {
 public:
  explicit Session(const Arguments& arguments) : arguments_(arguments) {}

  ExitStatus Run();

 private:
  absl::Status Connect();
  // From here to the next Write (or the end) the server's answer is waited for.
  void AwaitAnswer();
  absl::Status Get();
  absl::Status Put();
  absl::Status Delete();
  absl::Status Take();
  absl::Status Add();
  absl::Status Append();
  absl::Status Expire();
  absl::Status Persist();
  absl::Status Ttl();
  absl::Status Scan();
  absl::Status Info();
  absl::Status Ping();
  absl::Status Dispatch();

  // Failures to write or read are told apart from those of the server.
  absl::Status Write(std::string_view bytes) {
    notice_.End();
    absl::Status status = WriteAll(STDOUT_FILENO, bytes);
    io_failed_ = !status.ok();
    return status;
  }
  absl::Status WriteLine(const std::string& text) { return Write(absl::StrCat(text, "\n")); }
  absl::Status WriteJson(const Json& json) { return WriteLine(json.dump()); }
  absl::Status WriteChange(const char* what, const ChangeResult& change);
  absl::Status WriteValue(std::string_view value, uint64_t version);
  absl::Status WriteItems(const std::vector<ScanItem>& items);
  // Tells whoever gave no limit that the default one has cut the answer off.
  absl::Status TellIfThereAreMore(const ScanRange& range);
  // The value that is named, or standard input into `*input`.
  absl::StatusOr<std::string_view> Value(std::string* input);
  ExitStatus ExitFor(const absl::Status& status) const;
  void Tell(const absl::Status& status, ExitStatus exit);

  const Arguments& arguments_;
  WaitNotice notice_{"verbena-cli"};
  std::unique_ptr<Connection> connection_;
  bool io_failed_ = false;
  uint64_t present_ = 0;  // the version that a condition was not true of
};

absl::Status Session::Connect() {
  // A host that there is not (at the moment) is a server that is not there.
  if (const auto found = NetAddress::Parse(arguments_.server); !found.ok()) {
    return absl::UnavailableError(
        absl::StrCat("--server=", arguments_.server, ": ", found.status().message()));
  }
  notice_.Begin(absl::StrCat("the server at ", arguments_.server, " to take the connection"),
                arguments_.timeout, Bound(arguments_));
  VERBENA_ASSIGN_OR_RETURN(connection_,
                           Connection::Connect(arguments_.server, ConnectionOptions(arguments_)));
  AwaitAnswer();
  return absl::OkStatus();
}

void Session::AwaitAnswer() {
  notice_.Begin(absl::StrCat("the answer of the server at ", arguments_.server), arguments_.timeout,
                Bound(arguments_));
}

absl::Status Session::Get() {
  VERBENA_RETURN_IF_ERROR(Connect());
  std::string value;
  uint64_t version = 0;
  VERBENA_RETURN_IF_ERROR(connection_->Get(arguments_.key, &value, &version));
  return WriteValue(value, version);
}

absl::Status Session::WriteValue(std::string_view value, uint64_t version) {
  if (arguments_.json) {
    Json json;
    SetBytes(json, "key", arguments_.key);
    SetBytes(json, "value", value);
    json["bytes"] = value.size();
    json["version"] = version;
    return WriteJson(json);
  }
  VERBENA_RETURN_IF_ERROR(Write(value));
  if (isatty(STDOUT_FILENO) == 1 && !value.empty() && value.back() != '\n') return Write("\n");
  return absl::OkStatus();
}

absl::StatusOr<std::string_view> Session::Value(std::string* input) {
  if (arguments_.value.has_value()) return *arguments_.value;
  if (isatty(STDIN_FILENO) == 1) {
    std::fputs("verbena-cli: type the value; it ends with Ctrl-D\n", stderr);
  }
  auto read = ReadAll(STDIN_FILENO, layout::kMaxValueSize);
  if (!read.ok()) {
    io_failed_ = absl::IsInternal(read.status());
    return read.status();
  }
  *input = *std::move(read);
  return *input;
}

absl::Status Session::Put() {
  std::string input;
  VERBENA_ASSIGN_OR_RETURN(const std::string_view value, Value(&input));
  VERBENA_RETURN_IF_ERROR(Connect());
  VERBENA_ASSIGN_OR_RETURN(
      const ChangeResult change,
      connection_->Put(arguments_.key, value,
                       {.condition = arguments_.condition, .ttl = arguments_.ttl}, &present_));
  return WriteChange(change.existed ? "replaced" : "created", change);
}

absl::Status Session::Delete() {
  VERBENA_RETURN_IF_ERROR(Connect());
  VERBENA_ASSIGN_OR_RETURN(const ChangeResult change,
                           connection_->Delete(arguments_.key, arguments_.condition, &present_));
  return WriteChange("deleted", change);
}

absl::Status Session::Take() {
  VERBENA_RETURN_IF_ERROR(Connect());
  std::string value;
  uint64_t version = 0;
  VERBENA_RETURN_IF_ERROR(connection_->GetAndDelete(arguments_.key, &value, &version));
  return WriteValue(value, version);
}

absl::Status Session::Add() {
  VERBENA_RETURN_IF_ERROR(Connect());
  VERBENA_ASSIGN_OR_RETURN(
      const ChangeResult change,
      connection_->Add(arguments_.key, arguments_.summand, arguments_.condition, &present_));
  if (!arguments_.json) return WriteLine(absl::StrCat(change.number));
  Json json;
  SetBytes(json, "key", arguments_.key);
  json["number"] = change.number;
  json["version"] = change.version;
  return WriteJson(json);
}

absl::Status Session::Append() {
  std::string input;
  VERBENA_ASSIGN_OR_RETURN(const std::string_view suffix, Value(&input));
  VERBENA_RETURN_IF_ERROR(Connect());
  VERBENA_ASSIGN_OR_RETURN(
      const ChangeResult change,
      connection_->Append(arguments_.key, suffix, arguments_.condition, &present_));
  return WriteChange(change.existed ? "appended" : "created", change);
}

absl::Status Session::Expire() {
  VERBENA_RETURN_IF_ERROR(Connect());
  VERBENA_ASSIGN_OR_RETURN(const ChangeResult change,
                           connection_->Expire(arguments_.key, *arguments_.ttl));
  return WriteChange(change.existed ? "replaced" : "set", change);
}

absl::Status Session::Persist() {
  VERBENA_RETURN_IF_ERROR(Connect());
  VERBENA_ASSIGN_OR_RETURN(const ChangeResult change, connection_->Persist(arguments_.key));
  return WriteChange(change.existed ? "removed" : "none", change);
}

absl::Status Session::Ttl() {
  VERBENA_RETURN_IF_ERROR(Connect());
  VERBENA_ASSIGN_OR_RETURN(const auto ttl, connection_->Ttl(arguments_.key));
  if (!arguments_.json) {
    return WriteLine(ttl.has_value() ? absl::StrCat(ttl->count(), "ms") : "none");
  }
  Json json;
  SetBytes(json, "key", arguments_.key);
  json["ttl_ms"] = ttl.has_value() ? Json(ttl->count()) : Json(nullptr);
  return WriteJson(json);
}

// In pages, each written before the next one is asked for: any number of keys fits.
absl::Status Session::Scan() {
  constexpr uint64_t kPage = 100;
  VERBENA_RETURN_IF_ERROR(Connect());
  const ScanArguments& scan = arguments_.scan;
  uint64_t left = scan.limit.value_or(ScanArguments::kDefaultLimit);
  if (left == 0) left = UINT64_MAX;
  std::string start = arguments_.key;
  ScanRange range{.after = scan.after, .prefix = scan.prefix, .keys_only = scan.keys_only};
  while (left > 0) {
    range.start = start;
    const uint64_t wanted = std::min(left, kPage);
    AwaitAnswer();
    std::vector<ScanItem> items;
    const absl::Status found = connection_->Scan(range, wanted, &items);
    VERBENA_RETURN_IF_ERROR(WriteItems(items));
    VERBENA_RETURN_IF_ERROR(found);
    if (items.size() < wanted) return absl::OkStatus();
    left -= items.size();
    start = std::move(items.back().key);
    range.after = true;
  }
  range.start = start;
  return scan.limit.has_value() ? absl::OkStatus() : TellIfThereAreMore(range);
}

absl::Status Session::WriteItems(const std::vector<ScanItem>& items) {
  std::string lines;
  for (const ScanItem& item : items) {
    if (arguments_.json) {
      Json json;
      SetBytes(json, "key", item.key);
      if (!arguments_.scan.keys_only) {
        SetBytes(json, "value", item.value);
        json["bytes"] = item.value.size();
        json["version"] = item.version;
      }
      lines += json.dump();
    } else {
      lines += EscapedField(item.key);
      if (!arguments_.scan.keys_only) absl::StrAppend(&lines, "\t", EscapedField(item.value));
    }
    lines += '\n';
  }
  return Write(lines);
}

absl::Status Session::TellIfThereAreMore(const ScanRange& range) {
  std::vector<ScanItem> items;
  ScanRange next = range;
  next.keys_only = true;
  AwaitAnswer();
  VERBENA_RETURN_IF_ERROR(connection_->Scan(next, 1, &items));
  if (items.empty()) return absl::OkStatus();
  std::fprintf(stderr,
               "verbena-cli: there are more keys: --limit=0 shows all, scan START --after those "
               "behind START\n");
  return absl::OkStatus();
}

absl::Status Session::WriteChange(const char* what, const ChangeResult& change) {
  if (!arguments_.json) return WriteLine(what);
  Json json;
  SetBytes(json, "key", arguments_.key);
  json["result"] = what;
  json["version"] = change.version;
  return WriteJson(json);
}

absl::Status Session::Info() {
  VERBENA_RETURN_IF_ERROR(Connect());
  VERBENA_ASSIGN_OR_RETURN(const std::string text, connection_->Info());
  Json info = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!info.is_object()) return absl::InternalError("the server's info is no JSON object");
  info["client"] = {{"server", arguments_.server},
                    {"fabric", connection_->fabric()},
                    {"device", connection_->device()}};
  return arguments_.json ? WriteJson(info) : Write(InfoTable(info.dump()));
}

absl::Status Session::Ping() {
  VERBENA_RETURN_IF_ERROR(Connect());
  const auto start = std::chrono::steady_clock::now();
  VERBENA_RETURN_IF_ERROR(connection_->Ping());
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
  if (arguments_.json) {
    return WriteJson({{"server", arguments_.server},
                      {"round_trip_us", time.count()},
                      {"fabric", connection_->fabric()},
                      {"device", connection_->device()}});
  }
  return WriteLine(absl::StrFormat("%s answered in %.1f us (fabric %s, device %s)",
                                   arguments_.server, time.count(), connection_->fabric(),
                                   connection_->device()));
}

absl::Status Session::Dispatch() {
  switch (arguments_.command) {
    case Command::kGet:
      return Get();
    case Command::kPut:
      return Put();
    case Command::kDelete:
      return Delete();
    case Command::kTake:
      return Take();
    case Command::kAdd:
      return Add();
    case Command::kAppend:
      return Append();
    case Command::kExpire:
      return Expire();
    case Command::kPersist:
      return Persist();
    case Command::kTtl:
      return Ttl();
    case Command::kScan:
      return Scan();
    case Command::kInfo:
      return Info();
    case Command::kPing:
      return Ping();
    case Command::kHelp:
    case Command::kVersion:
    case Command::kDoctor:
      break;
  }
  return absl::InternalError("no command");
}

// Aborted is about the condition where there is one, else about a value that could not be read in
// peace.
ExitStatus Session::ExitFor(const absl::Status& status) const {
  if (io_failed_) return kExitIo;
  if (absl::IsAborted(status) && arguments_.condition.kind != Condition::Kind::kNone) {
    return kExitCondition;
  }
  return ExitStatusFor(status);
}

void Session::Tell(const absl::Status& status, ExitStatus exit) {
  // Whoever closed the pipe has read enough and knows it.
  if (io_failed_ && absl::IsUnavailable(status)) return;
  const std::string message = exit == kExitNotFound
                                  ? absl::StrCat("there is no key ", Quoted(arguments_.key))
                                  : std::string(status.message());
  std::fprintf(stderr, "verbena-cli: %s\n", message.c_str());
  if (!arguments_.json || io_failed_) return;
  // If this fails too, standard error has told already.
  [[maybe_unused]] const absl::Status ignored =
      WriteAll(STDOUT_FILENO, ErrorJson(status.code(), message, exit, present_));
}

ExitStatus Session::Run() {
  const absl::Status status = Dispatch();
  notice_.End();
  if (status.ok()) return kExitOk;
  const ExitStatus exit = ExitFor(status);
  Tell(status, exit);
  return exit;
}

}  // namespace

Options ConnectionOptions(const Arguments& arguments) {
  Options options;
  options.fabric = arguments.fabric;
  options.connect_timeout = arguments.timeout;
  options.operation_timeout = arguments.timeout;
  options.tos = arguments.connect.tos;
  options.ack_timeout = arguments.connect.ack_timeout;
  options.retry_count = arguments.connect.retry_count;
  options.rnr_timer = arguments.connect.min_rnr_timer;
  // One operation needs neither depth nor a cache of the index; a scan READs many values at once.
  options.depth = arguments.command == Command::kScan ? 32 : 1;
  options.cache_bytes = 0;
  return options;
}

ExitStatus RunCommand(const Arguments& arguments) { return Session(arguments).Run(); }

}  // namespace verbena::cli
