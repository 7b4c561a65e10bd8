#include "common/softverbs/softverbs.h"

#include <cerrno>

#include "common/softverbs/completion_queue.h"
#include "common/softverbs/connection_manager.h"
#include "common/softverbs/device.h"
#include "common/softverbs/memory_regions.h"
#include "common/softverbs/port.h"
#include "common/softverbs/queue_pair.h"
#include "common/softverbs/receive_queue.h"

namespace verbena::softverbs {
namespace {

// rdma_* convention: 0, or -1 with errno.
int Rdma(int error) {
  if (error == 0) return 0;
  errno = error;
  return -1;
}

CmId* Id(rdma_cm_id* id) { return static_cast<CmId*>(id); }
CmChannel* Channel(rdma_event_channel* channel) { return static_cast<CmChannel*>(channel); }
ProtectionDomain* Pd(ibv_pd* pd) { return static_cast<ProtectionDomain*>(pd); }

// Counts an acknowledgement and wakes a destroyer of the object.
template <typename Object>
void AckAsyncOf(Object* object, uint32_t* completed) {
  pthread_mutex_lock(&object->mutex);
  ++*completed;
  pthread_cond_signal(&object->cond);
  pthread_mutex_unlock(&object->mutex);
}

class SoftVerbsApi : public verbs::VerbsApi {
 public:
  const char* fabric() const override { return "soft"; }
  // Its socket; of a process that was not connected before also an MR table, an event counter of
  // its service thread and of its completion channel, and the memory that it has registered.
  uint32_t descriptors_per_connection() const override { return 8; }

  ibv_device** GetDeviceList(int* count) override {
    Device* device = Device::Get();
    if (device == nullptr) return nullptr;
    if (count != nullptr) *count = 1;
    return new ibv_device* [2] { device->abi(), nullptr };
  }
  void FreeDeviceList(ibv_device** list) override { delete[] list; }
  ibv_context* OpenDevice(ibv_device* device) override {
    return Device::Get() == nullptr ? nullptr : Context::Open(device);
  }
  int CloseDevice(ibv_context* context) override {
    if (Context::From(context)->users.load() != 0) return EBUSY;
    delete Context::From(context);
    return 0;
  }
  int QueryDevice(ibv_context*, ibv_device_attr* attr) override {
    FillDeviceAttr(attr);
    return 0;
  }
  int QueryPort(ibv_context*, uint8_t port, ibv_port_attr* attr) override {
    if (port != 1) return EINVAL;
    FillPortAttr(attr);
    return 0;
  }
  int QueryGid(ibv_context*, uint8_t port, int index, ibv_gid* gid) override {
    ibv_gid_entry entry;
    if (!FillGidEntry(port, static_cast<uint32_t>(index), &entry)) return Rdma(EINVAL);
    *gid = entry.gid;
    return 0;
  }
  int QueryGidEx(ibv_context*, uint32_t port, uint32_t index, ibv_gid_entry* entry) override {
    if (port != 1) return EINVAL;
    return FillGidEntry(port, index, entry) ? 0 : ENODATA;
  }
  int GetAsyncEvent(ibv_context* context, ibv_async_event* event) override {
    return Context::From(context)->GetAsync(event);
  }
  void AckAsyncEvent(ibv_async_event* event) override {
    switch (event->event_type) {
      case IBV_EVENT_CQ_ERR:
        return AckAsyncOf(event->element.cq, &event->element.cq->async_events_completed);
      case IBV_EVENT_SRQ_LIMIT_REACHED:
      case IBV_EVENT_SRQ_ERR:
        return AckAsyncOf(event->element.srq, &event->element.srq->events_completed);
      case IBV_EVENT_QP_FATAL:
      case IBV_EVENT_QP_REQ_ERR:
      case IBV_EVENT_QP_ACCESS_ERR:
      case IBV_EVENT_QP_LAST_WQE_REACHED:
        return AckAsyncOf(event->element.qp, &event->element.qp->events_completed);
      default:
        return;
    }
  }

  ibv_pd* AllocPd(ibv_context* context) override {
    auto* pd = new ProtectionDomain();
    pd->context = context;
    pd->id = Device::Existing().NewPdId();
    pd->handle = pd->id;
    Context::From(context)->users.fetch_add(1);
    return pd;
  }
  int DeallocPd(ibv_pd* pd) override {
    if (Pd(pd)->users.load() != 0) return EBUSY;
    Context::From(pd->context)->users.fetch_sub(1);
    delete Pd(pd);
    return 0;
  }
  ibv_mr* RegMr(ibv_pd* pd, void* address, size_t length, int access) override {
    return Device::Existing().regions().Register(Pd(pd), address, length, access);
  }
  int DeregMr(ibv_mr* mr) override {
    return Device::Existing().regions().Deregister(static_cast<MemoryRegion*>(mr));
  }

  ibv_comp_channel* CreateCompChannel(ibv_context* context) override {
    return CompletionChannel::Create(Context::From(context));
  }
  int DestroyCompChannel(ibv_comp_channel* channel) override {
    return CompletionChannel::From(channel)->Destroy();
  }
  ibv_cq* CreateCq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                   int comp_vector) override {
    if (comp_vector < 0 || comp_vector >= context->num_comp_vectors) {
      errno = EINVAL;
      return nullptr;
    }
    return CompletionQueue::Create(Context::From(context), cqe, cq_context,
                                   static_cast<CompletionChannel*>(channel));
  }
  int DestroyCq(ibv_cq* cq) override { return CompletionQueue::From(cq)->Destroy(); }
  int GetCqEvent(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) override {
    return CompletionChannel::From(channel)->GetEvent(cq, cq_context);
  }
  void AckCqEvents(ibv_cq* cq, unsigned count) override {
    CompletionQueue::From(cq)->AckEvents(count);
  }

  ibv_srq* CreateSrq(ibv_pd* pd, ibv_srq_init_attr* attr) override {
    return SharedReceiveQueue::Create(Pd(pd), attr);
  }
  int ModifySrq(ibv_srq* srq, ibv_srq_attr* attr, int mask) override {
    return SharedReceiveQueue::From(srq)->Modify(*attr, mask);
  }
  int QuerySrq(ibv_srq* srq, ibv_srq_attr* attr) override {
    SharedReceiveQueue::From(srq)->Query(attr);
    return 0;
  }
  int DestroySrq(ibv_srq* srq) override { return SharedReceiveQueue::From(srq)->Destroy(); }

  ibv_qp* CreateQp(ibv_pd* pd, ibv_qp_init_attr* attr) override {
    return QueuePair::Create(Pd(pd), attr);
  }
  int ModifyQp(ibv_qp* qp, ibv_qp_attr* attr, int mask) override {
    return QueuePair::From(qp)->Modify(*attr, mask);
  }
  int QueryQp(ibv_qp* qp, ibv_qp_attr* attr, int, ibv_qp_init_attr* init) override {
    QueuePair::From(qp)->Query(attr, init);
    return 0;
  }
  int DestroyQp(ibv_qp* qp) override {
    return ConnectionManager::Get().DestroyQp(QueuePair::From(qp));
  }

  rdma_event_channel* CmCreateEventChannel() override {
    return Device::Get() == nullptr ? nullptr : ConnectionManager::Get().CreateChannel();
  }
  void CmDestroyEventChannel(rdma_event_channel* channel) override {
    ConnectionManager::Get().DestroyChannel(Channel(channel));
  }
  int CmGetEvent(rdma_event_channel* channel, rdma_cm_event** event) override {
    return Rdma(ConnectionManager::Get().GetEvent(Channel(channel), event));
  }
  int CmAckEvent(rdma_cm_event* event) override {
    return Rdma(ConnectionManager::Get().AckEvent(static_cast<CmEvent*>(event)));
  }
  int CmCreateId(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                 rdma_port_space space) override {
    if (Device::Get() == nullptr) return -1;
    return Rdma(ConnectionManager::Get().CreateId(Channel(channel), id, context, space));
  }
  int CmDestroyId(rdma_cm_id* id) override {
    return Rdma(ConnectionManager::Get().DestroyId(Id(id)));
  }
  int CmBindAddr(rdma_cm_id* id, sockaddr* address) override {
    return Rdma(ConnectionManager::Get().BindAddr(Id(id), address));
  }
  int CmListen(rdma_cm_id* id, int backlog) override {
    return Rdma(ConnectionManager::Get().Listen(Id(id), backlog));
  }
  int CmResolveAddr(rdma_cm_id* id, sockaddr* source, sockaddr* target, int) override {
    return Rdma(ConnectionManager::Get().ResolveAddr(Id(id), source, target));
  }
  int CmResolveRoute(rdma_cm_id* id, int) override {
    return Rdma(ConnectionManager::Get().ResolveRoute(Id(id)));
  }
  int CmConnect(rdma_cm_id* id, rdma_conn_param* param) override {
    return Rdma(ConnectionManager::Get().Connect(Id(id), param));
  }
  int CmAccept(rdma_cm_id* id, rdma_conn_param* param) override {
    return Rdma(ConnectionManager::Get().Accept(Id(id), param));
  }
  int CmReject(rdma_cm_id* id, const void* data, uint8_t length) override {
    return Rdma(ConnectionManager::Get().Reject(Id(id), data, length));
  }
  int CmDisconnect(rdma_cm_id* id) override {
    return Rdma(ConnectionManager::Get().Disconnect(Id(id)));
  }
  int CmCreateQp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attr) override {
    return Rdma(ConnectionManager::Get().CreateQp(Id(id), Pd(pd), attr));
  }
  void CmDestroyQp(rdma_cm_id* id) override {
    if (id->qp != nullptr) ConnectionManager::Get().DestroyQp(QueuePair::From(id->qp));
  }
  int CmSetOption(rdma_cm_id* id, int level, int name, void* value, size_t length) override {
    return Rdma(ConnectionManager::Get().SetOption(Id(id), level, name, value, length));
  }
  // Connections are more than their queue pairs' attributes here.
  int CmInitQpAttr(rdma_cm_id*, ibv_qp_attr*, int*) override { return Rdma(ENOSYS); }
  int CmMigrateId(rdma_cm_id* id, rdma_event_channel* channel) override {
    return Rdma(ConnectionManager::Get().MigrateId(Id(id), Channel(channel)));
  }
};

}  // namespace

verbs::VerbsApi& SoftVerbs() {
  static auto& api = *new SoftVerbsApi();
  return api;
}

}  // namespace verbena::softverbs
