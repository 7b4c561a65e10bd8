// How many workers a server has that is not told: verbena-server takes it, verbena-cli doctor
// counts with it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <thread>

namespace verbena {

inline uint32_t DefaultWorkers() {
  return std::clamp(std::thread::hardware_concurrency() / 4, 1U, 8U);
}

}  // namespace verbena
