// A client and a server side for the conformance tests: written against VerbsApi, so that another
// table can be put under test.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "common/base/shared_memory.h"
#include "common/verbs/verbs_api.h"

namespace verbena::conformance {

// The table under test.
verbs::VerbsApi& Api();

// How long to wait for something that must come.
inline constexpr int kPatienceMs = 20'000;

struct Options {
  uint32_t max_send_wr = 64;
  uint32_t max_recv_wr = 64;
  uint32_t max_send_sge = 4;
  uint32_t max_recv_sge = 4;
  uint32_t max_inline = 64;
  int cqe = 256;
  uint32_t srq_wr = 0;  // 0: no SRQ
  bool signal_all = false;
  bool use_channel = false;
  uint8_t depth = 16;  // READs in flight
  uint8_t rnr_retry = 7;
  uint8_t retry = 6;
  size_t buffer = 1 << 20;
  bool memfd = false;        // the buffer lies in a memfd, which peers can map
  bool seal_writes = false;  // ... and nobody else can map it for writing
  int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
               IBV_ACCESS_REMOTE_ATOMIC;
};

// Everything one end has: context, PD, CQ, SRQ, QP, one registered buffer. Members are public, as
// tests poke at them; the destructor takes down what is still there, in order.
class Endpoint {
 public:
  Endpoint(rdma_cm_id* cm_id, const Options& options);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  ibv_sge Sge(size_t offset, uint32_t length) const;
  int PostRecv(uint64_t wr_id, size_t offset, uint32_t length);
  int PostSrqRecv(uint64_t wr_id, size_t offset, uint32_t length);
  // Posts one send request; `flags` as IBV_SEND_*.
  int PostSend(uint64_t wr_id, size_t offset, uint32_t length, unsigned flags = IBV_SEND_SIGNALED);
  int PostRead(uint64_t wr_id, size_t offset, uint32_t length, uint64_t remote, uint32_t rkey,
               unsigned flags = IBV_SEND_SIGNALED);
  int PostWrite(uint64_t wr_id, size_t offset, uint32_t length, uint64_t remote, uint32_t rkey,
                unsigned flags = IBV_SEND_SIGNALED);
  int Post(ibv_send_wr* wr);
  // Polls until a completion comes; status GENERAL_ERR with wr_id ~0 if none does in time.
  ibv_wc Wait(int timeout_ms = kPatienceMs);
  // Whether the CQ stays empty for that long.
  bool Quiet(int milliseconds);
  ibv_async_event WaitAsync(int timeout_ms = kPatienceMs);  // acknowledged already
  ibv_qp_state State() const;
  int ToError();
  void DestroyQp();

  rdma_cm_id* id;
  Options options;
  ibv_context* context;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
  ibv_srq* srq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_mr* mr = nullptr;
  std::vector<uint8_t> memory;
  SharedMemory shared;
  uint8_t* data = nullptr;
};

// A CM event, acknowledged by the destructor.
class Event {
 public:
  explicit Event(rdma_cm_event* event) : event_(event) {}
  Event(Event&& other) noexcept : event_(other.event_) { other.event_ = nullptr; }
  ~Event() { Ack(); }
  void Ack();
  rdma_cm_event* operator->() const { return event_; }
  rdma_cm_event* get() const { return event_; }

 private:
  rdma_cm_event* event_;
};

// Waits for the next event of a channel; a null event after `timeout_ms`.
Event NextEvent(rdma_event_channel* channel, int timeout_ms = kPatienceMs);
// Makes a descriptor readable within the time?
bool Readable(int fd, int timeout_ms);

// A listener and one established connection to it, both ends in this process.
class Pair {
 public:
  explicit Pair(const Options& options = {}) : Pair(options, options) {}
  Pair(const Options& client_options, const Options& server_options);
  ~Pair();

  rdma_event_channel* client_events;
  rdma_event_channel* server_events;
  rdma_cm_id* listener = nullptr;
  std::unique_ptr<Endpoint> client;
  std::unique_ptr<Endpoint> server;
};

sockaddr_in Loopback(uint16_t port);
uint16_t PortOf(const rdma_cm_id* id);
// A listening id on a free port of 127.0.0.1; nullptr on failure.
rdma_cm_id* ListenOnFreePort(rdma_event_channel* channel);
// An id with its route to the port resolved; nullptr on failure.
rdma_cm_id* ResolvedId(rdma_event_channel* channel, uint16_t port);
rdma_conn_param ConnParam(const Options& options);

// The remote address of byte `offset` of an end's memory.
inline uint64_t Address(const Endpoint& end, size_t offset = 0) {
  return reinterpret_cast<uint64_t>(end.data + offset);
}

}  // namespace verbena::conformance
