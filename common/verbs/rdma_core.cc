#include "common/verbs/rdma_core.h"

#include <cstdlib>

namespace verbena::verbs {
namespace {

class RdmaCore final : public VerbsApi {
 public:
  const char* fabric() const override { return "verbs"; }

  ibv_device** GetDeviceList(int* count) override { return ibv_get_device_list(count); }
  void FreeDeviceList(ibv_device** list) override { ibv_free_device_list(list); }
  ibv_context* OpenDevice(ibv_device* device) override { return ibv_open_device(device); }
  int CloseDevice(ibv_context* context) override { return ibv_close_device(context); }
  int QueryDevice(ibv_context* context, ibv_device_attr* attr) override {
    return ibv_query_device(context, attr);
  }
  int QueryPort(ibv_context* context, uint8_t port, ibv_port_attr* attr) override {
    return ibv_query_port(context, port, attr);
  }
  int QueryGid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) override {
    return ibv_query_gid(context, port, index, gid);
  }
  int QueryGidEx(ibv_context* context, uint32_t port, uint32_t index,
                 ibv_gid_entry* entry) override {
    return ibv_query_gid_ex(context, port, index, entry, 0);
  }
  int GetAsyncEvent(ibv_context* context, ibv_async_event* event) override {
    return ibv_get_async_event(context, event);
  }
  void AckAsyncEvent(ibv_async_event* event) override { ibv_ack_async_event(event); }

  ibv_pd* AllocPd(ibv_context* context) override { return ibv_alloc_pd(context); }
  int DeallocPd(ibv_pd* pd) override { return ibv_dealloc_pd(pd); }
  ibv_mr* RegMr(ibv_pd* pd, void* address, size_t length, int access) override {
    return ibv_reg_mr(pd, address, length, static_cast<unsigned>(access));
  }
  int DeregMr(ibv_mr* mr) override { return ibv_dereg_mr(mr); }

  ibv_comp_channel* CreateCompChannel(ibv_context* context) override {
    return ibv_create_comp_channel(context);
  }
  int DestroyCompChannel(ibv_comp_channel* channel) override {
    return ibv_destroy_comp_channel(channel);
  }
  ibv_cq* CreateCq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                   int comp_vector) override {
    return ibv_create_cq(context, cqe, cq_context, channel, comp_vector);
  }
  int DestroyCq(ibv_cq* cq) override { return ibv_destroy_cq(cq); }
  int GetCqEvent(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) override {
    return ibv_get_cq_event(channel, cq, cq_context);
  }
  void AckCqEvents(ibv_cq* cq, unsigned count) override { ibv_ack_cq_events(cq, count); }

  ibv_srq* CreateSrq(ibv_pd* pd, ibv_srq_init_attr* attr) override {
    return ibv_create_srq(pd, attr);
  }
  int ModifySrq(ibv_srq* srq, ibv_srq_attr* attr, int mask) override {
    return ibv_modify_srq(srq, attr, mask);
  }
  int QuerySrq(ibv_srq* srq, ibv_srq_attr* attr) override { return ibv_query_srq(srq, attr); }
  int DestroySrq(ibv_srq* srq) override { return ibv_destroy_srq(srq); }

  ibv_qp* CreateQp(ibv_pd* pd, ibv_qp_init_attr* attr) override { return ibv_create_qp(pd, attr); }
  int ModifyQp(ibv_qp* qp, ibv_qp_attr* attr, int mask) override {
    return ibv_modify_qp(qp, attr, mask);
  }
  int QueryQp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) override {
    return ibv_query_qp(qp, attr, mask, init);
  }
  int DestroyQp(ibv_qp* qp) override { return ibv_destroy_qp(qp); }

  rdma_event_channel* CmCreateEventChannel() override { return rdma_create_event_channel(); }
  void CmDestroyEventChannel(rdma_event_channel* channel) override {
    rdma_destroy_event_channel(channel);
  }
  int CmGetEvent(rdma_event_channel* channel, rdma_cm_event** event) override {
    return rdma_get_cm_event(channel, event);
  }
  int CmAckEvent(rdma_cm_event* event) override { return rdma_ack_cm_event(event); }
  int CmCreateId(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                 rdma_port_space space) override {
    return rdma_create_id(channel, id, context, space);
  }
  int CmDestroyId(rdma_cm_id* id) override { return rdma_destroy_id(id); }
  int CmBindAddr(rdma_cm_id* id, sockaddr* address) override { return rdma_bind_addr(id, address); }
  int CmListen(rdma_cm_id* id, int backlog) override { return rdma_listen(id, backlog); }
  int CmResolveAddr(rdma_cm_id* id, sockaddr* source, sockaddr* target, int timeout_ms) override {
    return rdma_resolve_addr(id, source, target, timeout_ms);
  }
  int CmResolveRoute(rdma_cm_id* id, int timeout_ms) override {
    return rdma_resolve_route(id, timeout_ms);
  }
  int CmConnect(rdma_cm_id* id, rdma_conn_param* param) override { return rdma_connect(id, param); }
  int CmAccept(rdma_cm_id* id, rdma_conn_param* param) override { return rdma_accept(id, param); }
  int CmReject(rdma_cm_id* id, const void* data, uint8_t length) override {
    return rdma_reject(id, data, length);
  }
  int CmDisconnect(rdma_cm_id* id) override { return rdma_disconnect(id); }
  int CmCreateQp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attr) override {
    return rdma_create_qp(id, pd, attr);
  }
  void CmDestroyQp(rdma_cm_id* id) override { rdma_destroy_qp(id); }
  int CmSetOption(rdma_cm_id* id, int level, int name, void* value, size_t length) override {
    return rdma_set_option(id, level, name, value, length);
  }
  int CmInitQpAttr(rdma_cm_id* id, ibv_qp_attr* attr, int* mask) override {
    return rdma_init_qp_attr(id, attr, mask);
  }
  int CmMigrateId(rdma_cm_id* id, rdma_event_channel* channel) override {
    return rdma_migrate_id(id, channel);
  }
};

}  // namespace

VerbsApi& RdmaCoreVerbs() {
  // Never destroyed: threads may use it until the very end.
  static RdmaCore& table = *new RdmaCore;
  return table;
}

void AllowDestroyingAfterRemoval() {
  // What the user has set stays.
  setenv("RDMAV_ALLOW_DISASSOC_DESTROY", "1", /*overwrite=*/0);
}

}  // namespace verbena::verbs
