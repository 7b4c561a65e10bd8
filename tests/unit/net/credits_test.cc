#include "server/net/credits.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <vector>

namespace verbena::net {
namespace {

TEST(Credits, StartWithOneGrowWithTheWishUpToTheWindow) {
  CreditPool pool(100);
  ConnectionCredits credits(32);
  EXPECT_EQ(credits.grant(), 1u);
  ASSERT_TRUE(credits.OnRequest());
  EXPECT_FALSE(credits.OnRequest());
  EXPECT_EQ(credits.OnResponse(pool, 4), 5u);
  ASSERT_TRUE(credits.OnRequest());
  EXPECT_EQ(credits.OnResponse(pool, 1000), 32u);
  EXPECT_EQ(pool.free(), 100u - 31);
  credits.Close(pool);
  EXPECT_EQ(pool.free(), 100u);
}

TEST(Credits, AnEmptyPoolLeavesOne) {
  CreditPool pool(3);
  ConnectionCredits first(32);
  ConnectionCredits second(32);
  ASSERT_TRUE(first.OnRequest());
  EXPECT_EQ(first.OnResponse(pool, 10), 4u);
  ASSERT_TRUE(second.OnRequest());
  EXPECT_EQ(second.OnResponse(pool, 10), 1u);
}

TEST(Credits, FallByOneWhenThePoolIsTight) {
  CreditPool pool(10);
  ConnectionCredits credits(32);
  ASSERT_TRUE(credits.OnRequest());
  ASSERT_EQ(credits.OnResponse(pool, 9), 10u);
  ASSERT_TRUE(pool.tight());
  uint32_t last = 10;
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(credits.OnRequest());
    const uint32_t grant = credits.OnResponse(pool, 0);
    EXPECT_LE(last - grant, 1u);
    last = grant;
  }
  // Until there is enough again.
  EXPECT_FALSE(pool.tight());
  EXPECT_EQ(last, 9u);
}

TEST(Credits, FallSlowlyWhenNobodyNeedsThem) {
  CreditPool pool(1000);
  ConnectionCredits credits(4);
  ASSERT_TRUE(credits.OnRequest());
  ASSERT_EQ(credits.OnResponse(pool, 3), 4u);
  for (uint32_t i = 1; i < ConnectionCredits::kQuietResponses; ++i) {
    ASSERT_TRUE(credits.OnRequest());
    ASSERT_EQ(credits.OnResponse(pool, 0), 4u);
  }
  ASSERT_TRUE(credits.OnRequest());
  EXPECT_EQ(credits.OnResponse(pool, 0), 3u);
}

// A client as messages.h describes it, with messages under way in both directions.
struct Client {
  explicit Client(uint32_t window) : credits(window) {}
  ConnectionCredits credits;       // the server's
  std::deque<uint32_t> requests;   // under way: `wanted`
  std::deque<uint32_t> held;       // received by the server, not answered
  std::deque<uint32_t> responses;  // under way: grant
  uint32_t backlog = 0;
  uint32_t unanswered = 0;
  uint32_t grant = 1;
  uint32_t last_grant = 1;  // that the server has sent
};

// For any order of events: an honest client is never taken for one that sends too much, a grant
// never falls by more than one at a time, and the receive queue always has room for what is
// granted.
TEST(Credits, HoldForAnyOrderOfEvents) {
  std::mt19937 random(99);
  const auto below = [&random](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  for (int run = 0; run < 200; ++run) {
    const uint32_t clients = 1 + below(12);
    const uint32_t spare = below(60);
    const uint32_t depth = clients + spare;
    CreditPool pool(spare);
    std::vector<Client> all;
    for (uint32_t i = 0; i < clients; ++i) all.emplace_back(1 + below(32));
    for (int step = 0; step < 5000; ++step) {
      Client& client = all[below(clients)];
      switch (below(5)) {
        case 0:
          client.backlog += below(4) == 0 ? below(40) : 0;
          break;
        case 1:
          if (client.backlog > 0 && client.unanswered < client.grant) {
            --client.backlog;
            ++client.unanswered;
            const uint32_t can = client.grant - client.unanswered;
            client.requests.push_back(client.backlog > can ? client.backlog - can : 0);
          }
          break;
        case 2:
          if (!client.requests.empty()) {
            ASSERT_TRUE(client.credits.OnRequest());
            client.held.push_back(client.requests.front());
            client.requests.pop_front();
          }
          break;
        case 3:
          if (!client.held.empty()) {
            const uint32_t grant = client.credits.OnResponse(pool, client.held.front());
            client.held.pop_front();
            ASSERT_GE(grant, 1u);
            ASSERT_LE(grant, client.credits.window());
            ASSERT_GE(grant + 1, client.last_grant);
            client.last_grant = grant;
            client.responses.push_back(grant);
          }
          break;
        case 4:
          if (!client.responses.empty()) {
            client.grant = client.responses.front();
            client.responses.pop_front();
            --client.unanswered;
          }
          break;
      }
      uint32_t granted = 0;
      uint32_t at_server = 0;
      for (const Client& each : all) {
        granted += each.credits.grant();
        at_server += static_cast<uint32_t>(each.requests.size() + each.held.size());
        ASSERT_LE(each.requests.size() + each.held.size(), each.credits.grant());
      }
      ASSERT_EQ(granted, clients + (pool.size() - pool.free()));
      ASSERT_LE(granted, depth);
      ASSERT_LE(at_server, depth);
    }
    for (Client& client : all) client.credits.Close(pool);
    ASSERT_EQ(pool.free(), spare);
  }
}

}  // namespace
}  // namespace verbena::net
