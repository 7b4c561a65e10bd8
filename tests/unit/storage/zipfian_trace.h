// A trace of requests for keys, and the hit rates of simulated caches over it, for tests of
// eviction.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <list>
#include <random>
#include <unordered_map>
#include <vector>

namespace verbena::storage {

// Requests for keys 0 to keys - 1, of which key r has a probability in proportion to
// 1 / (r + 1)^theta. Every run over it has the same ones.
class ZipfianTrace {
 public:
  ZipfianTrace(double theta, uint64_t keys, int requests) : requests_(requests) {
    double sum = 0;
    cumulative_.reserve(keys);
    for (uint64_t rank = 1; rank <= keys; ++rank) {
      sum += std::pow(static_cast<double>(rank), -theta);
      cumulative_.push_back(sum);
    }
  }

  // The first quarter warms up and does not count.
  int warm_up() const { return requests_ / 4; }

  // Calls get(key), which returns whether the key was there and puts it there, for each request.
  template <typename Get>
  double HitRate(Get&& get) {
    std::mt19937_64 random(42);
    std::uniform_real_distribution<double> uniform(0, cumulative_.back());
    int hits = 0;
    for (int i = 0; i < requests_; ++i) {
      const auto at = std::lower_bound(cumulative_.begin(), cumulative_.end(), uniform(random));
      const bool hit = get(static_cast<uint64_t>(at - cumulative_.begin()));
      if (i >= warm_up()) hits += hit ? 1 : 0;
    }
    return static_cast<double>(hits) / (requests_ - warm_up());
  }

 private:
  const int requests_;
  std::vector<double> cumulative_;
};

// Of a cache with room for so many keys that drops the one that came first, or with `lru` the one
// that was asked for the longest ago.
inline double HitRateOfQueue(ZipfianTrace& trace, size_t room, bool lru) {
  std::list<uint64_t> order;
  std::unordered_map<uint64_t, std::list<uint64_t>::iterator> cache;
  return trace.HitRate([&](uint64_t key) {
    const auto found = cache.find(key);
    if (found != cache.end()) {
      if (lru) order.splice(order.end(), order, found->second);
      return true;
    }
    if (cache.size() == room) {
      cache.erase(order.front());
      order.pop_front();
    }
    cache[key] = order.insert(order.end(), key);
    return false;
  });
}
inline double HitRateOfFifo(ZipfianTrace& trace, size_t room) {
  return HitRateOfQueue(trace, room, false);
}
inline double HitRateOfLru(ZipfianTrace& trace, size_t room) {
  return HitRateOfQueue(trace, room, true);
}

}  // namespace verbena::storage
