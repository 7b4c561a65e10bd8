// How a server treats its queues on devices that behave otherwise than the software one: a server
// in this process behind a table that shows it such a device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "common/softverbs/softverbs.h"
#include "common/verbs/forwarding_verbs.h"
#include "server/server.h"
#include "tests/integration/eventually.h"
#include "tests/integration/raw_client.h"

namespace verbena::testing {
namespace {

using server::Server;
using server::ServerConfig;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::ElementsAre;

// How long a server waits for what a queue pair in ERR may still complete.
constexpr milliseconds kFlushLimit{200};
// How late a slow device tells, below that.
constexpr milliseconds kLate{20};

ServerConfig Config(verbs::VerbsApi& api, uint32_t workers) {
  ServerConfig config;
  config.listen = *NetAddress::Parse("127.0.0.1:0");
  config.memory = 8 << 20;
  config.huge_pages = false;
  config.queues = {.workers = workers, .max_connections = 8, .srq_depth = 64, .window = 8};
  config.fabrics = {{.api = &api, .required = true}};
  return config;
}

// The last receive of a queue pair from a shared receive queue is told late, or never.
class LastReceiveVerbs : public verbs::ForwardingVerbs {
 public:
  // A queue pair that was destroyed.
  struct Ending {
    bool told = false;      // the server had been told before
    milliseconds waited{};  // since it was to end
  };

  LastReceiveVerbs(verbs::VerbsApi& base, bool tells) : ForwardingVerbs(base), tells_(tells) {}

  std::vector<Ending> endings() const {
    const std::lock_guard lock(mutex_);
    return endings_;
  }

  int CmDisconnect(rdma_cm_id* id) override {
    {
      const std::lock_guard lock(mutex_);
      ended_.emplace(id->qp, steady_clock::now());
    }
    return base().CmDisconnect(id);
  }

  int GetAsyncEvent(ibv_context* context, ibv_async_event* event) override {
    while (true) {
      if (tells_ && AnyEndedLately()) {
        errno = EAGAIN;
        return -1;
      }
      const int returned = base().GetAsyncEvent(context, event);
      if (returned != 0 || event->event_type != IBV_EVENT_QP_LAST_WQE_REACHED) return returned;
      if (tells_) {
        const std::lock_guard lock(mutex_);
        told_.insert(event->element.qp);
        return 0;
      }
      base().AckAsyncEvent(event);
    }
  }

  void CmDestroyQp(rdma_cm_id* id) override {
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = ended_.find(id->qp); found != ended_.end()) {
        endings_.push_back({told_.erase(id->qp) != 0, std::chrono::duration_cast<milliseconds>(
                                                          steady_clock::now() - found->second)});
        ended_.erase(found);
      }
    }
    base().CmDestroyQp(id);
  }

 private:
  bool AnyEndedLately() const {
    const std::lock_guard lock(mutex_);
    return std::any_of(ended_.begin(), ended_.end(),
                       [](const auto& each) { return steady_clock::now() - each.second < kLate; });
  }

  const bool tells_;
  mutable std::mutex mutex_;
  std::map<ibv_qp*, steady_clock::time_point> ended_;
  std::set<ibv_qp*> told_;
  std::vector<Ending> endings_;
};

// Clients, one after another, that the server disconnects.
void DisconnectSome(Server& server, int count) {
  for (int i = 0; i < count; ++i) {
    auto client = RawClient::ConnectAndGreet(softverbs::SoftVerbs(), server.address());
    ASSERT_TRUE(client.ok()) << client.status().ToString();
    ASSERT_TRUE((*client)->Send(std::vector<uint8_t>(8, 0xff)).ok());
    EXPECT_TRUE((*client)->WaitClosed().ok());
    ASSERT_TRUE(Eventually([&] { return server.network().connections() == 0; }));
  }
}

// A queue pair is destroyed only when the device has said that it has taken its last receive, or
// has not said so for long enough: a completion that comes later would be lost with its buffer.
TEST(ServerQueues, TheLastSharedReceiveIsAwaited) {
  LastReceiveVerbs verbs(softverbs::SoftVerbs(), /*tells=*/true);
  auto server = Server::Start(Config(verbs, 1));
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  DisconnectSome(**server, 4);
  const auto endings = verbs.endings();
  ASSERT_EQ(endings.size(), 4u);
  for (const auto& ending : endings) {
    EXPECT_TRUE(ending.told || ending.waited >= kFlushLimit) << ending.waited.count() << " ms";
  }
}

// Where it is never said, that is found out once.
TEST(ServerQueues, ADeviceThatNeverTellsIsNotWaitedForAgain) {
  LastReceiveVerbs verbs(softverbs::SoftVerbs(), /*tells=*/false);
  auto server = Server::Start(Config(verbs, 1));
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  DisconnectSome(**server, 4);
  const auto endings = verbs.endings();
  ASSERT_EQ(endings.size(), 4u);
  EXPECT_GE(endings.front().waited, kFlushLimit);
  const auto shortest =
      std::min_element(endings.begin(), endings.end(),
                       [](const auto& a, const auto& b) { return a.waited < b.waited; });
  EXPECT_LT(shortest->waited, kFlushLimit);
}

// A device with several interrupts.
class VectorVerbs : public verbs::ForwardingVerbs {
 public:
  static constexpr int kVectors = 3;

  using ForwardingVerbs::ForwardingVerbs;

  std::vector<int> asked() const {
    const std::lock_guard lock(mutex_);
    return asked_;
  }

  int CmBindAddr(rdma_cm_id* id, sockaddr* address) override {
    const int returned = base().CmBindAddr(id, address);
    if (id->verbs != nullptr) id->verbs->num_comp_vectors = kVectors;
    return returned;
  }
  ibv_cq* CreateCq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                   int comp_vector) override {
    {
      const std::lock_guard lock(mutex_);
      asked_.push_back(comp_vector);
    }
    return base().CreateCq(context, cqe, cq_context, channel, comp_vector);
  }

 private:
  mutable std::mutex mutex_;
  std::vector<int> asked_;
};

// One interrupt for all would wake every worker on the same processor.
TEST(ServerQueues, WorkersHaveInterruptsOfTheirOwn) {
  VectorVerbs verbs(softverbs::SoftVerbs());
  auto server = Server::Start(Config(verbs, 4));
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  EXPECT_THAT(verbs.asked(), ElementsAre(0, 1, 2, 0));
  auto client = RawClient::ConnectAndGreet(softverbs::SoftVerbs(), (*server)->address());
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  // The queue for its answers is its worker's, which is the first one with no client.
  EXPECT_THAT(verbs.asked(), ElementsAre(0, 1, 2, 0, 0));
}

}  // namespace
}  // namespace verbena::testing
