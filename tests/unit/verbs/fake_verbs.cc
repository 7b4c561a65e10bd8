#include "tests/unit/verbs/fake_verbs.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace verbena::verbs {
namespace {

// The fake that made a context, and whose requests for events count.
thread_local int* armed_counter = nullptr;

int CountArm(ibv_cq*, int) {
  if (armed_counter != nullptr) ++*armed_counter;
  return 0;
}

// By read and write, which thread sanitizers know as synchronisation.
void Signal(int fd) {
  const eventfd_t one = 1;
  if (write(fd, &one, sizeof(one)) != sizeof(one)) std::abort();
}
bool TakeSignal(int fd) {
  eventfd_t one;
  return read(fd, &one, sizeof(one)) == sizeof(one);
}

}  // namespace

FakeVerbs::FakeVerbs(int devices)
    : devices_(static_cast<size_t>(std::max(devices, 0))), no_support_(devices < 0) {
  for (size_t i = 0; i < devices_.size(); ++i) {
    std::snprintf(devices_[i].name, sizeof(devices_[i].name), "fake%zu", i);
    devices_[i].transport_type = IBV_TRANSPORT_IB;
  }
  armed_counter = &armed_;
}

FakeVerbs::~FakeVerbs() { armed_counter = nullptr; }

void FakeVerbs::Add(const void* object, std::string kind, std::vector<const void*> uses) {
  for (const void* used : uses) {
    if (used != nullptr && live_.find(used) == live_.end()) {
      Breach(kind + " made with an object that does not exist");
    }
  }
  live_[object] = {std::move(kind), std::move(uses)};
}

int FakeVerbs::Remove(const void* object) {
  const auto found = live_.find(object);
  if (found == live_.end()) {
    Breach("destroyed something that does not exist");
    return EINVAL;
  }
  for (const auto& [other, live] : live_) {
    if (std::find(live.uses.begin(), live.uses.end(), object) != live.uses.end()) {
      Breach(found->second.kind + " destroyed before " + live.kind);
      return EBUSY;
    }
  }
  destroyed_.push_back(found->second.kind);
  live_.erase(found);
  return 0;
}

ibv_device** FakeVerbs::GetDeviceList(int* count) {
  if (no_support_) {
    errno = ENOSYS;
    return nullptr;
  }
  auto** const list = new ibv_device*[devices_.size() + 1];
  for (size_t i = 0; i < devices_.size(); ++i) list[i] = &devices_[i];
  list[devices_.size()] = nullptr;
  if (count != nullptr) *count = static_cast<int>(devices_.size());
  Add(list, "list", {});
  return list;
}
void FakeVerbs::FreeDeviceList(ibv_device** list) {
  if (Remove(list) == 0) delete[] list;
}
ibv_context* FakeVerbs::OpenDevice(ibv_device* device) {
  auto* const context = new ibv_context{};
  context->device = device;
  context->ops.req_notify_cq = CountArm;
  context->async_fd = eventfd(0, EFD_NONBLOCK | EFD_SEMAPHORE);
  Add(context, "device", {});
  return context;
}
int FakeVerbs::CloseDevice(ibv_context* context) {
  if (Remove(context) != 0) {
    errno = EBUSY;
    return -1;
  }
  close(context->async_fd);
  delete context;
  return 0;
}
int FakeVerbs::QueryDevice(ibv_context*, ibv_device_attr* attr) {
  *attr = {};
  attr->max_qp_rd_atom = 8;
  attr->max_qp_init_rd_atom = 4;
  return 0;
}
int FakeVerbs::QueryPort(ibv_context*, uint8_t port, ibv_port_attr* attr) {
  if (port != 1) return EINVAL;
  *attr = {};
  attr->active_mtu = IBV_MTU_4096;
  attr->link_layer = IBV_LINK_LAYER_ETHERNET;
  return 0;
}
int FakeVerbs::QueryGid(ibv_context*, uint8_t, int index, ibv_gid* gid) {
  if (index != 0) {
    errno = EINVAL;
    return -1;
  }
  std::memset(gid, 0x11, sizeof(*gid));
  return 0;
}
int FakeVerbs::QueryGidEx(ibv_context*, uint32_t port, uint32_t index, ibv_gid_entry* entry) {
  if (index != 0) return ENODATA;
  *entry = {};
  entry->port_num = port;
  entry->gid_type = IBV_GID_TYPE_ROCE_V2;
  std::memset(&entry->gid, 0x11, sizeof(entry->gid));
  return 0;
}
void FakeVerbs::RaiseAsyncEvent(ibv_context*, ibv_event_type type) {
  ibv_async_event event{};
  event.event_type = type;
  async_events_.push_back(event);
}
int FakeVerbs::GetAsyncEvent(ibv_context*, ibv_async_event* event) {
  if (async_events_.empty()) {
    errno = EAGAIN;
    return -1;
  }
  *event = async_events_.front();
  async_events_.pop_front();
  return 0;
}
void FakeVerbs::AckAsyncEvent(ibv_async_event*) { ++acked_async_events_; }

ibv_pd* FakeVerbs::AllocPd(ibv_context* context) {
  auto* const pd = new ibv_pd{};
  pd->context = context;
  Add(pd, "pd", {context});
  return pd;
}
int FakeVerbs::DeallocPd(ibv_pd* pd) {
  const int error = Remove(pd);
  if (error == 0) delete pd;
  return error;
}
ibv_mr* FakeVerbs::RegMr(ibv_pd* pd, void* address, size_t length, int access) {
  if ((access & IBV_ACCESS_REMOTE_WRITE) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0) {
    errno = EINVAL;
    return nullptr;
  }
  auto* const mr = new ibv_mr{};
  mr->context = pd->context;
  mr->pd = pd;
  mr->addr = address;
  mr->length = length;
  mr->lkey = 17;
  mr->rkey = 18;
  Add(mr, "mr", {pd});
  return mr;
}
int FakeVerbs::DeregMr(ibv_mr* mr) {
  const int error = Remove(mr);
  if (error == 0) delete mr;
  return error;
}
ibv_comp_channel* FakeVerbs::CreateCompChannel(ibv_context* context) {
  auto* const channel = new ibv_comp_channel{};
  channel->context = context;
  channel->fd = eventfd(0, EFD_SEMAPHORE);
  Add(channel, "channel", {context});
  return channel;
}
int FakeVerbs::DestroyCompChannel(ibv_comp_channel* channel) {
  const int error = Remove(channel);
  if (error == 0) {
    close(channel->fd);
    delete channel;
  }
  return error;
}
ibv_cq* FakeVerbs::CreateCq(ibv_context* context, int cqe, void* cq_context,
                            ibv_comp_channel* channel, int) {
  auto* const cq = new ibv_cq{};
  cq->context = context;
  cq->channel = channel;
  cq->cq_context = cq_context;
  cq->cqe = cqe + 3;
  taken_cq_events_[cq] = 0;
  acked_cq_events_[cq] = 0;
  Add(cq, "cq", {context, channel});
  return cq;
}
int FakeVerbs::DestroyCq(ibv_cq* cq) {
  if (taken_cq_events_[cq] != acked_cq_events_[cq]) {
    Breach("cq destroyed with events that were not acknowledged (a real one waits for ever)");
  }
  const int error = Remove(cq);
  if (error == 0) delete cq;
  return error;
}
void FakeVerbs::RaiseCqEvent(ibv_cq* cq) {
  cq_events_.push_back(cq);
  Signal(cq->channel->fd);
}
int FakeVerbs::GetCqEvent(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  // Waits if the descriptor is a waiting one, as the real function does.
  if (!TakeSignal(channel->fd)) return -1;
  *cq = cq_events_.front();
  cq_events_.pop_front();
  *cq_context = (*cq)->cq_context;
  ++taken_cq_events_[*cq];
  return 0;
}
void FakeVerbs::AckCqEvents(ibv_cq* cq, unsigned count) {
  acked_cq_events_[cq] += count;
  if (acked_cq_events_[cq] > taken_cq_events_[cq]) Breach("cq event acknowledged twice");
}

ibv_srq* FakeVerbs::CreateSrq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  auto* const srq = new ibv_srq{};
  srq->context = pd->context;
  srq->pd = pd;
  attr->attr.max_wr += 4;
  Add(srq, "srq", {pd});
  return srq;
}
int FakeVerbs::ModifySrq(ibv_srq*, ibv_srq_attr*, int) { return 0; }
int FakeVerbs::QuerySrq(ibv_srq*, ibv_srq_attr*) { return EOPNOTSUPP; }
int FakeVerbs::DestroySrq(ibv_srq* srq) {
  const int error = Remove(srq);
  if (error == 0) delete srq;
  return error;
}
ibv_qp* FakeVerbs::CreateQp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  auto* const qp = new ibv_qp{};
  qp->context = pd->context;
  qp->pd = pd;
  qp->qp_num = 99;
  qp->state = IBV_QPS_RESET;
  attr->cap.max_inline_data = 64;
  Add(qp, "qp", {pd, attr->send_cq, attr->recv_cq, attr->srq});
  return qp;
}
int FakeVerbs::ModifyQp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  last_modify_ = *attr;
  last_modify_mask_ = mask;
  if ((mask & IBV_QP_STATE) != 0) qp->state = attr->qp_state;
  return 0;
}
int FakeVerbs::QueryQp(ibv_qp* qp, ibv_qp_attr* attr, int, ibv_qp_init_attr*) {
  attr->qp_state = qp->state;
  return 0;
}
int FakeVerbs::DestroyQp(ibv_qp* qp) {
  const int error = Remove(qp);
  if (error == 0) delete qp;
  return error;
}

rdma_event_channel* FakeVerbs::CmCreateEventChannel() {
  auto* const channel = new rdma_event_channel{eventfd(0, EFD_SEMAPHORE)};
  Add(channel, "cm channel", {});
  return channel;
}
void FakeVerbs::CmDestroyEventChannel(rdma_event_channel* channel) {
  if (Remove(channel) != 0) return;
  close(channel->fd);
  delete channel;
}
rdma_cm_id* FakeVerbs::NewId(rdma_event_channel* channel, void* context) {
  auto* const id = new rdma_cm_id{};
  id->channel = channel;
  id->context = context;
  id->port_num = 1;
  Add(id, "id", {channel});
  return id;
}
int FakeVerbs::CmCreateId(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                          rdma_port_space) {
  *id = NewId(channel, context);
  return 0;
}
int FakeVerbs::CmDestroyId(rdma_cm_id* id) {
  for (const rdma_cm_event* event : taken_cm_events_) {
    if (event->id == id) {
      Breach("id destroyed inside an event that was not acknowledged (a real one waits for ever)");
    }
  }
  const int error = Remove(id);
  if (error != 0) {
    errno = error;
    return -1;
  }
  delete id;
  return 0;
}
void FakeVerbs::RaiseCmEvent(rdma_event_channel* channel, rdma_cm_event_type type, rdma_cm_id* id,
                             const std::string& private_data) {
  auto* const event = new rdma_cm_event{};
  event->id = id;
  event->event = type;
  auto data = std::make_unique<std::string>(private_data);
  if (!data->empty()) {
    event->param.conn.private_data = data->data();
    event->param.conn.private_data_len = static_cast<uint8_t>(data->size());
  }
  cm_data_[event] = std::move(data);
  cm_events_[channel].push_back(event);
  Signal(channel->fd);
}
rdma_cm_id* FakeVerbs::RaiseConnectRequest(rdma_cm_id* listener, const std::string& private_data) {
  rdma_cm_id* const id = NewId(listener->channel, listener->context);
  RaiseCmEvent(listener->channel, RDMA_CM_EVENT_CONNECT_REQUEST, id, private_data);
  return id;
}
int FakeVerbs::CmGetEvent(rdma_event_channel* channel, rdma_cm_event** event) {
  if (!TakeSignal(channel->fd)) return -1;
  *event = cm_events_[channel].front();
  cm_events_[channel].pop_front();
  taken_cm_events_.insert(*event);
  return 0;
}
int FakeVerbs::CmAckEvent(rdma_cm_event* event) {
  if (taken_cm_events_.erase(event) == 0) {
    Breach("cm event acknowledged twice");
    errno = EINVAL;
    return -1;
  }
  ++acked_cm_events_;
  cm_data_.erase(event);
  delete event;
  return 0;
}
int FakeVerbs::CmBindAddr(rdma_cm_id* id, sockaddr* address) {
  if (address->sa_family == AF_INET) std::memcpy(&id->route.addr.src_addr, address, 16);
  return 0;
}
int FakeVerbs::CmListen(rdma_cm_id*, int) { return 0; }
int FakeVerbs::CmResolveAddr(rdma_cm_id*, sockaddr*, sockaddr*, int) { return 0; }
int FakeVerbs::CmResolveRoute(rdma_cm_id*, int) { return 0; }
int FakeVerbs::CmConnect(rdma_cm_id*, rdma_conn_param* param) {
  last_param_ = *param;
  return 0;
}
int FakeVerbs::CmAccept(rdma_cm_id*, rdma_conn_param* param) {
  last_param_ = *param;
  return 0;
}
int FakeVerbs::CmReject(rdma_cm_id*, const void*, uint8_t) { return 0; }
int FakeVerbs::CmDisconnect(rdma_cm_id*) { return 0; }
int FakeVerbs::CmCreateQp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attr) {
  auto* const qp = new ibv_qp{};
  qp->qp_num = 100;
  attr->cap.max_inline_data = 64;
  id->qp = qp;
  Add(qp, "cm qp", {id, pd, attr->send_cq, attr->recv_cq, attr->srq});
  return 0;
}
void FakeVerbs::CmDestroyQp(rdma_cm_id* id) {
  if (Remove(id->qp) == 0) delete std::exchange(id->qp, nullptr);
}
int FakeVerbs::CmSetOption(rdma_cm_id*, int, int, void*, size_t) { return 0; }
int FakeVerbs::CmInitQpAttr(rdma_cm_id*, ibv_qp_attr* attr, int* mask) {
  // What a connection manager might say.
  attr->ah_attr.is_global = 1;
  attr->retry_cnt = 1;
  attr->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  *mask = IBV_QP_STATE | 0x200000;
  return 0;
}
int FakeVerbs::CmMigrateId(rdma_cm_id* id, rdma_event_channel* channel) {
  id->channel = channel;
  live_[id].uses = {channel};
  return 0;
}

}  // namespace verbena::verbs
