#include "bench/baseline/baseline_keys.h"

#include "bench/workload/random.h"
#include "bench/workload/value.h"

namespace verbena::bench {

KeySequence::KeySequence(const Config& config, size_t count, uint64_t seed)
    : stride_(config.key_names().max_size()), bytes_(stride_ * count), lengths_(count) {
  Random random(seed);
  const KeyNames names = config.key_names();
  for (size_t i = 0; i < count; ++i) {
    lengths_[i] = static_cast<uint16_t>(
        names.Write(random.Below(config.records), {bytes_.data() + i * stride_, stride_}));
  }
}

ValueSequence::ValueSequence(const KeySequence& keys, size_t value_size, uint64_t seed)
    : value_size_(value_size), bytes_(keys.size() * value_size) {
  for (size_t i = 0; i < keys.size(); ++i) {
    FillValue(keys[i], seed + i, {bytes_.data() + i * value_size, value_size});
  }
}

}  // namespace verbena::bench
