// Bridges between std::string_view and Debian 12's abseil, whose absl::string_view is its own type;
// and texts from others.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "absl/strings/string_view.h"

namespace verbena {

inline absl::string_view ToAbsl(std::string_view s) { return {s.data(), s.size()}; }
inline std::string_view ToStd(absl::string_view s) { return {s.data(), s.size()}; }

// A text that a peer has sent, as it may go to terminals and logs: whatever is not printable ASCII
// (escape sequences, line ends, bytes that some terminals take for those) is a '?'.
inline std::string PrintableText(std::string_view text) {
  std::string printable(text);
  std::replace_if(
      printable.begin(), printable.end(), [](char c) { return c < 0x20 || c > 0x7e; }, '?');
  return printable;
}

}  // namespace verbena
