// Bridges between std::string_view and Debian 12's abseil, whose absl::string_view is its own type.
#pragma once

#include <string_view>

#include "absl/strings/string_view.h"

namespace verbena {

inline absl::string_view ToAbsl(std::string_view s) { return {s.data(), s.size()}; }
inline std::string_view ToStd(absl::string_view s) { return {s.data(), s.size()}; }

}  // namespace verbena
