#include "common/verbs/rdma_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace verbena::verbs {
namespace {

using ::testing::StrEq;

TEST(RdmaCore, DestroyingAfterRemovalIsAllowedUnlessTheUserSaysOtherwise) {
  constexpr char kVariable[] = "RDMAV_ALLOW_DISASSOC_DESTROY";
  unsetenv(kVariable);
  AllowDestroyingAfterRemoval();
  ASSERT_NE(getenv(kVariable), nullptr);
  EXPECT_THAT(getenv(kVariable), StrEq("1"));
  setenv(kVariable, "0", /*overwrite=*/1);
  AllowDestroyingAfterRemoval();
  EXPECT_THAT(getenv(kVariable), StrEq("0"));
  unsetenv(kVariable);
}

}  // namespace
}  // namespace verbena::verbs
