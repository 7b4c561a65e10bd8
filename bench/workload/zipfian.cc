#include "bench/workload/zipfian.h"

#include <algorithm>
#include <cmath>

#include "bench/workload/key_names.h"

namespace verbena::bench {

double Zeta(uint64_t n, double theta) {
  double sum = 0;
  for (uint64_t i = 1; i <= n; ++i) sum += 1.0 / std::pow(static_cast<double>(i), theta);
  return sum;
}

Zipfian::Zipfian(uint64_t items, double theta) : Zipfian(items, theta, Zeta(items, theta)) {}

Zipfian::Zipfian(uint64_t items, double theta, double zeta_items)
    : items_(static_cast<double>(items)),
      zeta_items_(zeta_items),
      alpha_(1.0 / (1.0 - theta)),
      eta_((1.0 - std::pow(2.0 / items_, 1.0 - theta)) / (1.0 - Zeta(2, theta) / zeta_items)),
      second_(1.0 + std::pow(0.5, theta)) {
  const double whole = std::round(alpha_);
  if (whole <= 1000 && std::abs(alpha_ - whole) < 1e-9) whole_alpha_ = static_cast<unsigned>(whole);
}

// base^alpha. YCSB's alpha is 100 but for the rounding of 1 - 0.99: seven squarings and two
// products then take a third of the time of std::pow.
double Zipfian::Power(double base) const {
  if (whole_alpha_ == 0) return std::pow(base, alpha_);
  double result = 1;
  for (unsigned exponent = whole_alpha_;; base *= base) {
    if ((exponent & 1) != 0) result *= base;
    if ((exponent >>= 1) == 0) return result;
  }
}

uint64_t Zipfian::Next(Random& random) const {
  const double u = random.NextDouble();
  const double uz = u * zeta_items_;
  if (uz < 1.0) return 0;
  if (uz < second_) return 1;
  // Below items_ but for rounding at u close to 1.
  const double rank = items_ * Power(eta_ * u - eta_ + 1.0);
  return static_cast<uint64_t>(std::min(rank, items_ - 1.0));
}

ScrambledZipfian::ScrambledZipfian(uint64_t items)
    : ranks_(kHiddenItems, kYcsbTheta, kHiddenZeta), items_(items) {}

uint64_t ScrambledZipfian::Next(Random& random) const {
  return FnvHash64(ranks_.Next(random)) % items_;
}

}  // namespace verbena::bench
