// Sessions without a connection: what is kept of them, and what goes first.
#include "server/net/session_table.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/net/connection.h"

namespace verbena::net {
namespace {

constexpr uint32_t kOperations = wire::kMinSessionOperations;
constexpr size_t kRing = kOperations * sizeof(KeptAnswer);

class SessionTableTest : public ::testing::Test {
 protected:
  // Says hello.
  std::unique_ptr<Connection> Enter(uint64_t session, const std::string& address = "10.0.0.1") {
    auto connection = std::make_unique<Connection>(/*send_depth=*/1);
    connection->session_id = session;
    connection->peer = absl::StrCat(address, ":", 1000 + session);
    EXPECT_TRUE(table_->Enter(*connection, kOperations));
    EXPECT_NE(connection->session, nullptr);
    return connection;
  }
  // A session that comes and goes, and leaves a value of `bytes`; its incarnation.
  uint32_t Pass(uint64_t session, size_t bytes, const std::string& address = "10.0.0.1") {
    const auto connection = Enter(session, address);
    const uint32_t incarnation = connection->session->incarnation();
    if (bytes != 0) connection->session->KeepValue(1, std::string(bytes, 'v'));
    table_->Leave(*connection);
    return incarnation;
  }
  // The incarnation that it has now.
  uint32_t Incarnation(uint64_t session) {
    const auto connection = Enter(session);
    const uint32_t incarnation = connection->session->incarnation();
    table_->Leave(*connection);
    return incarnation;
  }
  void Make(const SessionLimits& limits) { table_ = std::make_unique<SessionTable>(limits); }

  std::unique_ptr<SessionTable> table_ = std::make_unique<SessionTable>(SessionLimits{});
};

TEST_F(SessionTableTest, AnIncarnationIsForOneSession) {
  Make({.most_kept = 4, .peer_share = 1});
  const uint32_t first = Pass(1, 0);
  EXPECT_NE(first, 0u);
  EXPECT_EQ(Incarnation(1), first);
  for (uint64_t other = 2; other <= 5; ++other) EXPECT_NE(Pass(other, 0), first);
  EXPECT_EQ(table_->Counts().dropped, 1u);
  EXPECT_NE(Incarnation(1), first);
}

// Values count while their session has no connection.
TEST_F(SessionTableTest, ValuesAreCounted) {
  const auto connection = Enter(1);
  const uint64_t bare = table_->Counts().bytes;
  EXPECT_GE(bare, kRing);
  connection->session->KeepValue(1, std::string(100'000, 'v'));
  table_->Leave(*connection);
  EXPECT_EQ(table_->Counts().bytes, bare + 100'000);
  const auto next = Enter(1);
  EXPECT_EQ(table_->Counts().bytes, bare);
  next->session->Acknowledge(1);
  table_->Leave(*next);
  EXPECT_EQ(table_->Counts().bytes, bare);
}

// However many sessions leave values behind: memory is bounded, and the oldest have gone.
TEST_F(SessionTableTest, MemoryIsBounded) {
  constexpr size_t kMost = 4 << 20;
  Make({.most_bytes = kMost, .peer_share = 1});
  uint32_t last = 0;
  for (uint64_t session = 1; session <= 100; ++session) {
    last = Pass(session, Session::kMaxValueBytes);
    EXPECT_LE(table_->Counts().bytes, kMost);
  }
  const SessionCounts counts = table_->Counts();
  EXPECT_EQ(counts.kept, kMost / (Session::kMaxValueBytes + kRing + sizeof(Session)));
  EXPECT_EQ(counts.dropped, 100 - counts.kept);
  EXPECT_EQ(Incarnation(100), last);
}

// What comes from one address costs no other its session, by number or by bytes.
TEST_F(SessionTableTest, OneAddressHasItsShare) {
  Make({.most_kept = 64, .most_bytes = 8 << 20});
  const uint32_t other = Pass(1, 10'000, "10.0.0.2");
  for (uint64_t session = 2; session <= 200; ++session) Pass(session, 0);
  EXPECT_EQ(table_->Counts().kept, 1u + 16u);
  for (uint64_t session = 300; session <= 400; ++session) Pass(session, Session::kMaxValueBytes);
  EXPECT_LE(table_->Counts().bytes, size_t{3} << 20);
  EXPECT_EQ(Incarnation(1), other);
  // Nor do many connections at once, which are not kept.
  Make({.most_bytes = 8 << 20});
  const uint32_t again = Pass(1, 10'000, "10.0.0.2");
  std::vector<std::unique_ptr<Connection>> open;
  for (uint64_t session = 2; session <= 2'000; ++session) open.push_back(Enter(session));
  EXPECT_GT(table_->Counts().bytes, size_t{8} << 20);
  EXPECT_EQ(Incarnation(1), again);
}

// Hosts that together have all that there is take it from each other, not from one with less.
TEST_F(SessionTableTest, TheLargestGoesWhereAllHaveTooMuch) {
  Make({.most_kept = 16, .peer_share = 4});
  const uint32_t own = Pass(1, 0, "10.0.0.1");
  const uint32_t own_too = Pass(2, 0, "10.0.0.1");
  for (uint64_t i = 0; i < 400; ++i) Pass(1000 + i, 0, absl::StrCat("10.1.0.", i % 7));
  EXPECT_EQ(table_->Counts().kept, 16u);
  EXPECT_EQ(Incarnation(1), own);
  EXPECT_EQ(Incarnation(2), own_too);
}

// The same of their values' memory.
TEST_F(SessionTableTest, TheLargestGoesWhereAllHaveTooManyBytes) {
  Make({.most_bytes = 4 << 20, .peer_share = 4});
  const uint32_t own = Pass(1, 1000, "10.0.0.1");
  for (uint64_t i = 0; i < 400; ++i) Pass(1000 + i, 200'000, absl::StrCat("10.1.0.", i % 7));
  EXPECT_LE(table_->Counts().bytes, size_t{4} << 20);
  EXPECT_EQ(Incarnation(1), own);
}

// Of hosts with as much as each other the oldest session goes.
TEST_F(SessionTableTest, TheOldestGoesAmongEquals) {
  Make({.most_kept = 4, .peer_share = 2});
  const uint32_t first = Pass(1, 0, "10.0.0.1");
  std::vector<uint32_t> later;
  for (uint64_t i = 2; i <= 5; ++i) later.push_back(Pass(i, 0, absl::StrCat("10.0.0.", i)));
  EXPECT_EQ(table_->Counts().dropped, 1u);
  for (uint64_t i = 2; i <= 5; ++i) EXPECT_EQ(Incarnation(i), later[i - 2]) << i;
  EXPECT_NE(Incarnation(1), first);
}

// A host has as many addresses of its network as it likes.
TEST_F(SessionTableTest, AnIpv6NetworkIsOneHost) {
  Make({.most_kept = 64, .peer_share = 4});
  for (uint64_t i = 1; i <= 40; ++i) Pass(i, 0, absl::StrCat("[2001:db8:0:1::", i, "]"));
  EXPECT_EQ(table_->Counts().kept, 16u);
  for (uint64_t i = 101; i <= 110; ++i) {
    Pass(i, 0, absl::StrCat("[2001:db8:0:2::", i, "]"));
    // Not of one host: they have only the link in common, or no network at all.
    Pass(i + 100, 0, absl::StrCat("[fe80::", i, "%eth0]"));
    Pass(i + 200, 0, absl::StrCat("[::ffff:10.0.0.", i, "]"));
  }
  EXPECT_EQ(table_->Counts().kept, 46u);
}

TEST_F(SessionTableTest, NothingIsKeptWhereNothingMayBe) {
  Make({.most_bytes = 0});
  Pass(1, 1'000);
  EXPECT_EQ(table_->Counts().kept, 0u);
  EXPECT_EQ(table_->Counts().bytes, 0u);
}

TEST(SessionTest, ValuesAreFoundInWhateverOrderTheyCame) {
  Session session(kOperations, 1);
  for (const uint64_t sequence : std::vector<uint64_t>{7, 3, 9, 1, 8}) {
    session.KeepValue(sequence, absl::StrCat("value ", sequence));
  }
  for (const uint64_t sequence : std::vector<uint64_t>{1, 3, 7, 8, 9}) {
    EXPECT_EQ(session.ValueOf(sequence), absl::StrCat("value ", sequence));
  }
  for (const uint64_t sequence : std::vector<uint64_t>{0, 2, 10})
    EXPECT_EQ(session.ValueOf(sequence), "");
  session.Acknowledge(7);
  EXPECT_EQ(session.ValueOf(7), "");
  EXPECT_EQ(session.ValueOf(8), "value 8");
  EXPECT_EQ(session.value_bytes(), 2 * sizeof("value 8") - 2);
}

// Only what was made before another connection took it up may be repeated.
TEST(SessionTest, RepeatsEndWithWhatIsAcknowledged) {
  Session session(kOperations, 1);
  session.Keep({.sequence = 5});
  EXPECT_FALSE(session.may_repeat());
  session.TakeUp();
  EXPECT_TRUE(session.may_repeat());
  session.Keep({.sequence = 6});
  session.Acknowledge(5);
  EXPECT_FALSE(session.may_repeat());
}

}  // namespace
}  // namespace verbena::net
