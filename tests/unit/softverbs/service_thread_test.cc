#include "common/softverbs/service_thread.h"

#include <gtest/gtest.h>

#include <future>

#include "tests/no_threads.h"

namespace verbena::softverbs {
namespace {

TEST(ServiceThreadTest, WithoutAThreadItSaysSoAndStartsLater) {
  ServiceThread service;
  ASSERT_TRUE(service.valid());
  {
    const testing::NoThreads none;
    const absl::Status status = service.Start();
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  }
  ASSERT_TRUE(service.Start().ok());
  std::promise<void> ran;
  service.RunAt(0, [&] { ran.set_value(); });
  EXPECT_EQ(ran.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
}

}  // namespace
}  // namespace verbena::softverbs
