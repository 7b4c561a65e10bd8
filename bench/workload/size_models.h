// Sizes of keys and values as published traces have them.
//
//   ETC      Meta's general cache (Atikoglu et al., SIGMETRICS 2012): the formulas of the paper, as
//            load generators use them. Mean value about 195 bytes, mean key 36.
//   kvcache  CacheLib's configuration kvcache_reg of cachebench: mean value about 350 bytes.
//   cdn      CacheLib's configuration cdn of cachebench: mean value about 35 KB.
//
// CacheLib's are given by a few quantiles, between which the logarithm of the size is linear. The
// quantile .999 is not published; it is chosen so that the mean comes near the published one.
// Functions of a uniform number in [0, 1), so that any generator will do. Thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>

namespace verbena::bench {

enum class SizeModel { kEtc, kKvCache, kCdn };
inline constexpr std::array<SizeModel, 3> kSizeModels = {SizeModel::kEtc, SizeModel::kKvCache,
                                                         SizeModel::kCdn};

constexpr const char* SizeModelName(SizeModel model) {
  switch (model) {
    case SizeModel::kEtc:
      return "etc";
    case SizeModel::kKvCache:
      return "kvcache";
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
  constexpr double kSigma = 214.476;
  constexpr double kShape = .348238;
  const double size = 15 + kSigma / kShape * (std::pow(upper, -kShape) - 1);
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
    case SizeModel::kKvCache:
      return FromQuantiles(kKvCacheValues, u);
    case SizeModel::kCdn:
      break;
  }
  return FromQuantiles(kCdnValues, u);
}

// Bytes of a key, from a number in [0, 1).
inline uint32_t KeySize(SizeModel model, double u) {
  using namespace size_models_internal;
  return model == SizeModel::kEtc ? EtcKey(u) : FromQuantiles(kCacheKeys, u);
}

}  // namespace verbena::bench
