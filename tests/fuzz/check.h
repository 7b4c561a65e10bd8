// Ends the process if a promise is broken, which is what fuzzers look for.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace verbena::fuzz {

inline void Check(bool kept, const char* promise) {
  if (kept) return;
  std::fprintf(stderr, "broken: %s\n", promise);
  std::abort();
}

}  // namespace verbena::fuzz
