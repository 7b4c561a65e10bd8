// A table of control verbs that hands every call on to another table. The base of tables that
// change a few calls: fault injection (fault_verbs.h), lower device limits in tests.
//
// Thread-safety: as the table behind it, which is borrowed and must live longer.
#pragma once

#include "common/verbs/verbs_api.h"

namespace verbena::verbs {

class ForwardingVerbs : public VerbsApi {
 public:
  explicit ForwardingVerbs(VerbsApi& base) : base_(base) {}

  VerbsApi& base() const { return base_; }

  const char* fabric() const override { return base_.fabric(); }
  uint32_t descriptors_per_connection() const override {
    return base_.descriptors_per_connection();
  }

  ibv_device** GetDeviceList(int* count) override { return base_.GetDeviceList(count); }
  void FreeDeviceList(ibv_device** list) override { base_.FreeDeviceList(list); }
  ibv_context* OpenDevice(ibv_device* device) override { return base_.OpenDevice(device); }
  int CloseDevice(ibv_context* context) override { return base_.CloseDevice(context); }
  int QueryDevice(ibv_context* context, ibv_device_attr* attr) override {
    return base_.QueryDevice(context, attr);
  }
  int QueryPort(ibv_context* context, uint8_t port, ibv_port_attr* attr) override {
    return base_.QueryPort(context, port, attr);
  }
  int QueryGid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) override {
    return base_.QueryGid(context, port, index, gid);
  }
  int QueryGidEx(ibv_context* context, uint32_t port, uint32_t index,
                 ibv_gid_entry* entry) override {
    return base_.QueryGidEx(context, port, index, entry);
  }
  int GetAsyncEvent(ibv_context* context, ibv_async_event* event) override {
    return base_.GetAsyncEvent(context, event);
  }
  void AckAsyncEvent(ibv_async_event* event) override { base_.AckAsyncEvent(event); }

  ibv_pd* AllocPd(ibv_context* context) override { return base_.AllocPd(context); }
  int DeallocPd(ibv_pd* pd) override { return base_.DeallocPd(pd); }
  ibv_mr* RegMr(ibv_pd* pd, void* address, size_t length, int access) override {
    return base_.RegMr(pd, address, length, access);
  }
  int DeregMr(ibv_mr* mr) override { return base_.DeregMr(mr); }

  ibv_comp_channel* CreateCompChannel(ibv_context* context) override {
    return base_.CreateCompChannel(context);
  }
  int DestroyCompChannel(ibv_comp_channel* channel) override {
    return base_.DestroyCompChannel(channel);
  }
  ibv_cq* CreateCq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                   int comp_vector) override {
    return base_.CreateCq(context, cqe, cq_context, channel, comp_vector);
  }
  int DestroyCq(ibv_cq* cq) override { return base_.DestroyCq(cq); }
  int GetCqEvent(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) override {
    return base_.GetCqEvent(channel, cq, cq_context);
  }
  void AckCqEvents(ibv_cq* cq, unsigned count) override { base_.AckCqEvents(cq, count); }

  ibv_srq* CreateSrq(ibv_pd* pd, ibv_srq_init_attr* attr) override {
    return base_.CreateSrq(pd, attr);
  }
  int ModifySrq(ibv_srq* srq, ibv_srq_attr* attr, int mask) override {
    return base_.ModifySrq(srq, attr, mask);
  }
  int QuerySrq(ibv_srq* srq, ibv_srq_attr* attr) override { return base_.QuerySrq(srq, attr); }
  int DestroySrq(ibv_srq* srq) override { return base_.DestroySrq(srq); }

  ibv_qp* CreateQp(ibv_pd* pd, ibv_qp_init_attr* attr) override { return base_.CreateQp(pd, attr); }
  int ModifyQp(ibv_qp* qp, ibv_qp_attr* attr, int mask) override {
    return base_.ModifyQp(qp, attr, mask);
  }
  int QueryQp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) override {
    return base_.QueryQp(qp, attr, mask, init);
  }
  int DestroyQp(ibv_qp* qp) override { return base_.DestroyQp(qp); }

  rdma_event_channel* CmCreateEventChannel() override { return base_.CmCreateEventChannel(); }
  void CmDestroyEventChannel(rdma_event_channel* channel) override {
    base_.CmDestroyEventChannel(channel);
  }
  int CmGetEvent(rdma_event_channel* channel, rdma_cm_event** event) override {
    return base_.CmGetEvent(channel, event);
  }
  int CmAckEvent(rdma_cm_event* event) override { return base_.CmAckEvent(event); }
  int CmCreateId(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                 rdma_port_space space) override {
    return base_.CmCreateId(channel, id, context, space);
  }
  int CmDestroyId(rdma_cm_id* id) override { return base_.CmDestroyId(id); }
  int CmBindAddr(rdma_cm_id* id, sockaddr* address) override {
    return base_.CmBindAddr(id, address);
  }
  int CmListen(rdma_cm_id* id, int backlog) override { return base_.CmListen(id, backlog); }
  int CmResolveAddr(rdma_cm_id* id, sockaddr* source, sockaddr* target, int timeout_ms) override {
    return base_.CmResolveAddr(id, source, target, timeout_ms);
  }
  int CmResolveRoute(rdma_cm_id* id, int timeout_ms) override {
    return base_.CmResolveRoute(id, timeout_ms);
  }
  int CmConnect(rdma_cm_id* id, rdma_conn_param* param) override {
    return base_.CmConnect(id, param);
  }
  int CmAccept(rdma_cm_id* id, rdma_conn_param* param) override {
    return base_.CmAccept(id, param);
  }
  int CmReject(rdma_cm_id* id, const void* data, uint8_t length) override {
    return base_.CmReject(id, data, length);
  }
  int CmDisconnect(rdma_cm_id* id) override { return base_.CmDisconnect(id); }
  int CmCreateQp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attr) override {
    return base_.CmCreateQp(id, pd, attr);
  }
  void CmDestroyQp(rdma_cm_id* id) override { base_.CmDestroyQp(id); }
  int CmSetOption(rdma_cm_id* id, int level, int name, void* value, size_t length) override {
    return base_.CmSetOption(id, level, name, value, length);
  }
  int CmInitQpAttr(rdma_cm_id* id, ibv_qp_attr* attr, int* mask) override {
    return base_.CmInitQpAttr(id, attr, mask);
  }
  int CmMigrateId(rdma_cm_id* id, rdma_event_channel* channel) override {
    return base_.CmMigrateId(id, channel);
  }

 private:
  VerbsApi& base_;
};

}  // namespace verbena::verbs
