#include "server/store_handler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/clock.h"
#include "common/base/sizes.h"
#include "server/storage/region.h"

namespace verbena::server {
namespace {

// Of a value that is READ from the client, the time counts from when it is there for readers: it
// may have been under way for longer than the time itself.
TEST(StoreHandlerTest, ATimeToLiveCountsFromThePublication) {
  storage::RegionOptions region_options;
  region_options.name = "handler";
  region_options.size = 16 * kMiB;
  absl::StatusOr<storage::Region> region = storage::Region::Create(region_options);
  ASSERT_TRUE(region.ok()) << region.status();
  auto store = storage::Store::Create(*std::move(region), {});
  ASSERT_TRUE(store.ok()) << store.status();
  StoreHandler handler(**store, [] { return std::string(); });

  constexpr std::string_view kValue = "value";
  wire::Operation put;
  put.header = {};
  put.header.code = static_cast<uint8_t>(wire::OpCode::kPut);
  put.header.flags = wire::kOpValueByReference | wire::kOpExpires;
  put.header.argument = 10'000;
  put.header.value_len = static_cast<uint32_t>(kValue.size());
  put.key = "key";
  std::unique_ptr<net::PendingChange> pending;
  ASSERT_EQ(handler.Prepare(0, put, &pending).code, wire::ResultCode::kOk);
  ASSERT_NE(pending, nullptr);
  std::copy(kValue.begin(), kValue.end(), pending->value().begin());
  const int64_t arrived = MonotonicNanos();
  ASSERT_EQ(handler.Publish(0, std::move(pending)).code, wire::ResultCode::kOk);
  EXPECT_GE((*store)->Due(0, "key")->due_ns, arrived + 10'000'000'000);

  // Without a time it stays for ever.
  put.header.flags = wire::kOpValueByReference;
  put.header.argument = 0;
  ASSERT_EQ(handler.Prepare(0, put, &pending).code, wire::ResultCode::kOk);
  ASSERT_EQ(handler.Publish(0, std::move(pending)).code, wire::ResultCode::kOk);
  EXPECT_EQ((*store)->Due(0, "key")->due_ns, storage::kNever);
}

}  // namespace
}  // namespace verbena::server
