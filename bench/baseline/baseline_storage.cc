#include "bench/baseline/baseline_storage.h"

#include "bench/workload/value.h"
#include "common/base/macros.h"
#include "common/base/sizes.h"
#include "server/storage/store.h"

namespace verbena::bench {
namespace {

std::span<const uint8_t> Bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

StorageBaseline::StorageBaseline(std::unique_ptr<storage::Store> store)
    : store_(std::move(store)) {}
StorageBaseline::~StorageBaseline() = default;

absl::StatusOr<std::unique_ptr<StorageBaseline>> StorageBaseline::Create(const Config& config,
                                                                         uint64_t used_bytes) {
  storage::RegionOptions region_options;
  region_options.name = "verbena-bench-storage";
  // Room for pages that are begun, and for a directory of another size.
  region_options.size = used_bytes + used_bytes / 4 + 64 * kMiB;
  VERBENA_ASSIGN_OR_RETURN(storage::Region region, storage::Region::Create(region_options));
  storage::StoreOptions store_options;
  store_options.max_value_size = layout::kMaxValueSize;
  VERBENA_ASSIGN_OR_RETURN(std::unique_ptr<storage::Store> store,
                           storage::Store::Create(std::move(region), store_options));
  const KeyNames names = config.key_names();
  std::vector<char> value(config.value_size);
  std::string key(names.max_size(), '\0');
  for (uint64_t record = 0; record < config.records; ++record) {
    const std::string_view name(key.data(), names.Write(record, key));
    FillValue(name, record, value);
    VERBENA_RETURN_IF_ERROR(store->Put(0, name, Bytes({value.data(), value.size()})).status());
  }
  return std::unique_ptr<StorageBaseline>(new StorageBaseline(std::move(store)));
}

absl::Status StorageBaseline::Put(const KeySequence& keys, const ValueSequence& values,
                                  double overhead, std::span<uint32_t> nanos) {
  for (size_t i = 0; i < keys.size(); ++i) {
    const int64_t begin = clock_.NowSerial();
    const auto result = store_->Put(0, keys[i], Bytes(values[i]));
    const int64_t end = clock_.NowSerial();
    VERBENA_RETURN_IF_ERROR(result.status());
    nanos[i] = LessOverhead(clock_.Nanos(begin, end), overhead);
  }
  return absl::OkStatus();
}

}  // namespace verbena::bench
