// Zipfian numbers as YCSB draws them (Gray et al., "Quickly generating billion-record synthetic
// databases", SIGMOD 1994). Value types; const members are thread-safe with a Random per thread.
#pragma once

#include <cstdint>

#include "bench/workload/random.h"

namespace verbena::bench {

inline constexpr double kYcsbTheta = 0.99;

// The sum of 1 / i^theta for i from 1 to n, theta > 0; exact but for rounding. At most 10,000 terms
// are added, the rest is an integral.
double Zeta(uint64_t n, double theta);

// Draws ranks 0 to items - 1; rank r has about the probability 1 / (r + 1)^theta / Zeta(items).
class Zipfian {
 public:
  // Computes Zeta(items, theta); items >= 1, 0 < theta < 1.
  Zipfian(uint64_t items, double theta);
  // With a known Zeta(items, theta).
  Zipfian(uint64_t items, double theta, double zeta_items);

  uint64_t Next(Random& random) const { return Rank(random.NextDouble()); }
  // The rank for a uniform number in [0, 1).
  uint64_t Rank(double u) const;

  // Makes it one of more items; takes time in proportion to how many more.
  void Grow(uint64_t items);
  uint64_t items() const { return static_cast<uint64_t>(items_); }

 private:
  void SetEta();
  double Power(double base) const;

  double items_;
  double theta_;
  double zeta_items_;
  double alpha_;
  double eta_ = 0;
  double second_;             // bound of u * zeta below which the rank is 1
  unsigned whole_alpha_ = 0;  // alpha_ where it is a whole number but for rounding, else 0
};

// An exact Zipfian for any exponent: rank r of 0 to items - 1 has probability
// 1 / (r + 1)^theta / Zeta(items, theta). By rejection-inversion (Hoermann and Derflinger, ACM
// TOMACS 1996): no table, and a draw takes as long whatever the number of items.
class ExactZipf {
 public:
  static constexpr double kMaxTheta = 100;

  // items >= 1, 0 < theta <= kMaxTheta.
  ExactZipf(uint64_t items, double theta);

  uint64_t Next(Random& random) const;

 private:
  double Weight(double x) const;           // x^-theta
  double WeightIntegral(double x) const;   // of Weight, from 1 to x
  double IntegralInverse(double x) const;  // the x for which WeightIntegral has that value

  double items_;
  double theta_;
  double integral_low_;
  double integral_high_;
  double accept_;  // how far below its rank a point may be that is taken without a look
};

// YCSB's "zipfian" request distribution: a rank of a fixed Zipfian of 10^10 items, hashed onto
// 0 to items - 1. So the hottest key gets 3.78 % of the requests, whatever the number of records.
class ScrambledZipfian {
 public:
  static constexpr uint64_t kHiddenItems = 10'000'000'000;
  static constexpr double kHiddenZeta = 26.46902820178302;

  explicit ScrambledZipfian(uint64_t items);

  uint64_t Next(Random& random) const;

 private:
  Zipfian ranks_;
  uint64_t items_;
};

}  // namespace verbena::bench
