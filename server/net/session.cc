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
  const auto at =
      std::upper_bound(values_.begin(), values_.end(), sequence,
                       [](uint64_t wanted, const Value& kept) { return wanted < kept.sequence; });
  values_.insert(at, {sequence, std::string(value)});
  value_bytes_ += value.size();
}

std::string_view Session::ValueOf(uint64_t sequence) const {
  const auto found =
      std::lower_bound(values_.begin(), values_.end(), sequence,
                       [](const Value& kept, uint64_t wanted) { return kept.sequence < wanted; });
  if (found == values_.end() || found->sequence != sequence) return {};
  return found->bytes;
}

void Session::DropValues() {
  while (!values_.empty() && values_.front().sequence <= acked_) {
    value_bytes_ -= values_.front().bytes.size();
    values_.pop_front();
  }
}

}  // namespace verbena::net
