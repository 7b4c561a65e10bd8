// The one door to RDMA: every control verb that Verbena uses, as a table of functions.
//
// Two tables exist: rdma-core's (RdmaCoreVerbs(), common/verbs/rdma_core.h) and the software
// device's (softverbs::SoftVerbs(), common/softverbs/softverbs.h). Tests wrap one to fail the n-th
// call or to lower a device's limits (ForwardingVerbs below).
//
// Every function has the name, meaning and error convention of the C function that it stands for
// (see its manual page): ibv_* that create return nullptr and set errno; other ibv_* return 0 or a
// positive errno (some -1 with errno); rdma_* return 0, or -1 with errno set. The owners in
// owners.h adapt these in one place (errors.h); nothing else calls the table.
//
// Data-path verbs (ibv_post_send, ibv_post_recv, ibv_post_srq_recv, ibv_poll_cq,
// ibv_req_notify_cq) are not here: they are inline calls through ibv_context::ops.
//
// Thread-safety: as the C functions (all may be called from any thread).
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

namespace verbena::verbs {

class VerbsApi {
 public:
  virtual ~VerbsApi() = default;

  // "verbs" or "soft": what the user sees as the fabric.
  virtual const char* fabric() const = 0;
  // File descriptors that the passive end of a connection may take; 0: none.
  virtual uint32_t descriptors_per_connection() const { return 0; }

  // Devices.
  virtual ibv_device** GetDeviceList(int* count) = 0;
  virtual void FreeDeviceList(ibv_device** list) = 0;
  virtual ibv_context* OpenDevice(ibv_device* device) = 0;
  virtual int CloseDevice(ibv_context* context) = 0;
  virtual int QueryDevice(ibv_context* context, ibv_device_attr* attr) = 0;
  virtual int QueryPort(ibv_context* context, uint8_t port, ibv_port_attr* attr) = 0;
  virtual int QueryGid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) = 0;
  // Without the last argument of ibv_query_gid_ex (flags), which must be 0.
  virtual int QueryGidEx(ibv_context* context, uint32_t port, uint32_t index,
                         ibv_gid_entry* entry) = 0;
  virtual int GetAsyncEvent(ibv_context* context, ibv_async_event* event) = 0;
  virtual void AckAsyncEvent(ibv_async_event* event) = 0;

  // Protection domains and memory regions.
  virtual ibv_pd* AllocPd(ibv_context* context) = 0;
  virtual int DeallocPd(ibv_pd* pd) = 0;
  virtual ibv_mr* RegMr(ibv_pd* pd, void* address, size_t length, int access) = 0;
  virtual int DeregMr(ibv_mr* mr) = 0;

  // Completion channels and queues.
  virtual ibv_comp_channel* CreateCompChannel(ibv_context* context) = 0;
  virtual int DestroyCompChannel(ibv_comp_channel* channel) = 0;
  virtual ibv_cq* CreateCq(ibv_context* context, int cqe, void* cq_context,
                           ibv_comp_channel* channel, int comp_vector) = 0;
  virtual int DestroyCq(ibv_cq* cq) = 0;
  virtual int GetCqEvent(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) = 0;
  virtual void AckCqEvents(ibv_cq* cq, unsigned count) = 0;

  // Shared receive queues.
  virtual ibv_srq* CreateSrq(ibv_pd* pd, ibv_srq_init_attr* attr) = 0;
  virtual int ModifySrq(ibv_srq* srq, ibv_srq_attr* attr, int mask) = 0;
  virtual int QuerySrq(ibv_srq* srq, ibv_srq_attr* attr) = 0;
  virtual int DestroySrq(ibv_srq* srq) = 0;

  // Queue pairs (made through rdma_create_qp below, or by hand in conformance tests).
  virtual ibv_qp* CreateQp(ibv_pd* pd, ibv_qp_init_attr* attr) = 0;
  virtual int ModifyQp(ibv_qp* qp, ibv_qp_attr* attr, int mask) = 0;
  virtual int QueryQp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) = 0;
  virtual int DestroyQp(ibv_qp* qp) = 0;

  // Connection manager.
  virtual rdma_event_channel* CmCreateEventChannel() = 0;
  virtual void CmDestroyEventChannel(rdma_event_channel* channel) = 0;
  virtual int CmGetEvent(rdma_event_channel* channel, rdma_cm_event** event) = 0;
  virtual int CmAckEvent(rdma_cm_event* event) = 0;
  virtual int CmCreateId(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                         rdma_port_space space) = 0;
  virtual int CmDestroyId(rdma_cm_id* id) = 0;
  virtual int CmBindAddr(rdma_cm_id* id, sockaddr* address) = 0;
  virtual int CmListen(rdma_cm_id* id, int backlog) = 0;
  virtual int CmResolveAddr(rdma_cm_id* id, sockaddr* source, sockaddr* target, int timeout_ms) = 0;
  virtual int CmResolveRoute(rdma_cm_id* id, int timeout_ms) = 0;
  virtual int CmConnect(rdma_cm_id* id, rdma_conn_param* param) = 0;
  virtual int CmAccept(rdma_cm_id* id, rdma_conn_param* param) = 0;
  virtual int CmReject(rdma_cm_id* id, const void* data, uint8_t length) = 0;
  virtual int CmDisconnect(rdma_cm_id* id) = 0;
  virtual int CmCreateQp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attr) = 0;
  virtual void CmDestroyQp(rdma_cm_id* id) = 0;
  virtual int CmSetOption(rdma_cm_id* id, int level, int name, void* value, size_t length) = 0;
  // Unlike the C function: -1 and ENOSYS where queue pairs cannot be moved by hand.
  virtual int CmInitQpAttr(rdma_cm_id* id, ibv_qp_attr* attr, int* mask) = 0;
  virtual int CmMigrateId(rdma_cm_id* id, rdma_event_channel* channel) = 0;
};

}  // namespace verbena::verbs
