// Sizes of keys and values as published traces have them.
//
//   etc      Meta's general cache (Atikoglu et al., SIGMETRICS 2012): the formulas of the paper, as
//            load generators use them. Mean value about 195 bytes, mean key 36.
//   udb      Meta's RocksDB for the social graph (Cao et al., FAST 2020, table 2): values of 126.7
//            bytes in the mean, standard deviation 22.1; keys 27.1 and 2.6.
//   zippydb  Meta's distributed store (the same paper): values by the generalized Pareto
//            distribution of its benchmark "mixgraph", 34.5 bytes in the mean; keys 47.9 and 3.7.
//   up2x     Meta's store of counters (the same paper): values 46.8 and 11.6, keys 10.45 and 1.4.
//   kvcache  CacheLib's configuration kvcache_reg of cachebench: mean value about 350 bytes.
//   graph    CacheLib's graph cache leader, objects: mean value about 357 bytes.
//   assocs   CacheLib's graph cache leader, associations: mean value about 1440 bytes.
//   cdn      CacheLib's configuration cdn of cachebench: mean value about 33 KB.
//
// Where a mean and a standard deviation are all that is published, the sizes are lognormal (they
// are never negative) with these.
// CacheLib's are given by a few quantiles, between which the logarithm of the size is linear. The
// quantile .999 (and .95 of assocs) is not published; it is chosen so that the mean comes near the
// published one.
// Functions of a uniform number in [0, 1), so that any generator will do. Thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>

namespace verbena::bench {

enum class SizeModel { kEtc, kUdb, kZippyDb, kUp2x, kKvCache, kGraph, kAssocs, kCdn };
inline constexpr std::array<SizeModel, 8> kSizeModels = {
    SizeModel::kEtc,     SizeModel::kUdb,   SizeModel::kZippyDb, SizeModel::kUp2x,
    SizeModel::kKvCache, SizeModel::kGraph, SizeModel::kAssocs,  SizeModel::kCdn};

constexpr const char* SizeModelName(SizeModel model) {
  switch (model) {
    case SizeModel::kEtc:
      return "etc";
    case SizeModel::kUdb:
      return "udb";
    case SizeModel::kZippyDb:
      return "zippydb";
    case SizeModel::kUp2x:
      return "up2x";
    case SizeModel::kKvCache:
      return "kvcache";
    case SizeModel::kGraph:
      return "graph";
    case SizeModel::kAssocs:
      return "assocs";
    case SizeModel::kCdn:
      break;
  }
  return "cdn";
}

namespace size_models_internal {

struct Quantile {
  double part;  // of the sizes that are not larger
  double size;
};

inline constexpr Quantile kKvCacheValues[] = {{0, 64},    {.1, 127},   {.5, 191}, {.9, 223},
                                              {.99, 991}, {.999, 8e3}, {1, 523e3}};
inline constexpr Quantile kGraphValues[] = {{0, 64},      {.5, 255},   {.9, 400},
                                            {.99, 2.3e3}, {.999, 4e3}, {1, 150e3}};
inline constexpr Quantile kAssocsValues[] = {{0, 32},     {.5, 95},     {.9, 927}, {.95, 2.5e3},
                                             {.99, 25e3}, {.999, 30e3}, {1, 2.6e6}};
inline constexpr Quantile kCdnValues[] = {{0, 500},     {.5, 13e3},    {.9, 78e3},
                                          {.99, 274e3}, {.999, 400e3}, {1, 4.2e6}};
// 16 to 255 bytes; the median is the one of Twitter's clusters (Yang et al., OSDI 2020).
inline constexpr Quantile kCacheKeys[] = {{0, 16}, {.5, 36}, {1, 255}};

inline uint32_t FromQuantiles(std::span<const Quantile> quantiles, double u) {
  size_t i = 1;
  while (i + 1 < quantiles.size() && quantiles[i].part <= u) ++i;
  const Quantile& low = quantiles[i - 1];
  const Quantile& high = quantiles[i];
  const double x = (u - low.part) / (high.part - low.part);
  return static_cast<uint32_t>(low.size * std::pow(high.size / low.size, x));
}

// The quantile of a standard normal distribution (Acklam's rational approximation, error 1e-9).
inline double NormalQuantile(double u) {
  constexpr double kA[] = {-3.969683028665376e+01, 2.209460984245205e+02,  -2.759285104469687e+02,
                           1.383577518672690e+02,  -3.066479806614716e+01, 2.506628277459239e+00};
  constexpr double kB[] = {-5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02,
                           6.680131188771972e+01, -1.328068155288572e+01};
  constexpr double kC[] = {-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
                           -2.549732539343734e+00, 4.374664141464968e+00,  2.938163982698783e+00};
  constexpr double kD[] = {7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00,
                           3.754408661907416e+00};
  constexpr double kTail = 0.02425;
  u = std::clamp(u, 1e-12, 1 - 1e-12);
  const double outer = std::min(u, 1 - u);
  if (outer < kTail) {
    const double q = std::sqrt(-2 * std::log(outer));
    const double x = (((((kC[0] * q + kC[1]) * q + kC[2]) * q + kC[3]) * q + kC[4]) * q + kC[5]) /
                     ((((kD[0] * q + kD[1]) * q + kD[2]) * q + kD[3]) * q + 1);
    return u < 0.5 ? x : -x;
  }
  const double q = u - 0.5;
  const double r = q * q;
  return (((((kA[0] * r + kA[1]) * r + kA[2]) * r + kA[3]) * r + kA[4]) * r + kA[5]) * q /
         (((((kB[0] * r + kB[1]) * r + kB[2]) * r + kB[3]) * r + kB[4]) * r + 1);
}

// Lognormal with this mean and standard deviation, rounded.
inline uint32_t LogNormal(double mean, double deviation, double u) {
  const double variance = std::log1p(deviation * deviation / (mean * mean));
  const double mu = std::log(mean) - variance / 2;
  return static_cast<uint32_t>(std::lround(std::exp(mu + std::sqrt(variance) * NormalQuantile(u))));
}

// Generalized Pareto from `least` on.
inline double Pareto(double least, double sigma, double shape, double upper) {
  return least + sigma / shape * (std::pow(upper, -shape) - 1);
}

inline uint32_t ZippyDbValue(double u) {
  return static_cast<uint32_t>(
      std::clamp(Pareto(0, 25.45, .2615, std::max(1 - u, 1e-12)), 1.0, 1e6));
}

// Weights of the values of 0 to 14 bytes; all larger ones follow a generalized Pareto distribution.
inline constexpr std::array<double, 15> kEtcSmallValues = {.00536, .00047, .17820, .09239, .00018,
                                                           .02740, .00065, .00606, .00023, .00837,
                                                           .00837, .08989, .00092, .00326, .01980};
inline constexpr double kEtcLargestValue = 1e6;
inline constexpr double kEtcLargestKey = 250;  // memcached's limit

inline uint32_t EtcValue(double u) {
  for (uint32_t size = 0; size < kEtcSmallValues.size(); ++size) {
    if (u < kEtcSmallValues[size]) return size;
    u -= kEtcSmallValues[size];
  }
  double rest = 1;
  for (const double weight : kEtcSmallValues) rest -= weight;
  const double upper = std::max(1 - u / rest, 1e-12);
  const double size = Pareto(15, 214.476, .348238, upper);
  return static_cast<uint32_t>(std::min(size, kEtcLargestValue));
}

inline uint32_t EtcKey(double u) {
  constexpr double kMu = 30.7984;
  constexpr double kSigma = 8.20449;
  constexpr double kShape = .078688;
  const double inner = -std::log(std::clamp(u, 1e-12, 1 - 1e-12));
  const double size = kMu + kSigma / kShape * (std::pow(inner, -kShape) - 1);
  return static_cast<uint32_t>(std::clamp(size, 1.0, kEtcLargestKey));
}

}  // namespace size_models_internal

// Bytes of a value, from a number in [0, 1).
inline uint32_t ValueSize(SizeModel model, double u) {
  using namespace size_models_internal;
  switch (model) {
    case SizeModel::kEtc:
      return EtcValue(u);
    case SizeModel::kUdb:
      return LogNormal(126.7, 22.1, u);
    case SizeModel::kZippyDb:
      return ZippyDbValue(u);
    case SizeModel::kUp2x:
      return LogNormal(46.8, 11.6, u);
    case SizeModel::kKvCache:
      return FromQuantiles(kKvCacheValues, u);
    case SizeModel::kGraph:
      return FromQuantiles(kGraphValues, u);
    case SizeModel::kAssocs:
      return FromQuantiles(kAssocsValues, u);
    case SizeModel::kCdn:
      break;
  }
  return FromQuantiles(kCdnValues, u);
}

// Bytes of a key, from a number in [0, 1).
inline uint32_t KeySize(SizeModel model, double u) {
  using namespace size_models_internal;
  switch (model) {
    case SizeModel::kEtc:
      return EtcKey(u);
    case SizeModel::kUdb:
      return LogNormal(27.1, 2.6, u);
    case SizeModel::kZippyDb:
      return LogNormal(47.9, 3.7, u);
    case SizeModel::kUp2x:
      return LogNormal(10.45, 1.4, u);
    default:
      return FromQuantiles(kCacheKeys, u);
  }
}

}  // namespace verbena::bench
