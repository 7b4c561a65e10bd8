#include "tests/fuzz/wire_targets.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "common/wire/handshake.h"
#include "common/wire/messages.h"
#include "tests/fuzz/check.h"

namespace verbena::fuzz {
namespace {

bool Same(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

bool Inside(std::string_view view, std::span<const uint8_t> bytes) {
  const auto* const begin = reinterpret_cast<const char*>(bytes.data());
  return view.empty() ||
         (view.data() >= begin && view.data() + view.size() <= begin + bytes.size());
}

void Connect(std::span<const uint8_t> bytes) {
  const auto data = wire::DecodeConnect(bytes);
  if (!data.ok() || data->protocol != wire::kProtocolVersion) return;
  Check(data->session != 0, "a session is never 0");
  Check(Same(wire::Encode(*data), bytes.first(wire::ConnectData::kSize)),
        "connect data round trip");
}

void Accept(std::span<const uint8_t> bytes) {
  const auto data = wire::DecodeAccept(bytes);
  if (!data.ok() || data->protocol != wire::kProtocolVersion) return;
  Check(Same(wire::Encode(*data), bytes.first(wire::AcceptData::kSize)), "accept data round trip");
}

void Reject(std::span<const uint8_t> bytes) {
  const auto data = wire::DecodeReject(bytes);
  if (!data.ok()) return;
  Check(data->text.size() <= wire::RejectData::kMaxText, "length of the text");
  Check(std::none_of(data->text.begin(), data->text.end(),
                     [](char c) { return c == '\x1b' || c == '\n' || c == '\0'; }),
        "no control characters");
  const auto again = wire::DecodeReject(wire::Encode(*data));
  Check(again.ok() && again->text == data->text && again->reason == data->reason &&
            again->challenge == data->challenge,
        "reject data round trip");
}

}  // namespace

void Handshake(std::span<const uint8_t> input) {
  if (input.empty()) return;
  const auto bytes = input.subspan(1);
  switch (input[0] % 3) {
    case 0:
      return Connect(bytes);
    case 1:
      return Accept(bytes);
    default:
      return Reject(bytes);
  }
}

void Request(std::span<const uint8_t> input) {
  auto reader = wire::RequestReader::Open(input);
  if (!reader.ok()) return;
  std::vector<uint8_t> copy(input.size());
  wire::RequestWriter writer(copy);
  while (true) {
    const auto operation = reader->Next();
    if (!operation.ok()) return;
    if (!operation->has_value()) break;
    const wire::Operation& op = **operation;
    Check(Inside(op.key, input) && Inside(op.value, input), "views stay inside the message");
    const bool fits =
        op.reference.has_value()
            ? writer.AddByReference(op.header, op.key, op.header.value_len, *op.reference)
            : writer.Add(op.header, op.key, op.value);
    Check(fits, "what was read can be written");
  }
  writer.Finish(reader->header().acked, static_cast<uint16_t>(reader->header().wanted));
  Check(writer.size() == input.size() && Same(copy, input), "request round trip");
}

void Response(std::span<const uint8_t> input) {
  auto reader = wire::ResponseReader::Open(input);
  if (!reader.ok()) return;
  std::vector<uint8_t> copy(input.size());
  wire::ResponseWriter writer(copy);
  while (true) {
    const auto result = reader->Next();
    if (!result.ok()) return;
    if (!result->has_value()) break;
    Check(Inside((*result)->value, input), "views stay inside the message");
    Check(writer.Add((*result)->header, (*result)->value), "what was read can be written");
  }
  writer.Finish(reader->header().grant);
  Check(writer.size() == input.size() && Same(copy, input), "response round trip");
}

void Values(std::span<const uint8_t> input) {
  const std::string_view value(reinterpret_cast<const char*>(input.data()), input.size());
  if (const auto hello = wire::DecodeHello(value); hello.ok()) {
    Check(wire::AsValue(*hello) == value, "Hello round trip");
  }
  if (const auto welcome = wire::DecodeWelcome(value); welcome.ok()) {
    Check(wire::AsValue(*welcome) == value, "Welcome round trip");
    Check(welcome->window > 0 && welcome->eager_limit <= welcome->max_message, "Welcome's limits");
  }
  if (const auto location = wire::DecodeLocation(value); location.ok()) {
    Check(wire::AsValue(*location) == value, "Location round trip");
  }
}

void ScanAnswer(std::span<const uint8_t> input) {
  std::string_view rest(reinterpret_cast<const char*>(input.data()), input.size());
  std::vector<uint8_t> copy(input.size());
  size_t used = 0;
  for (size_t left = rest.size();; left = rest.size()) {
    const auto found = wire::TakeFoundKey(&rest);
    if (!found.ok()) return;
    if (!found->has_value()) break;
    const wire::FoundKey& key = **found;
    Check(rest.size() < left, "each key takes some of the answer");
    Check(Inside(key.key, input), "views stay inside the message");
    Check(!key.key.empty() && key.slot != 0, "a key and a slot");
    const size_t begin = used;
    Check(wire::AppendFoundKey(key, copy, &used), "what was read can be written");
    // Nobody looks at the padding.
    const size_t size = sizeof(wire::ScanEntry) + key.key.size();
    Check(Same(std::span(copy).subspan(begin, size), input.subspan(begin, size)),
          "scan entry round trip");
  }
  Check(used == input.size(), "all of the answer is keys");
}

}  // namespace verbena::fuzz
