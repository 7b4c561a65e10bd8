// The other process of the two-process tests: a server that prints where it is and then serves
// every connection until it is killed or its standard input ends.
//
//   soft_peer MODE [BUFFER_BYTES]
//     echo    polls, and sends every message back
//     events  the same, asleep between messages
//     fetch   takes messages {address 8, key 4, length 4}, READs that memory of the client's, and
//             sends what it got back (nothing, if the READ fails)
//     sealed  as idle, in a memfd that nobody else can map for writing
//     idle    accepts, posts receives, and never looks at its CQ
//     heap    the same, with its memory in no memfd
//
// Prints the port that it listens on. Address and key of its registered memory, whose byte i is
// (i * 7) & 0xff, travel in the private data of accept.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string_view>

#include "tests/conformance/endpoint.h"

namespace verbena::conformance {
namespace {

constexpr uint32_t kMessage = 4096;
constexpr uint32_t kReceives = 64;

struct Server {
  std::string_view mode;
  rdma_event_channel* events = nullptr;
  std::map<rdma_cm_id*, std::unique_ptr<Endpoint>> connections;
  Options options;
};

void PostReceive(Endpoint* end, uint64_t slot) { end->PostRecv(slot, slot * kMessage, kMessage); }

void OnEvent(Server* server, Event event) {
  rdma_cm_id* id = event->id;
  switch (event->event) {
    case RDMA_CM_EVENT_CONNECT_REQUEST: {
      auto end = std::make_unique<Endpoint>(id, server->options);
      for (uint64_t slot = 0; slot < kReceives; ++slot) PostReceive(end.get(), slot);
      for (size_t i = 0; i < server->options.buffer; ++i)
        end->data[i] = static_cast<uint8_t>(i * 7);
      if (end->channel != nullptr) ibv_req_notify_cq(end->cq, 0);
      // Address and key of the memory travel in the private data.
      uint64_t where[2] = {reinterpret_cast<uint64_t>(end->data), end->mr->rkey};
      rdma_conn_param param = ConnParam(server->options);
      param.private_data = where;
      param.private_data_len = sizeof(where);
      event.Ack();
      if (Api().CmAccept(id, &param) != 0) std::exit(3);
      server->connections[id] = std::move(end);
      break;
    }
    case RDMA_CM_EVENT_DISCONNECTED:
      event.Ack();
      server->connections.erase(id);
      break;
    default:
      break;
  }
}

bool Echo(Endpoint* end) {
  ibv_wc wc;
  if (ibv_poll_cq(end->cq, 1, &wc) != 1 || wc.status != IBV_WC_SUCCESS) return false;
  if (wc.opcode != IBV_WC_RECV) return true;
  // Unsignalled but for one in 16, which keeps the queue's slots coming back.
  static uint64_t count = 0;
  unsigned flags = ++count % 16 == 0 ? unsigned{IBV_SEND_SIGNALED} : 0u;
  if (wc.byte_len <= end->options.max_inline) flags |= IBV_SEND_INLINE;
  end->PostSend(~uint64_t{0}, wc.wr_id * kMessage, wc.byte_len, flags);
  PostReceive(end, wc.wr_id);
  return true;
}

// Fetches what a client's message names, and sends it back.
bool Fetch(Endpoint* end) {
  ibv_wc wc;
  if (ibv_poll_cq(end->cq, 1, &wc) != 1 || wc.status != IBV_WC_SUCCESS) return false;
  if (wc.opcode != IBV_WC_RECV) return true;
  constexpr size_t kTarget = kReceives * kMessage;
  uint64_t address;
  std::array<uint32_t, 2> key_and_length;
  std::memcpy(&address, end->data + wc.wr_id * kMessage, 8);
  std::memcpy(key_and_length.data(), end->data + wc.wr_id * kMessage + 8, 8);
  end->PostRead(1, kTarget, key_and_length[1], address, key_and_length[0]);
  if (end->Wait().status != IBV_WC_SUCCESS) return false;
  end->PostSend(2, kTarget, key_and_length[1]);
  PostReceive(end, wc.wr_id);
  return true;
}

void DrainChannel(Endpoint* end) {
  ibv_cq* cq;
  void* context;
  if (!Readable(end->channel->fd, 0) || Api().GetCqEvent(end->channel, &cq, &context) != 0) return;
  Api().AckCqEvents(cq, 1);
  ibv_req_notify_cq(cq, 0);
  while (Echo(end)) {
  }
}

int Serve(std::string_view mode, size_t buffer) {
  Server server;
  server.mode = mode;
  server.options.memfd = mode != "heap";
  server.options.seal_writes = mode == "sealed";
  server.options.buffer = buffer;
  server.options.max_send_wr = 128;
  server.options.use_channel = mode == "events";
  server.events = Api().CmCreateEventChannel();
  rdma_cm_id* listener = ListenOnFreePort(server.events);
  if (listener == nullptr) return 2;
  std::printf("%u\n", PortOf(listener));
  std::fflush(stdout);
  const bool fetch = mode == "fetch";
  const bool busy = fetch || mode == "echo";
  uint64_t idle_rounds = 0;
  for (uint64_t round = 0;; ++round) {
    if (!busy || round % 1024 == 0) {
      std::vector<pollfd> fds = {{server.events->fd, POLLIN, 0}, {0, 0, 0}};
      for (auto& [id, end] : server.connections) {
        if (end->channel != nullptr) fds.push_back({end->channel->fd, POLLIN, 0});
      }
      poll(fds.data(), fds.size(), busy ? 0 : -1);
      if ((fds[1].revents & (POLLHUP | POLLERR)) != 0) return 0;
      if ((fds[0].revents & POLLIN) != 0) OnEvent(&server, NextEvent(server.events, 0));
    }
    bool idle = true;
    for (auto& [id, end] : server.connections) {
      if (busy) {
        idle = !(fetch ? Fetch(end.get()) : Echo(end.get())) && idle;
      } else if (end->channel != nullptr) {
        DrainChannel(end.get());
      }
    }
    idle_rounds = idle ? idle_rounds + 1 : 0;
    if (busy && idle_rounds % 16384 == 16383) sched_yield();
  }
}

}  // namespace
}  // namespace verbena::conformance

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const std::string_view mode = argc > 1 ? argv[1] : "echo";
  const size_t buffer = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : size_t{1} << 20;
  return verbena::conformance::Serve(mode, buffer);
}
