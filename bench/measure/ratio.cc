#include "bench/measure/ratio.h"

#include <cstdio>

namespace verbena::bench {

bool PrintRatio(const char* what, const Spread& spread, Bound bound, double limit) {
  std::printf("%-58s %6.3f  (%.3f to %.3f)", what, spread.median, spread.least, spread.most);
  if (bound == Bound::kNone) {
    std::printf("\n");
    return true;
  }
  const bool at_most = bound == Bound::kAtMost;
  const bool met = at_most ? spread.median <= limit : spread.median >= limit;
  std::printf("  %s %.4g  %s\n", at_most ? "<=" : ">=", limit, met ? "met" : "MISSED");
  return met;
}

}  // namespace verbena::bench
