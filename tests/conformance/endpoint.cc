#include "tests/conformance/endpoint.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>

#include <cerrno>
#include <cstdlib>

#include "common/base/clock.h"
#include "common/softverbs/softverbs.h"

namespace verbena::conformance {

verbs::VerbsApi& Api() { return softverbs::SoftVerbs(); }

bool Readable(int fd, int timeout_ms) {
  pollfd entry = {fd, POLLIN, 0};
  int ready;
  do {
    ready = poll(&entry, 1, timeout_ms);
  } while (ready < 0 && errno == EINTR);
  return ready == 1;
}

Endpoint::Endpoint(rdma_cm_id* cm_id, const Options& chosen)
    : id(cm_id), options(chosen), context(cm_id->verbs) {
  pd = Api().AllocPd(context);
  if (options.use_channel) channel = Api().CreateCompChannel(context);
  cq = Api().CreateCq(context, options.cqe, nullptr, channel, 0);
  if (options.srq_wr != 0) {
    ibv_srq_init_attr attr{};
    attr.attr.max_wr = options.srq_wr;
    attr.attr.max_sge = options.max_recv_sge;
    srq = Api().CreateSrq(pd, &attr);
  }
  if (options.memfd) {
    auto created = SharedMemory::Create("conformance", options.buffer, false);
    if (!created.ok()) std::abort();
    shared = std::move(*created);
    data = shared.data();
    if (options.seal_writes && !shared.SealFutureWrites().ok()) std::abort();
  } else {
    memory.resize(options.buffer + 64);
    data = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
  }
  mr = Api().RegMr(pd, data, options.buffer, options.access);
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = cq;
  attr.srq = srq;
  attr.qp_type = IBV_QPT_RC;
  attr.sq_sig_all = options.signal_all ? 1 : 0;
  attr.cap.max_send_wr = options.max_send_wr;
  attr.cap.max_recv_wr = options.max_recv_wr;
  attr.cap.max_send_sge = options.max_send_sge;
  attr.cap.max_recv_sge = options.max_recv_sge;
  attr.cap.max_inline_data = options.max_inline;
  if (pd == nullptr || cq == nullptr || mr == nullptr || Api().CmCreateQp(id, pd, &attr) != 0) {
    std::abort();  // the fixture cannot go on
  }
  qp = id->qp;
}

void Endpoint::DestroyQp() {
  if (qp != nullptr) Api().CmDestroyQp(id);
  qp = nullptr;
}

Endpoint::~Endpoint() {
  DestroyQp();
  if (srq != nullptr) Api().DestroySrq(srq);
  if (cq != nullptr) Api().DestroyCq(cq);
  if (channel != nullptr) Api().DestroyCompChannel(channel);
  if (mr != nullptr) Api().DeregMr(mr);
  if (pd != nullptr) Api().DeallocPd(pd);
  if (id != nullptr) Api().CmDestroyId(id);
}

ibv_sge Endpoint::Sge(size_t offset, uint32_t length) const {
  return {reinterpret_cast<uint64_t>(data + offset), length, mr->lkey};
}

int Endpoint::PostRecv(uint64_t wr_id, size_t offset, uint32_t length) {
  ibv_sge sge = Sge(offset, length);
  ibv_recv_wr wr = {wr_id, nullptr, &sge, 1};
  ibv_recv_wr* bad;
  return ibv_post_recv(qp, &wr, &bad);
}

int Endpoint::PostSrqRecv(uint64_t wr_id, size_t offset, uint32_t length) {
  ibv_sge sge = Sge(offset, length);
  ibv_recv_wr wr = {wr_id, nullptr, &sge, 1};
  ibv_recv_wr* bad;
  return ibv_post_srq_recv(srq, &wr, &bad);
}

int Endpoint::Post(ibv_send_wr* wr) {
  ibv_send_wr* bad;
  return ibv_post_send(qp, wr, &bad);
}

int Endpoint::PostSend(uint64_t wr_id, size_t offset, uint32_t length, unsigned flags) {
  ibv_sge sge = Sge(offset, length);
  ibv_send_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = flags;
  return Post(&wr);
}

int Endpoint::PostRead(uint64_t wr_id, size_t offset, uint32_t length, uint64_t remote,
                       uint32_t rkey, unsigned flags) {
  ibv_sge sge = Sge(offset, length);
  ibv_send_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_READ;
  wr.send_flags = flags;
  wr.wr.rdma.remote_addr = remote;
  wr.wr.rdma.rkey = rkey;
  return Post(&wr);
}

int Endpoint::PostWrite(uint64_t wr_id, size_t offset, uint32_t length, uint64_t remote,
                        uint32_t rkey, unsigned flags) {
  ibv_sge sge = Sge(offset, length);
  ibv_send_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = flags;
  wr.wr.rdma.remote_addr = remote;
  wr.wr.rdma.rkey = rkey;
  return Post(&wr);
}

ibv_wc Endpoint::Wait(int timeout_ms) {
  const int64_t deadline = MonotonicNanos() + int64_t{timeout_ms} * 1'000'000;
  ibv_wc wc{};
  int polls = 0;
  do {
    if (ibv_poll_cq(cq, 1, &wc) == 1) return wc;
    // The other end may need this processor.
    if (++polls % 16384 == 0) sched_yield();
  } while (MonotonicNanos() < deadline);
  wc = {};
  wc.status = IBV_WC_GENERAL_ERR;
  wc.wr_id = ~uint64_t{0};
  return wc;
}

bool Endpoint::Quiet(int milliseconds) { return Wait(milliseconds).wr_id == ~uint64_t{0}; }

ibv_async_event Endpoint::WaitAsync(int timeout_ms) {
  ibv_async_event event{};
  event.event_type = IBV_EVENT_DEVICE_FATAL;
  if (!Readable(context->async_fd, timeout_ms)) return event;
  if (Api().GetAsyncEvent(context, &event) == 0) Api().AckAsyncEvent(&event);
  return event;
}

ibv_qp_state Endpoint::State() const {
  ibv_qp_attr attr;
  ibv_qp_init_attr init;
  return Api().QueryQp(qp, &attr, IBV_QP_STATE, &init) == 0 ? attr.qp_state : IBV_QPS_UNKNOWN;
}

int Endpoint::ToError() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  return Api().ModifyQp(qp, &attr, IBV_QP_STATE);
}

void Event::Ack() {
  if (event_ != nullptr) Api().CmAckEvent(event_);
  event_ = nullptr;
}

Event NextEvent(rdma_event_channel* channel, int timeout_ms) {
  rdma_cm_event* event = nullptr;
  if (Readable(channel->fd, timeout_ms)) Api().CmGetEvent(channel, &event);
  return Event(event);
}

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

uint16_t PortOf(const rdma_cm_id* id) { return ntohs(id->route.addr.src_sin.sin_port); }

rdma_cm_id* ListenOnFreePort(rdma_event_channel* channel) {
  rdma_cm_id* id = nullptr;
  sockaddr_in address = Loopback(0);
  if (Api().CmCreateId(channel, &id, nullptr, RDMA_PS_TCP) != 0 ||
      Api().CmBindAddr(id, reinterpret_cast<sockaddr*>(&address)) != 0 ||
      Api().CmListen(id, 16) != 0) {
    return nullptr;
  }
  return id;
}

rdma_cm_id* ResolvedId(rdma_event_channel* channel, uint16_t port) {
  rdma_cm_id* id = nullptr;
  sockaddr_in address = Loopback(port);
  if (Api().CmCreateId(channel, &id, nullptr, RDMA_PS_TCP) != 0 ||
      Api().CmResolveAddr(id, nullptr, reinterpret_cast<sockaddr*>(&address), 1000) != 0) {
    return nullptr;
  }
  if (const Event event = NextEvent(channel);
      event.get() == nullptr || event->event != RDMA_CM_EVENT_ADDR_RESOLVED) {
    return nullptr;
  }
  if (Api().CmResolveRoute(id, 1000) != 0) return nullptr;
  const Event event = NextEvent(channel);
  return event.get() != nullptr && event->event == RDMA_CM_EVENT_ROUTE_RESOLVED ? id : nullptr;
}

rdma_conn_param ConnParam(const Options& options) {
  rdma_conn_param param{};
  param.responder_resources = options.depth;
  param.initiator_depth = options.depth;
  param.retry_count = options.retry;
  param.rnr_retry_count = options.rnr_retry;
  return param;
}

Pair::Pair(const Options& client_options, const Options& server_options)
    : client_events(Api().CmCreateEventChannel()), server_events(Api().CmCreateEventChannel()) {
  listener = ListenOnFreePort(server_events);
  if (listener == nullptr) std::abort();
  rdma_cm_id* id = ResolvedId(client_events, PortOf(listener));
  if (id == nullptr) std::abort();
  client = std::make_unique<Endpoint>(id, client_options);
  rdma_conn_param param = ConnParam(client_options);
  if (Api().CmConnect(id, &param) != 0) std::abort();
  Event request = NextEvent(server_events);
  if (request.get() == nullptr || request->event != RDMA_CM_EVENT_CONNECT_REQUEST) std::abort();
  server = std::make_unique<Endpoint>(request->id, server_options);
  request.Ack();
  param = ConnParam(server_options);
  if (Api().CmAccept(server->id, &param) != 0) std::abort();
  const Event client_up = NextEvent(client_events);
  const Event server_up = NextEvent(server_events);
  if (client_up.get() == nullptr || client_up->event != RDMA_CM_EVENT_ESTABLISHED ||
      server_up.get() == nullptr || server_up->event != RDMA_CM_EVENT_ESTABLISHED) {
    std::abort();
  }
}

Pair::~Pair() {
  client.reset();
  server.reset();
  Api().CmDestroyId(listener);
  Api().CmDestroyEventChannel(client_events);
  Api().CmDestroyEventChannel(server_events);
}

}  // namespace verbena::conformance
