#include "bench/systems/server_facts.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace verbena::bench {
namespace {

TEST(ServerFacts, AreTakenFromTheInfo) {
  const ServerFacts facts =
      ParseServerFacts(R"({"pid": 42, "items": 7, "memory": {"used_bytes": 1000}, "x": []})");
  EXPECT_EQ(facts.pid, 42u);
  EXPECT_EQ(facts.items, 7u);
  EXPECT_EQ(facts.used_bytes, 1000u);
}

TEST(ServerFacts, WhatIsMissingOrStrangeIsLeftOut) {
  for (const char* info : {"", "[]", "null", "{", "{}", R"({"pid": "42", "items": -1})",
                           R"({"memory": 5})", R"({"memory": {"used_bytes": "many"}})"}) {
    const ServerFacts facts = ParseServerFacts(info);
    EXPECT_FALSE(facts.pid.has_value() || facts.items.has_value() || facts.used_bytes.has_value())
        << info;
  }
}

TEST(LocalServerPid, IsBelievedOnlyIfItFits) {
  ServerFacts facts;
  EXPECT_EQ(LocalServerPid(facts, "127.0.0.1:1", 0), 0);
  EXPECT_EQ(LocalServerPid(facts, "127.0.0.1:1", 42), 42);
  facts.pid = static_cast<uint64_t>(getpid());  // not a verbena-server
  EXPECT_EQ(LocalServerPid(facts, "127.0.0.1:1", 0), 0);
  EXPECT_EQ(LocalServerPid(facts, "192.0.2.1:1", 0), 0);  // another host
}

}  // namespace
}  // namespace verbena::bench
