// A table of control verbs without any device behind it: it hands out real structs, keeps the rules
// of ownership that a real device enforces, and writes down every breach of them. For tests of the
// owners. Not thread-safe, but an event may be raised in another thread than takes it.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/base/unique_fd.h"
#include "common/verbs/verbs_api.h"

namespace verbena::verbs {

class FakeVerbs final : public VerbsApi {
 public:
  // `devices`: how many the list has. -1: listing fails with ENOSYS.
  explicit FakeVerbs(int devices = 1);
  ~FakeVerbs() override;

  // Rules broken so far: acknowledged twice, destroyed while in use, destroyed twice, ...
  const std::vector<std::string>& breaches() const { return breaches_; }
  // Objects destroyed, in order, by kind ("pd", "mr", "cq", ...).
  const std::vector<std::string>& destroyed() const { return destroyed_; }
  size_t live() const { return live_.size(); }
  unsigned acked_events(ibv_cq* cq) const { return acked_cq_events_.at(cq); }
  int acked_cm_events() const { return acked_cm_events_; }
  int acked_async_events() const { return acked_async_events_; }
  const ibv_qp_attr& last_modify() const { return last_modify_; }
  int last_modify_mask() const { return last_modify_mask_; }
  const rdma_conn_param& last_param() const { return last_param_; }
  int armed() const { return armed_; }

  // Things that "happen".
  void RaiseCqEvent(ibv_cq* cq);
  void RaiseCmEvent(rdma_event_channel* channel, rdma_cm_event_type type, rdma_cm_id* id,
                    const std::string& private_data = {});
  // A connection request on `listener` with a new id.
  rdma_cm_id* RaiseConnectRequest(rdma_cm_id* listener, const std::string& private_data);
  void RaiseAsyncEvent(ibv_context* context, ibv_event_type type);

  const char* fabric() const override { return "fake"; }
  ibv_device** GetDeviceList(int* count) override;
  void FreeDeviceList(ibv_device** list) override;
  ibv_context* OpenDevice(ibv_device* device) override;
  int CloseDevice(ibv_context* context) override;
  int QueryDevice(ibv_context* context, ibv_device_attr* attr) override;
  int QueryPort(ibv_context* context, uint8_t port, ibv_port_attr* attr) override;
  int QueryGid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) override;
  int QueryGidEx(ibv_context* context, uint32_t port, uint32_t index,
                 ibv_gid_entry* entry) override;
  int GetAsyncEvent(ibv_context* context, ibv_async_event* event) override;
  void AckAsyncEvent(ibv_async_event* event) override;
  ibv_pd* AllocPd(ibv_context* context) override;
  int DeallocPd(ibv_pd* pd) override;
  ibv_mr* RegMr(ibv_pd* pd, void* address, size_t length, int access) override;
  int DeregMr(ibv_mr* mr) override;
  ibv_comp_channel* CreateCompChannel(ibv_context* context) override;
  int DestroyCompChannel(ibv_comp_channel* channel) override;
  ibv_cq* CreateCq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                   int comp_vector) override;
  int DestroyCq(ibv_cq* cq) override;
  int GetCqEvent(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) override;
  void AckCqEvents(ibv_cq* cq, unsigned count) override;
  ibv_srq* CreateSrq(ibv_pd* pd, ibv_srq_init_attr* attr) override;
  int ModifySrq(ibv_srq* srq, ibv_srq_attr* attr, int mask) override;
  int QuerySrq(ibv_srq* srq, ibv_srq_attr* attr) override;
  int DestroySrq(ibv_srq* srq) override;
  ibv_qp* CreateQp(ibv_pd* pd, ibv_qp_init_attr* attr) override;
  int ModifyQp(ibv_qp* qp, ibv_qp_attr* attr, int mask) override;
  int QueryQp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) override;
  int DestroyQp(ibv_qp* qp) override;
  rdma_event_channel* CmCreateEventChannel() override;
  void CmDestroyEventChannel(rdma_event_channel* channel) override;
  int CmGetEvent(rdma_event_channel* channel, rdma_cm_event** event) override;
  int CmAckEvent(rdma_cm_event* event) override;
  int CmCreateId(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                 rdma_port_space space) override;
  int CmDestroyId(rdma_cm_id* id) override;
  int CmBindAddr(rdma_cm_id* id, sockaddr* address) override;
  int CmListen(rdma_cm_id* id, int backlog) override;
  int CmResolveAddr(rdma_cm_id* id, sockaddr* source, sockaddr* target, int timeout_ms) override;
  int CmResolveRoute(rdma_cm_id* id, int timeout_ms) override;
  int CmConnect(rdma_cm_id* id, rdma_conn_param* param) override;
  int CmAccept(rdma_cm_id* id, rdma_conn_param* param) override;
  int CmReject(rdma_cm_id* id, const void* data, uint8_t length) override;
  int CmDisconnect(rdma_cm_id* id) override;
  int CmCreateQp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attr) override;
  void CmDestroyQp(rdma_cm_id* id) override;
  int CmSetOption(rdma_cm_id* id, int level, int name, void* value, size_t length) override;
  int CmInitQpAttr(rdma_cm_id* id, ibv_qp_attr* attr, int* mask) override;
  int CmMigrateId(rdma_cm_id* id, rdma_event_channel* channel) override;

 private:
  // Takes part in dependencies: `object` cannot be destroyed while something alive uses it.
  void Add(const void* object, std::string kind, std::vector<const void*> uses);
  // 0, or EBUSY if something alive uses it; breaches are written down.
  int Remove(const void* object);
  void Breach(std::string text) { breaches_.push_back(std::move(text)); }
  rdma_cm_id* NewId(rdma_event_channel* channel, void* context);

  struct Live {
    std::string kind;
    std::vector<const void*> uses;
  };

  std::vector<ibv_device> devices_;
  bool no_support_;
  std::map<const void*, Live> live_;
  std::vector<std::string> breaches_;
  std::vector<std::string> destroyed_;
  std::deque<ibv_cq*> cq_events_;
  std::map<ibv_cq*, unsigned> taken_cq_events_;
  std::map<ibv_cq*, unsigned> acked_cq_events_;
  std::map<rdma_event_channel*, std::deque<rdma_cm_event*>> cm_events_;
  std::map<rdma_cm_event*, std::unique_ptr<std::string>> cm_data_;
  std::set<rdma_cm_event*> taken_cm_events_;
  std::deque<ibv_async_event> async_events_;
  int acked_cm_events_ = 0;
  int acked_async_events_ = 0;
  ibv_qp_attr last_modify_{};
  int last_modify_mask_ = 0;
  rdma_conn_param last_param_{};
  int armed_ = 0;
};

}  // namespace verbena::verbs
