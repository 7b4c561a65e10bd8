#include "server/net/session.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"

namespace verbena::net {

Session::Session(uint32_t operations, uint32_t incarnation)
    : operations_(operations),
      incarnation_(incarnation),
      mask_(std::bit_ceil(uint64_t{operations}) - 1),
      answers_(new KeptAnswer[mask_ + 1]) {}

absl::Status Session::WrongSequence(uint64_t sequence) const {
  return absl::InvalidArgumentError(absl::StrCat("sequence number ", sequence,
                                                 " is not one of the ", operations_, " behind ",
                                                 acked_, ", which the client has acknowledged"));
}

// The numbers of one session's changes need not ascend: a client that has lost its connection
// repeats what it has not given up.
void Session::KeepValue(uint64_t sequence, std::string_view value) {
  const auto at = std::find_if(values_.begin(), values_.end(),
                               [sequence](const Value& kept) { return kept.sequence > sequence; });
  values_.insert(at, {sequence, std::string(value)});
  value_bytes_ += value.size();
}

std::string_view Session::ValueOf(uint64_t sequence) const {
  const auto found = std::find_if(values_.begin(), values_.end(), [sequence](const Value& kept) {
    return kept.sequence == sequence;
  });
  return found == values_.end() ? std::string_view() : std::string_view(found->bytes);
}

void Session::DropValues() {
  while (!values_.empty() && values_.front().sequence <= acked_) {
    value_bytes_ -= values_.front().bytes.size();
    values_.pop_front();
  }
}

}  // namespace verbena::net
