// How a server treats its queues on devices that behave otherwise than the software one: a server
// in this process behind a table that shows it such a device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "client/src/fabric.h"
#include "common/softverbs/softverbs.h"
#include "common/verbs/forwarding_verbs.h"
#include "server/server.h"
#include "tests/integration/eventually.h"
#include "tests/integration/fabric_under_test.h"
#include "tests/integration/raw_client.h"
#include "verbena/connection.h"

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

ServerConfig Config(verbs::VerbsApi& api, uint32_t workers,
                    const std::string& listen = LocalAddress()) {
  ServerConfig config;
  config.listen = *NetAddress::Parse(listen);
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

// A client that the server disconnects.
void DisconnectOne(verbs::VerbsApi& api, Server& server) {
  auto client = RawClient::ConnectAndGreet(api, server.address());
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  ASSERT_TRUE((*client)->Send(std::vector<uint8_t>(8, 0xff)).ok());
  EXPECT_TRUE((*client)->WaitClosed().ok());
}

void DisconnectSome(verbs::VerbsApi& api, Server& server, int count) {
  for (int i = 0; i < count; ++i) {
    DisconnectOne(api, server);
    ASSERT_TRUE(Eventually([&] { return server.network().connections() == 0; }));
  }
}

// A queue pair is destroyed only when the device has said that it has taken its last receive, or
// has not said so for long enough: a completion that comes later would be lost with its buffer.
// (The software device tells; those of the kernel do not.)
TEST(ServerQueues, TheLastSharedReceiveIsAwaited) {
  LastReceiveVerbs verbs(softverbs::SoftVerbs(), /*tells=*/true);
  auto server = Server::Start(Config(verbs, 1, "127.0.0.1:0"));
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  DisconnectSome(softverbs::SoftVerbs(), **server, 4);
  const auto endings = verbs.endings();
  ASSERT_EQ(endings.size(), 4u);
  for (const auto& ending : endings) {
    EXPECT_TRUE(ending.told || ending.waited >= kFlushLimit) << ending.waited.count() << " ms";
  }
}

// Where it is never said, that is found out once.
TEST(ServerQueues, ADeviceThatNeverTellsIsNotWaitedForAgain) {
  LastReceiveVerbs verbs(Fabric(), /*tells=*/false);
  auto server = Server::Start(Config(verbs, 1));
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  DisconnectSome(Fabric(), **server, 4);
  const auto endings = verbs.endings();
  ASSERT_EQ(endings.size(), 4u);
  EXPECT_GE(endings.front().waited, kFlushLimit);
  const auto shortest =
      std::min_element(endings.begin(), endings.end(),
                       [](const auto& a, const auto& b) { return a.waited < b.waited; });
  EXPECT_LT(shortest->waited, kFlushLimit);
}

// A device with several interrupts. (It may have one, which is then taken for all.)
class VectorVerbs : public verbs::ForwardingVerbs {
 public:
  static constexpr int kVectors = 3;

  using ForwardingVerbs::ForwardingVerbs;
  // Contexts are kept for others.
  ~VectorVerbs() override {
    for (const auto& [context, vectors] : shown_) context->num_comp_vectors = vectors;
  }

  std::vector<int> asked() const {
    const std::lock_guard lock(mutex_);
    return asked_;
  }

  int CmBindAddr(rdma_cm_id* id, sockaddr* address) override {
    const int returned = base().CmBindAddr(id, address);
    Show(id->verbs);
    return returned;
  }
  int CmResolveRoute(rdma_cm_id* id, int timeout_ms) override {
    Show(id->verbs);
    return base().CmResolveRoute(id, timeout_ms);
  }
  ibv_cq* CreateCq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                   int comp_vector) override {
    {
      const std::lock_guard lock(mutex_);
      asked_.push_back(comp_vector);
    }
    return base().CreateCq(context, cqe, cq_context, channel, 0);
  }

 private:
  void Show(ibv_context* context) {
    if (context == nullptr) return;
    const std::lock_guard lock(mutex_);
    shown_.emplace(context, context->num_comp_vectors);
    context->num_comp_vectors = kVectors;
  }

  mutable std::mutex mutex_;
  std::map<ibv_context*, int> shown_;
  std::vector<int> asked_;
};

// A device that tells of what the software one never does. What is to be told follows the next
// event that really comes.
class EventfulVerbs : public verbs::ForwardingVerbs {
 public:
  using ForwardingVerbs::ForwardingVerbs;

  // An event of the device, about the queue that was made last where it is about one.
  void TellOfDevice(ibv_event_type type) {
    const std::lock_guard lock(mutex_);
    device_event_ = type;
  }
  // An event of the connection manager about the id that listened last.
  void TellOfListener(rdma_cm_event_type type) {
    const std::lock_guard lock(mutex_);
    cm_event_.event = type;
    cm_event_due_ = true;
  }
  int listens() const {
    const std::lock_guard lock(mutex_);
    return listens_;
  }

  int CmListen(rdma_cm_id* id, int backlog) override {
    const int returned = base().CmListen(id, backlog);
    const std::lock_guard lock(mutex_);
    ++listens_;
    cm_event_.id = id;
    return returned;
  }
  ibv_cq* CreateCq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                   int comp_vector) override {
    ibv_cq* const made = base().CreateCq(context, cqe, cq_context, channel, comp_vector);
    const std::lock_guard lock(mutex_);
    cq_ = made;
    return made;
  }
  int GetAsyncEvent(ibv_context* context, ibv_async_event* event) override {
    const int returned = base().GetAsyncEvent(context, event);
    if (returned == 0) {
      any_ = true;
      return 0;
    }
    const std::lock_guard lock(mutex_);
    if (!any_ || !device_event_.has_value()) return returned;
    event->event_type = *std::exchange(device_event_, std::nullopt);
    event->element.cq = cq_;
    return 0;
  }
  void AckAsyncEvent(ibv_async_event* event) override {
    switch (event->event_type) {
      case IBV_EVENT_CQ_ERR:
      case IBV_EVENT_SRQ_ERR:
      case IBV_EVENT_DEVICE_FATAL:
        return;
      default:
        base().AckAsyncEvent(event);
    }
  }
  int CmGetEvent(rdma_event_channel* channel, rdma_cm_event** event) override {
    const int returned = base().CmGetEvent(channel, event);
    if (returned == 0) return 0;
    const int error = errno;
    const std::lock_guard lock(mutex_);
    if (std::exchange(cm_event_due_, false)) {
      *event = &cm_event_;
      return 0;
    }
    errno = error;
    return returned;
  }
  int CmAckEvent(rdma_cm_event* event) override {
    return event == &cm_event_ ? 0 : base().CmAckEvent(event);
  }

 private:
  mutable std::mutex mutex_;
  std::optional<ibv_event_type> device_event_;
  std::atomic<bool> any_{false};
  ibv_cq* cq_ = nullptr;
  rdma_cm_event cm_event_{};
  bool cm_event_due_ = false;
  int listens_ = 0;
};

void ExpectServes(Server& server) {
  auto client = RawClient::ConnectAndGreet(softverbs::SoftVerbs(), server.address());
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  const auto answer = (*client)->Call(wire::OpCode::kPing, "", "x");
  EXPECT_TRUE(answer.ok()) << answer.status().ToString();
}

class SharedQueueFails : public ::testing::TestWithParam<ibv_event_type> {};

// All connections of the device end, and it is set up anew.
TEST_P(SharedQueueFails, AndIsReplaced) {
  EventfulVerbs verbs(softverbs::SoftVerbs());
  auto server = Server::Start(Config(verbs, 2, "127.0.0.1:0"));
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  auto client = RawClient::ConnectAndGreet(softverbs::SoftVerbs(), (*server)->address());
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  verbs.TellOfDevice(GetParam());
  // What the software device tells of by itself: a queue pair's last receive.
  DisconnectOne(softverbs::SoftVerbs(), **server);
  EXPECT_TRUE((*client)->WaitClosed().ok());
  ASSERT_TRUE(Eventually([&] { return verbs.listens() == 2; }));
  ExpectServes(**server);
}
INSTANTIATE_TEST_SUITE_P(Events, SharedQueueFails,
                         ::testing::Values(IBV_EVENT_CQ_ERR, IBV_EVENT_SRQ_ERR,
                                           IBV_EVENT_DEVICE_FATAL));

// Connections go on; whoever comes is heard on what has the address now.
TEST(ServerListens, AnewWhenTheInterfaceHasAnotherAddress) {
  EventfulVerbs verbs(softverbs::SoftVerbs());
  auto server = Server::Start(Config(verbs, 1, "127.0.0.1:0"));
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  verbs.TellOfListener(RDMA_CM_EVENT_ADDR_CHANGE);
  auto client = RawClient::ConnectAndGreet(softverbs::SoftVerbs(), (*server)->address());
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  ASSERT_TRUE(Eventually([&] { return verbs.listens() == 2; }));
  ExpectServes(**server);
  const auto answer = (*client)->Call(wire::OpCode::kPing, "", "x");
  EXPECT_TRUE(answer.ok()) << answer.status().ToString();
}

// One interrupt for all would wake every worker on the same processor.
TEST(ServerQueues, WorkersHaveInterruptsOfTheirOwn) {
  VectorVerbs verbs(Fabric());
  auto server = Server::Start(Config(verbs, 4));
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  EXPECT_THAT(verbs.asked(), ElementsAre(0, 1, 2, 0));
  auto client = RawClient::ConnectAndGreet(Fabric(), (*server)->address());
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  // The queue for its answers is its worker's, which is the first one with no client.
  EXPECT_THAT(verbs.asked(), ElementsAre(0, 1, 2, 0, 0));
}

// Nor would one for all the connections of a client, or for all the clients of a machine.
TEST(ClientQueues, ConnectionsTakeTheInterruptsInTurn) {
  auto server = Server::Start(Config(Fabric(), 1));
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  VectorVerbs verbs(Fabric());
  Options options;
  options.fabric = FabricName();
  options.connect_timeout = std::chrono::seconds(60);
  std::vector<std::unique_ptr<Connection>> clients;
  {
    const client::ScopedFabric scoped(verbs);
    for (int i = 0; i < 2 * VectorVerbs::kVectors; ++i) {
      auto connected = Connection::Connect((*server)->address(), options);
      ASSERT_TRUE(connected.ok()) << connected.status();
      clients.push_back(*std::move(connected));
    }
  }
  const std::vector<int> asked = verbs.asked();
  ASSERT_GE(asked.size(), clients.size());  // an attempt that is made again has one of its own
  for (size_t i = 1; i < asked.size(); ++i) {
    EXPECT_EQ(asked[i], (asked[i - 1] + 1) % VectorVerbs::kVectors) << i;
  }
}

}  // namespace
}  // namespace verbena::testing
