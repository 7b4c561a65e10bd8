#include "bench/workload/zipfian.h"

#include <algorithm>
#include <cmath>

#include "bench/workload/key_names.h"

namespace verbena::bench {

// Beyond the first terms Euler and Maclaurin's formula: the integral, half of both ends, and a
// twelfth of the difference of the derivatives; what is left out is below 1e-15 of the sum.
double Zeta(uint64_t n, double theta) {
  constexpr uint64_t kTerms = 10'000;
  double sum = 0;
  for (uint64_t i = 1; i <= std::min(n, kTerms); ++i) {
    sum += 1.0 / std::pow(static_cast<double>(i), theta);
  }
  if (n <= kTerms) return sum;
  const double from = kTerms;
  const auto to = static_cast<double>(n);
  const double rest = 1 - theta;
  const double integral = std::abs(rest) < 1e-9
                              ? std::log(to / from)
                              : (std::pow(to, rest) - std::pow(from, rest)) / rest;
  const double ends = (std::pow(to, -theta) - std::pow(from, -theta)) / 2;
  const double slopes = theta * (std::pow(from, -theta - 1) - std::pow(to, -theta - 1)) / 12;
  return sum + integral + ends + slopes;
}

Zipfian::Zipfian(uint64_t items, double theta) : Zipfian(items, theta, Zeta(items, theta)) {}

Zipfian::Zipfian(uint64_t items, double theta, double zeta_items)
    : items_(static_cast<double>(items)),
      theta_(theta),
      zeta_items_(zeta_items),
      alpha_(1.0 / (1.0 - theta)),
      second_(1.0 + std::pow(0.5, theta)) {
  SetEta();
  const double whole = std::round(alpha_);
  if (whole <= 1000 && std::abs(alpha_ - whole) < 1e-9) whole_alpha_ = static_cast<unsigned>(whole);
}

// With one or two items every draw ends before eta is asked for.
void Zipfian::SetEta() {
  eta_ = items_ <= 2 ? 0
                     : (1.0 - std::pow(2.0 / items_, 1.0 - theta_)) / (1.0 - second_ / zeta_items_);
}

void Zipfian::Grow(uint64_t items) {
  const auto target = static_cast<double>(items);
  if (target <= items_) return;
  while (items_ < target) {
    items_ += 1;
    zeta_items_ += 1.0 / std::pow(items_, theta_);
  }
  SetEta();
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

uint64_t Zipfian::Rank(double u) const {
  const double uz = u * zeta_items_;
  if (uz < 1.0) return 0;
  if (uz < second_ || items_ <= 2) return items_ < 2 ? 0 : 1;
  // Below items_ but for rounding at u close to 1.
  const double rank = items_ * Power(eta_ * u - eta_ + 1.0);
  return static_cast<uint64_t>(std::min(rank, items_ - 1.0));
}

namespace {

// log(1 + x) / x and (e^x - 1) / x, also near 0.
double LogOver(double x) {
  return std::abs(x) > 1e-8 ? std::log1p(x) / x : 1 - x * (0.5 - x * (1.0 / 3 - x / 4));
}
double ExpOver(double x) {
  return std::abs(x) > 1e-8 ? std::expm1(x) / x : 1 + x * 0.5 * (1 + x / 3 * (1 + x / 4));
}

}  // namespace

ExactZipf::ExactZipf(uint64_t items, double theta)
    : items_(static_cast<double>(items)), theta_(theta) {
  integral_low_ = WeightIntegral(1.5) - 1;
  integral_high_ = WeightIntegral(items_ + 0.5);
  accept_ = 2 - IntegralInverse(WeightIntegral(2.5) - Weight(2));
}

double ExactZipf::Weight(double x) const { return std::exp(-theta_ * std::log(x)); }

double ExactZipf::WeightIntegral(double x) const {
  const double log_x = std::log(x);
  return ExpOver((1 - theta_) * log_x) * log_x;
}

double ExactZipf::IntegralInverse(double x) const {
  // Below -1 only by rounding.
  return std::exp(LogOver(std::max(x * (1 - theta_), -1.0)) * x);
}

uint64_t ExactZipf::Next(Random& random) const {
  for (;;) {
    const double u = integral_high_ + random.NextDouble() * (integral_low_ - integral_high_);
    const double x = IntegralInverse(u);
    const double rank = std::clamp(std::floor(x + 0.5), 1.0, items_);
    if (rank - x <= accept_ || u >= WeightIntegral(rank + 0.5) - Weight(rank)) {
      return static_cast<uint64_t>(rank) - 1;
    }
  }
}

ScrambledZipfian::ScrambledZipfian(uint64_t items)
    : ranks_(kHiddenItems, kYcsbTheta, kHiddenZeta), items_(items) {}

uint64_t ScrambledZipfian::Next(Random& random) const {
  return FnvHash64(ranks_.Next(random)) % items_;
}

}  // namespace verbena::bench
