// rdma_cm: addresses, the handshake and its private data, refusals, the end of a connection.
#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>

#include "tests/conformance/endpoint.h"

namespace verbena::conformance {
namespace {

class CmTest : public testing::Test {
 protected:
  void SetUp() override {
    client_events_ = Api().CmCreateEventChannel();
    server_events_ = Api().CmCreateEventChannel();
    listener_ = ListenOnFreePort(server_events_);
    ASSERT_NE(listener_, nullptr);
  }
  void TearDown() override {
    if (listener_ != nullptr) {
      EXPECT_EQ(Api().CmDestroyId(listener_), 0);
    }
    Api().CmDestroyEventChannel(client_events_);
    Api().CmDestroyEventChannel(server_events_);
  }
  // A client that has asked to connect with this private data.
  std::unique_ptr<Endpoint> Ask(const std::string& data) {
    rdma_cm_id* id = ResolvedId(client_events_, PortOf(listener_));
    if (id == nullptr) return nullptr;
    auto end = std::make_unique<Endpoint>(id, Options());
    rdma_conn_param param = ConnParam({});
    param.private_data = data.data();
    param.private_data_len = static_cast<uint8_t>(data.size());
    return Api().CmConnect(id, &param) == 0 ? std::move(end) : nullptr;
  }
  static std::string Data(const Event& event) {
    return {static_cast<const char*>(event->param.conn.private_data),
            event->param.conn.private_data_len};
  }

  rdma_event_channel* client_events_ = nullptr;
  rdma_event_channel* server_events_ = nullptr;
  rdma_cm_id* listener_ = nullptr;
};

TEST_F(CmTest, PrivateDataBothWaysPaddedWithZeros) {
  auto client = Ask("hello");
  ASSERT_TRUE(client);
  Event request = NextEvent(server_events_);
  ASSERT_NE(request.get(), nullptr);
  ASSERT_EQ(request->event, RDMA_CM_EVENT_CONNECT_REQUEST);
  EXPECT_EQ(request->listen_id, listener_);
  EXPECT_NE(request->id, listener_);
  EXPECT_EQ(request->id->context, listener_->context);
  EXPECT_NE(request->id->verbs, nullptr);
  EXPECT_EQ(Data(request), std::string("hello") + std::string(51, '\0'));
  EXPECT_EQ(request->param.conn.rnr_retry_count, 7);
  EXPECT_EQ(request->param.conn.qp_num, client->qp->qp_num);
  EXPECT_EQ(ntohs(request->id->route.addr.src_sin.sin_port), PortOf(listener_));
  Endpoint server(request->id, {});
  request.Ack();
  rdma_conn_param param = ConnParam({});
  const std::string answer(196, 'z');
  param.private_data = answer.data();
  param.private_data_len = 196;
  ASSERT_EQ(Api().CmAccept(server.id, &param), 0);
  EXPECT_EQ(server.State(), IBV_QPS_RTS) << "accept brings the QP up";
  const Event up = NextEvent(client_events_);
  ASSERT_EQ(up->event, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(Data(up), answer);
  EXPECT_EQ(client->State(), IBV_QPS_RTS);
  EXPECT_EQ(NextEvent(server_events_)->event, RDMA_CM_EVENT_ESTABLISHED);
}

TEST_F(CmTest, PrivateDataTooLong) {
  rdma_cm_id* id = ResolvedId(client_events_, PortOf(listener_));
  ASSERT_NE(id, nullptr);
  Endpoint end(id, {});
  const std::string data(57, 'x');
  rdma_conn_param param = ConnParam({});
  param.private_data = data.data();
  param.private_data_len = 57;
  EXPECT_EQ(Api().CmConnect(id, &param), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(CmTest, RejectCarriesReasonAndData) {
  auto client = Ask("");
  ASSERT_TRUE(client);
  {
    Event request = NextEvent(server_events_);
    ASSERT_EQ(request->event, RDMA_CM_EVENT_CONNECT_REQUEST);
    rdma_cm_id* id = request->id;
    request.Ack();
    EXPECT_EQ(Api().CmReject(id, "go away", 7), 0);
    EXPECT_EQ(Api().CmDestroyId(id), 0);
  }
  const Event rejected = NextEvent(client_events_);
  ASSERT_EQ(rejected->event, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(rejected->status, 28);
  EXPECT_EQ(Data(rejected), std::string("go away") + std::string(141, '\0'));
}

TEST_F(CmTest, DestroyingARequestRejectsIt) {
  auto client = Ask("");
  ASSERT_TRUE(client);
  Event request = NextEvent(server_events_);
  rdma_cm_id* id = request->id;
  request.Ack();
  EXPECT_EQ(Api().CmDestroyId(id), 0);
  EXPECT_EQ(NextEvent(client_events_)->event, RDMA_CM_EVENT_REJECTED);
}

TEST_F(CmTest, DestroyingTheListenerRejectsWaitingRequests) {
  auto client = Ask("");
  ASSERT_TRUE(client);
  ASSERT_TRUE(Readable(server_events_->fd, kPatienceMs));
  EXPECT_EQ(Api().CmDestroyId(listener_), 0);
  listener_ = nullptr;
  EXPECT_EQ(NextEvent(client_events_)->event, RDMA_CM_EVENT_REJECTED);
}

TEST_F(CmTest, NobodyListens) {
  const uint16_t port = PortOf(listener_);
  EXPECT_EQ(Api().CmDestroyId(listener_), 0);
  listener_ = nullptr;
  rdma_cm_id* id = ResolvedId(client_events_, port);
  ASSERT_NE(id, nullptr);
  Endpoint end(id, {});
  rdma_conn_param param = ConnParam({});
  ASSERT_EQ(Api().CmConnect(id, &param), 0);
  const Event event = NextEvent(client_events_);
  ASSERT_EQ(event->event, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(event->status, 8);
}

TEST_F(CmTest, PortInUse) {
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(Api().CmCreateId(server_events_, &id, nullptr, RDMA_PS_TCP), 0);
  sockaddr_in address = Loopback(PortOf(listener_));
  EXPECT_EQ(Api().CmBindAddr(id, reinterpret_cast<sockaddr*>(&address)), -1);
  EXPECT_EQ(errno, EADDRINUSE);
  // The wildcard would answer for the same address.
  address.sin_addr.s_addr = INADDR_ANY;
  EXPECT_EQ(Api().CmBindAddr(id, reinterpret_cast<sockaddr*>(&address)), -1);
  EXPECT_EQ(errno, EADDRINUSE);
  // Another address is another matter.
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
  EXPECT_EQ(Api().CmBindAddr(id, reinterpret_cast<sockaddr*>(&address)), 0);
  EXPECT_EQ(Api().CmDestroyId(id), 0);
}

TEST_F(CmTest, WildcardListenerAnswersForLoopback) {
  rdma_cm_id* any = nullptr;
  ASSERT_EQ(Api().CmCreateId(server_events_, &any, nullptr, RDMA_PS_TCP), 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  ASSERT_EQ(Api().CmBindAddr(any, reinterpret_cast<sockaddr*>(&address)), 0);
  ASSERT_EQ(Api().CmListen(any, 1), 0);
  EXPECT_NE(PortOf(any), 0);
  rdma_cm_id* id = ResolvedId(client_events_, PortOf(any));
  ASSERT_NE(id, nullptr);
  Endpoint end(id, {});
  rdma_conn_param param = ConnParam({});
  ASSERT_EQ(Api().CmConnect(id, &param), 0);
  Event request = NextEvent(server_events_);
  ASSERT_EQ(request->event, RDMA_CM_EVENT_CONNECT_REQUEST);
  EXPECT_EQ(request->listen_id, any);
  rdma_cm_id* accepted = request->id;
  request.Ack();
  EXPECT_EQ(Api().CmDestroyId(accepted), 0);
  EXPECT_EQ(Api().CmDestroyId(any), 0);
}

TEST_F(CmTest, AddressesOfOthers) {
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(Api().CmCreateId(client_events_, &id, nullptr, RDMA_PS_TCP), 0);
  sockaddr_in address = Loopback(7000);
  inet_pton(AF_INET, "192.0.2.1", &address.sin_addr);  // reserved for documentation
  EXPECT_EQ(Api().CmBindAddr(id, reinterpret_cast<sockaddr*>(&address)), -1);
  EXPECT_EQ(errno, EADDRNOTAVAIL);
  ASSERT_EQ(Api().CmResolveAddr(id, nullptr, reinterpret_cast<sockaddr*>(&address), 100), 0);
  {
    const Event event = NextEvent(client_events_);
    EXPECT_EQ(event->event, RDMA_CM_EVENT_ADDR_ERROR);
    EXPECT_LT(event->status, 0);
  }
  EXPECT_EQ(Api().CmDestroyId(id), 0);
}

TEST_F(CmTest, CallsOutOfOrder) {
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(Api().CmCreateId(client_events_, &id, nullptr, RDMA_PS_TCP), 0);
  rdma_conn_param param = ConnParam({});
  EXPECT_EQ(Api().CmResolveRoute(id, 100), -1);
  EXPECT_EQ(Api().CmConnect(id, &param), -1);
  EXPECT_EQ(Api().CmAccept(id, &param), -1);
  EXPECT_EQ(Api().CmDisconnect(id), -1);
  EXPECT_EQ(Api().CmDestroyId(id), 0);
}

TEST(CmConnectionTest, DisconnectReachesBothEnds) {
  Pair pair;
  pair.client->PostRecv(3, 0, 64);
  ASSERT_EQ(Api().CmDisconnect(pair.client->id), 0);
  EXPECT_EQ(pair.client->Wait().status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(NextEvent(pair.client_events)->event, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(NextEvent(pair.server_events)->event, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(pair.client->State(), IBV_QPS_ERR);
  pair.server->PostRecv(4, 0, 64);
  ASSERT_EQ(Api().CmDisconnect(pair.server->id), 0);
  EXPECT_EQ(pair.server->Wait().status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_FALSE(Readable(pair.client_events->fd, 5)) << "once at each end";
  EXPECT_FALSE(Readable(pair.server_events->fd, 5));
}

TEST(CmConnectionTest, DestroyingAnIdDisconnects) {
  Pair pair;
  pair.client.reset();
  EXPECT_EQ(NextEvent(pair.server_events)->event, RDMA_CM_EVENT_DISCONNECTED);
}

TEST(CmConnectionTest, MigratedIdReportsElsewhere) {
  Pair pair;
  rdma_event_channel* other = Api().CmCreateEventChannel();
  ASSERT_EQ(Api().CmMigrateId(pair.server->id, other), 0);
  EXPECT_EQ(pair.server->id->channel, other);
  ASSERT_EQ(Api().CmDisconnect(pair.client->id), 0);
  EXPECT_EQ(NextEvent(other)->event, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_FALSE(Readable(pair.server_events->fd, 1));
  pair.server.reset();
  Api().CmDestroyEventChannel(other);
}

TEST(CmConnectionTest, DepthsAreNegotiated) {
  Options client;
  client.depth = 8;
  Options server;
  server.depth = 3;
  Pair pair(client, server);
  ibv_qp_attr attr;
  ibv_qp_init_attr init;
  ASSERT_EQ(Api().QueryQp(pair.client->qp, &attr, IBV_QP_MAX_QP_RD_ATOMIC, &init), 0);
  EXPECT_EQ(attr.max_rd_atomic, 3);
  ASSERT_EQ(Api().QueryQp(pair.server->qp, &attr, IBV_QP_MAX_DEST_RD_ATOMIC, &init), 0);
  EXPECT_EQ(attr.max_dest_rd_atomic, 3);
}

TEST(CmConnectionTest, ManyConnectionsAtOnce) {
  rdma_event_channel* client_events = Api().CmCreateEventChannel();
  rdma_event_channel* server_events = Api().CmCreateEventChannel();
  rdma_cm_id* listener = ListenOnFreePort(server_events);
  ASSERT_NE(listener, nullptr);
  constexpr int kConnections = 64;
  Options options;
  options.buffer = 4096;
  std::vector<std::unique_ptr<Endpoint>> ends;
  std::thread acceptor([&] {
    for (int up = 0; up < kConnections;) {
      Event event = NextEvent(server_events);
      if (event.get() == nullptr) return;
      if (event->event == RDMA_CM_EVENT_ESTABLISHED) {
        ++up;
      } else if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
        auto end = std::make_unique<Endpoint>(event->id, options);
        rdma_conn_param param = ConnParam(options);
        Api().CmAccept(end->id, &param);
        ends.push_back(std::move(end));
      }
    }
  });
  std::vector<std::unique_ptr<Endpoint>> clients;
  for (int i = 0; i < kConnections; ++i) {
    rdma_cm_id* id = ResolvedId(client_events, PortOf(listener));
    ASSERT_NE(id, nullptr);
    clients.push_back(std::make_unique<Endpoint>(id, options));
    rdma_conn_param param = ConnParam(options);
    ASSERT_EQ(Api().CmConnect(id, &param), 0);
    ASSERT_EQ(NextEvent(client_events)->event, RDMA_CM_EVENT_ESTABLISHED);
  }
  acceptor.join();
  EXPECT_EQ(ends.size(), size_t{kConnections});
  clients.clear();
  for (int i = 0; i < kConnections; ++i) {
    EXPECT_EQ(NextEvent(server_events)->event, RDMA_CM_EVENT_DISCONNECTED);
  }
  ends.clear();
  EXPECT_EQ(Api().CmDestroyId(listener), 0);
  Api().CmDestroyEventChannel(client_events);
  Api().CmDestroyEventChannel(server_events);
}

}  // namespace
}  // namespace verbena::conformance
