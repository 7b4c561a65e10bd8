// Test support: a table of control verbs that fails the call it is told to fail, counts calls by
// name, and knows how many objects are alive. Everything else goes on to another table.
//
// Calls are counted in two ways. The ordinal count takes the calls that make or change something (a
// test fails the first, the second, ... until a run gets through). Calls that take events
// (ibv_get_cq_event, ibv_get_async_event, rdma_get_cm_event), acknowledge or destroy are left out
// of it, since their number depends on timing; they can be failed by name. So can posts
// ("ibv_post_send", "ibv_post_recv", "ibv_post_srq_recv") once they are intercepted.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "common/verbs/forwarding_verbs.h"

namespace verbena::verbs {

class FaultVerbs : public ForwardingVerbs {
 public:
  explicit FaultVerbs(VerbsApi& base) : ForwardingVerbs(base) {}
  // After all that was made through it, or DestroyLeaked.
  ~FaultVerbs() override;

  // Posts to queues that are made from now on are counted and can be failed.
  void InterceptPosts();

  // The n-th counted call from now on (1: the next) fails with `error` and is not handed on.
  void FailNth(uint64_t n, int error);
  // The n-th call of the C function `call` ("ibv_reg_mr") from now on fails. For a destroying call
  // the object stays alive.
  void FailNamed(std::string_view call, uint64_t n, int error);
  // No more failures.
  void Clear();

  // Calls counted since construction, and calls of one C function (failed ones included).
  uint64_t calls() const;
  uint64_t calls_of(std::string_view call) const;
  // Whether a failure that was asked for has happened since.
  bool fired() const;
  // The call that failed last as it was asked to ("" if none has).
  std::string failed_call() const;
  // Names of all calls so far, in order.
  std::vector<std::string> log() const;

  // Objects made through this table and not destroyed, by the name of the creating call; kinds with
  // none are left out. CM ids that a connection request brought count as "rdma_create_id".
  std::map<std::string, int64_t> live() const;
  // The sum over all kinds.
  int64_t live_count() const;

  // Calls that destroy and failed: because they were asked to, or because something that depends on
  // the object lived on.
  uint64_t failed_destroys() const;
  // Destroys after all what such calls have left. (CM ids are destroyed with their channel.)
  void DestroyLeaked();

  // For the hooks of intercepted posts: an errno, or 0 to go on.
  int EnterPost(const char* call);

  ibv_context* OpenDevice(ibv_device* device) override;
  int CloseDevice(ibv_context* context) override;
  int QueryDevice(ibv_context* context, ibv_device_attr* attr) override;
  int QueryPort(ibv_context* context, uint8_t port, ibv_port_attr* attr) override;
  int QueryGid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) override;
  int QueryGidEx(ibv_context* context, uint32_t port, uint32_t index,
                 ibv_gid_entry* entry) override;
  ibv_device** GetDeviceList(int* count) override;
  void FreeDeviceList(ibv_device** list) override;
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
  struct NamedFault {
    std::string call;
    uint64_t left;
    int error;
  };
  struct Leaked {
    const char* create_call;
    std::function<int()> destroy;
  };
  enum class Counting { kOrdinal, kNameOnly };

  // Records the call; the errno that it is to fail with, or 0.
  int Enter(const char* call, Counting counting);
  void Born(const char* create_call, int64_t count = 1);
  void Keep(const char* create_call, std::function<int()> destroy);
  void Hook(const void* queue, ibv_context* context);

  // The shapes of the table's functions: `make` and `run` hand the call on.
  template <typename Make>
  auto Create(const char* call, Make&& make) -> decltype(make());
  template <typename Run>
  int PositiveErrno(const char* call, Run&& run);
  template <typename Run>
  int MinusOne(const char* call, Counting counting, Run&& run);
  template <typename Run>
  int Destroy(const char* call, const char* create_call, Run&& run);

  mutable std::mutex mutex_;
  uint64_t ordinal_ = 0;
  uint64_t fail_at_ = 0;
  int fail_error_ = 0;
  bool fired_ = false;
  std::string failed_call_;
  bool intercept_posts_ = false;
  std::vector<NamedFault> named_;
  std::vector<Leaked> leaked_;
  uint64_t failed_destroys_ = 0;
  std::vector<std::string> log_;
  std::map<std::string, int64_t> live_;
};

}  // namespace verbena::verbs
