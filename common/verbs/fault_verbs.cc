#include "common/verbs/fault_verbs.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace verbena::verbs {
namespace {

// Posts reach a device through its context, so they are intercepted there: once for each context,
// for good, and led to the table that made the queue.
struct Hooks {
  std::mutex mutex;
  std::map<const ibv_context*, ibv_context_ops> originals;
  std::map<const void*, FaultVerbs*> owners;  // by queue pair or shared receive queue
};

Hooks& GlobalHooks() {
  static auto* const hooks = new Hooks;
  return *hooks;
}

// What posting to `queue` goes on to, and the table that wants to know.
std::pair<ibv_context_ops, FaultVerbs*> Hooked(const void* queue, const ibv_context* context) {
  Hooks& hooks = GlobalHooks();
  const std::lock_guard lock(hooks.mutex);
  const auto owner = hooks.owners.find(queue);
  return {hooks.originals.at(context), owner == hooks.owners.end() ? nullptr : owner->second};
}

int PostSendHook(ibv_qp* qp, ibv_send_wr* list, ibv_send_wr** bad) {
  const auto [original, owner] = Hooked(qp, qp->context);
  if (const int error = owner == nullptr ? 0 : owner->EnterPost("ibv_post_send"); error != 0) {
    *bad = list;
    return error;
  }
  return original.post_send(qp, list, bad);
}

int PostRecvHook(ibv_qp* qp, ibv_recv_wr* list, ibv_recv_wr** bad) {
  const auto [original, owner] = Hooked(qp, qp->context);
  if (const int error = owner == nullptr ? 0 : owner->EnterPost("ibv_post_recv"); error != 0) {
    *bad = list;
    return error;
  }
  return original.post_recv(qp, list, bad);
}

int PostSrqRecvHook(ibv_srq* srq, ibv_recv_wr* list, ibv_recv_wr** bad) {
  const auto [original, owner] = Hooked(srq, srq->context);
  if (const int error = owner == nullptr ? 0 : owner->EnterPost("ibv_post_srq_recv"); error != 0) {
    *bad = list;
    return error;
  }
  return original.post_srq_recv(srq, list, bad);
}

}  // namespace

FaultVerbs::~FaultVerbs() {
  Hooks& hooks = GlobalHooks();
  const std::lock_guard lock(hooks.mutex);
  std::erase_if(hooks.owners, [this](const auto& entry) { return entry.second == this; });
}

void FaultVerbs::InterceptPosts() { intercept_posts_ = true; }

int FaultVerbs::EnterPost(const char* call) { return Enter(call, Counting::kNameOnly); }

void FaultVerbs::Hook(const void* queue, ibv_context* context) {
  if (!intercept_posts_) return;
  Hooks& hooks = GlobalHooks();
  const std::lock_guard lock(hooks.mutex);
  if (hooks.originals.emplace(context, context->ops).second) {
    context->ops.post_send = PostSendHook;
    context->ops.post_recv = PostRecvHook;
    context->ops.post_srq_recv = PostSrqRecvHook;
  }
  hooks.owners[queue] = this;
}

void FaultVerbs::FailNth(uint64_t n, int error) {
  const std::lock_guard lock(mutex_);
  fail_at_ = ordinal_ + n;
  fail_error_ = error;
  fired_ = false;
}

void FaultVerbs::FailNamed(std::string_view call, uint64_t n, int error) {
  const std::lock_guard lock(mutex_);
  named_.push_back({std::string(call), n, error});
  fired_ = false;
}

void FaultVerbs::Clear() {
  const std::lock_guard lock(mutex_);
  fail_at_ = 0;
  named_.clear();
}

uint64_t FaultVerbs::calls() const {
  const std::lock_guard lock(mutex_);
  return ordinal_;
}

uint64_t FaultVerbs::calls_of(std::string_view call) const {
  const std::lock_guard lock(mutex_);
  return static_cast<uint64_t>(std::count(log_.begin(), log_.end(), call));
}

bool FaultVerbs::fired() const {
  const std::lock_guard lock(mutex_);
  return fired_;
}

std::string FaultVerbs::failed_call() const {
  const std::lock_guard lock(mutex_);
  return failed_call_;
}

std::vector<std::string> FaultVerbs::log() const {
  const std::lock_guard lock(mutex_);
  return log_;
}

std::map<std::string, int64_t> FaultVerbs::live() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, int64_t> result;
  for (const auto& [call, count] : live_) {
    if (count != 0) result[call] = count;
  }
  return result;
}

int64_t FaultVerbs::live_count() const {
  int64_t sum = 0;
  for (const auto& [call, count] : live()) sum += count;
  return sum;
}

int FaultVerbs::Enter(const char* call, Counting counting) {
  const std::lock_guard lock(mutex_);
  log_.emplace_back(call);
  int error = 0;
  if (counting == Counting::kOrdinal && ++ordinal_ == fail_at_) error = fail_error_;
  for (NamedFault& fault : named_) {
    if (fault.call == call && fault.left > 0 && --fault.left == 0) error = fault.error;
  }
  if (error != 0) {
    fired_ = true;
    failed_call_ = call;
  }
  return error;
}

void FaultVerbs::Born(const char* create_call, int64_t count) {
  const std::lock_guard lock(mutex_);
  live_[create_call] += count;
}

template <typename Make>
auto FaultVerbs::Create(const char* call, Make&& make) -> decltype(make()) {
  if (const int error = Enter(call, Counting::kOrdinal); error != 0) {
    errno = error;
    return nullptr;
  }
  auto* const made = make();
  if (made != nullptr) Born(call);
  return made;
}

template <typename Run>
int FaultVerbs::PositiveErrno(const char* call, Run&& run) {
  if (const int error = Enter(call, Counting::kOrdinal); error != 0) return error;
  return run();
}

template <typename Run>
int FaultVerbs::MinusOne(const char* call, Counting counting, Run&& run) {
  if (const int error = Enter(call, counting); error != 0) {
    errno = error;
    return -1;
  }
  return run();
}

template <typename Run>
int FaultVerbs::Destroy(const char* call, const char* create_call, Run&& run) {
  if (const int error = Enter(call, Counting::kNameOnly); error != 0) {
    errno = error;  // for functions of the -1 convention
    Keep(create_call, std::forward<Run>(run));
    return error;
  }
  const int returned = run();
  if (returned == 0) {
    Born(create_call, -1);
  } else {
    const int error = errno;
    Keep(create_call, std::forward<Run>(run));
    errno = error;
  }
  return returned;
}

void FaultVerbs::Keep(const char* create_call, std::function<int()> destroy) {
  const std::lock_guard lock(mutex_);
  leaked_.push_back({create_call, std::move(destroy)});
  ++failed_destroys_;
}

void FaultVerbs::DestroyLeaked() {
  std::vector<Leaked> leaked;
  {
    const std::lock_guard lock(mutex_);
    leaked.swap(leaked_);
  }
  // Objects before those that they depend on, which could not be destroyed while they lived.
  for (size_t before = leaked.size() + 1; leaked.size() < before;) {
    before = leaked.size();
    std::erase_if(leaked, [this](const Leaked& each) {
      if (each.destroy() != 0) return false;
      Born(each.create_call, -1);
      return true;
    });
  }
  const std::lock_guard lock(mutex_);
  leaked_.insert(leaked_.end(), leaked.begin(), leaked.end());
}

uint64_t FaultVerbs::failed_destroys() const {
  const std::lock_guard lock(mutex_);
  return failed_destroys_;
}

ibv_device** FaultVerbs::GetDeviceList(int* count) {
  return Create("ibv_get_device_list", [&] { return base().GetDeviceList(count); });
}
void FaultVerbs::FreeDeviceList(ibv_device** list) {
  Destroy("ibv_free_device_list", "ibv_get_device_list", [this, list] {
    base().FreeDeviceList(list);
    return 0;
  });
}
ibv_context* FaultVerbs::OpenDevice(ibv_device* device) {
  return Create("ibv_open_device", [&] { return base().OpenDevice(device); });
}
int FaultVerbs::CloseDevice(ibv_context* context) {
  return Destroy("ibv_close_device", "ibv_open_device",
                 [this, context] { return base().CloseDevice(context); });
}
int FaultVerbs::QueryDevice(ibv_context* context, ibv_device_attr* attr) {
  return PositiveErrno("ibv_query_device", [&] { return base().QueryDevice(context, attr); });
}
int FaultVerbs::QueryPort(ibv_context* context, uint8_t port, ibv_port_attr* attr) {
  return PositiveErrno("ibv_query_port", [&] { return base().QueryPort(context, port, attr); });
}
int FaultVerbs::QueryGid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) {
  return MinusOne("ibv_query_gid", Counting::kOrdinal,
                  [&] { return base().QueryGid(context, port, index, gid); });
}
int FaultVerbs::QueryGidEx(ibv_context* context, uint32_t port, uint32_t index,
                           ibv_gid_entry* entry) {
  return PositiveErrno("ibv_query_gid_ex",
                       [&] { return base().QueryGidEx(context, port, index, entry); });
}
int FaultVerbs::GetAsyncEvent(ibv_context* context, ibv_async_event* event) {
  return MinusOne("ibv_get_async_event", Counting::kNameOnly, [&] {
    const int returned = base().GetAsyncEvent(context, event);
    if (returned == 0) Born("ibv_get_async_event");
    return returned;
  });
}
void FaultVerbs::AckAsyncEvent(ibv_async_event* event) {
  Enter("ibv_ack_async_event", Counting::kNameOnly);
  Born("ibv_get_async_event", -1);
  base().AckAsyncEvent(event);
}
ibv_pd* FaultVerbs::AllocPd(ibv_context* context) {
  return Create("ibv_alloc_pd", [&] { return base().AllocPd(context); });
}
int FaultVerbs::DeallocPd(ibv_pd* pd) {
  return Destroy("ibv_dealloc_pd", "ibv_alloc_pd", [this, pd] { return base().DeallocPd(pd); });
}
ibv_mr* FaultVerbs::RegMr(ibv_pd* pd, void* address, size_t length, int access) {
  return Create("ibv_reg_mr", [&] { return base().RegMr(pd, address, length, access); });
}
int FaultVerbs::DeregMr(ibv_mr* mr) {
  return Destroy("ibv_dereg_mr", "ibv_reg_mr", [this, mr] { return base().DeregMr(mr); });
}
ibv_comp_channel* FaultVerbs::CreateCompChannel(ibv_context* context) {
  return Create("ibv_create_comp_channel", [&] { return base().CreateCompChannel(context); });
}
int FaultVerbs::DestroyCompChannel(ibv_comp_channel* channel) {
  return Destroy("ibv_destroy_comp_channel", "ibv_create_comp_channel",
                 [this, channel] { return base().DestroyCompChannel(channel); });
}
ibv_cq* FaultVerbs::CreateCq(ibv_context* context, int cqe, void* cq_context,
                             ibv_comp_channel* channel, int comp_vector) {
  return Create("ibv_create_cq",
                [&] { return base().CreateCq(context, cqe, cq_context, channel, comp_vector); });
}
int FaultVerbs::DestroyCq(ibv_cq* cq) {
  return Destroy("ibv_destroy_cq", "ibv_create_cq", [this, cq] { return base().DestroyCq(cq); });
}
int FaultVerbs::GetCqEvent(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  return MinusOne("ibv_get_cq_event", Counting::kNameOnly, [&] {
    const int returned = base().GetCqEvent(channel, cq, cq_context);
    if (returned == 0) Born("ibv_get_cq_event");
    return returned;
  });
}
void FaultVerbs::AckCqEvents(ibv_cq* cq, unsigned count) {
  Enter("ibv_ack_cq_events", Counting::kNameOnly);
  Born("ibv_get_cq_event", -int64_t{count});
  base().AckCqEvents(cq, count);
}
ibv_srq* FaultVerbs::CreateSrq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  ibv_srq* const srq = Create("ibv_create_srq", [&] { return base().CreateSrq(pd, attr); });
  if (srq != nullptr) Hook(srq, srq->context);
  return srq;
}
int FaultVerbs::ModifySrq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
  return PositiveErrno("ibv_modify_srq", [&] { return base().ModifySrq(srq, attr, mask); });
}
int FaultVerbs::QuerySrq(ibv_srq* srq, ibv_srq_attr* attr) {
  return PositiveErrno("ibv_query_srq", [&] { return base().QuerySrq(srq, attr); });
}
int FaultVerbs::DestroySrq(ibv_srq* srq) {
  return Destroy("ibv_destroy_srq", "ibv_create_srq",
                 [this, srq] { return base().DestroySrq(srq); });
}
ibv_qp* FaultVerbs::CreateQp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  ibv_qp* const qp = Create("ibv_create_qp", [&] { return base().CreateQp(pd, attr); });
  if (qp != nullptr) Hook(qp, qp->context);
  return qp;
}
int FaultVerbs::ModifyQp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  return PositiveErrno("ibv_modify_qp", [&] { return base().ModifyQp(qp, attr, mask); });
}
int FaultVerbs::QueryQp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) {
  return PositiveErrno("ibv_query_qp", [&] { return base().QueryQp(qp, attr, mask, init); });
}
int FaultVerbs::DestroyQp(ibv_qp* qp) {
  return Destroy("ibv_destroy_qp", "ibv_create_qp", [this, qp] { return base().DestroyQp(qp); });
}
rdma_event_channel* FaultVerbs::CmCreateEventChannel() {
  return Create("rdma_create_event_channel", [&] { return base().CmCreateEventChannel(); });
}
void FaultVerbs::CmDestroyEventChannel(rdma_event_channel* channel) {
  // Ids cannot be destroyed without it.
  DestroyLeaked();
  Destroy("rdma_destroy_event_channel", "rdma_create_event_channel", [this, channel] {
    base().CmDestroyEventChannel(channel);
    return 0;
  });
}
int FaultVerbs::CmGetEvent(rdma_event_channel* channel, rdma_cm_event** event) {
  return MinusOne("rdma_get_cm_event", Counting::kNameOnly, [&] {
    const int returned = base().CmGetEvent(channel, event);
    if (returned == 0) {
      Born("rdma_get_cm_event");
      if ((*event)->event == RDMA_CM_EVENT_CONNECT_REQUEST) Born("rdma_create_id");
    }
    return returned;
  });
}
int FaultVerbs::CmAckEvent(rdma_cm_event* event) {
  return Destroy("rdma_ack_cm_event", "rdma_get_cm_event",
                 [this, event] { return base().CmAckEvent(event); });
}
int FaultVerbs::CmCreateId(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                           rdma_port_space space) {
  return MinusOne("rdma_create_id", Counting::kOrdinal, [&] {
    const int returned = base().CmCreateId(channel, id, context, space);
    if (returned == 0) Born("rdma_create_id");
    return returned;
  });
}
int FaultVerbs::CmDestroyId(rdma_cm_id* id) {
  return Destroy("rdma_destroy_id", "rdma_create_id",
                 [this, id] { return base().CmDestroyId(id); });
}
int FaultVerbs::CmBindAddr(rdma_cm_id* id, sockaddr* address) {
  return MinusOne("rdma_bind_addr", Counting::kOrdinal,
                  [&] { return base().CmBindAddr(id, address); });
}
int FaultVerbs::CmListen(rdma_cm_id* id, int backlog) {
  return MinusOne("rdma_listen", Counting::kOrdinal, [&] { return base().CmListen(id, backlog); });
}
int FaultVerbs::CmResolveAddr(rdma_cm_id* id, sockaddr* source, sockaddr* target, int timeout_ms) {
  return MinusOne("rdma_resolve_addr", Counting::kOrdinal,
                  [&] { return base().CmResolveAddr(id, source, target, timeout_ms); });
}
int FaultVerbs::CmResolveRoute(rdma_cm_id* id, int timeout_ms) {
  return MinusOne("rdma_resolve_route", Counting::kOrdinal,
                  [&] { return base().CmResolveRoute(id, timeout_ms); });
}
int FaultVerbs::CmConnect(rdma_cm_id* id, rdma_conn_param* param) {
  return MinusOne("rdma_connect", Counting::kOrdinal, [&] { return base().CmConnect(id, param); });
}
int FaultVerbs::CmAccept(rdma_cm_id* id, rdma_conn_param* param) {
  return MinusOne("rdma_accept", Counting::kOrdinal, [&] { return base().CmAccept(id, param); });
}
int FaultVerbs::CmReject(rdma_cm_id* id, const void* data, uint8_t length) {
  return MinusOne("rdma_reject", Counting::kOrdinal,
                  [&] { return base().CmReject(id, data, length); });
}
int FaultVerbs::CmDisconnect(rdma_cm_id* id) {
  return MinusOne("rdma_disconnect", Counting::kOrdinal, [&] { return base().CmDisconnect(id); });
}
int FaultVerbs::CmCreateQp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attr) {
  return MinusOne("rdma_create_qp", Counting::kOrdinal, [&] {
    const int returned = base().CmCreateQp(id, pd, attr);
    if (returned == 0) {
      Born("rdma_create_qp");
      Hook(id->qp, id->verbs);
    }
    return returned;
  });
}
void FaultVerbs::CmDestroyQp(rdma_cm_id* id) {
  Destroy("rdma_destroy_qp", "rdma_create_qp", [this, id] {
    base().CmDestroyQp(id);
    return 0;
  });
}
int FaultVerbs::CmSetOption(rdma_cm_id* id, int level, int name, void* value, size_t length) {
  return MinusOne("rdma_set_option", Counting::kOrdinal,
                  [&] { return base().CmSetOption(id, level, name, value, length); });
}
int FaultVerbs::CmInitQpAttr(rdma_cm_id* id, ibv_qp_attr* attr, int* mask) {
  return MinusOne("rdma_init_qp_attr", Counting::kOrdinal,
                  [&] { return base().CmInitQpAttr(id, attr, mask); });
}
int FaultVerbs::CmMigrateId(rdma_cm_id* id, rdma_event_channel* channel) {
  return MinusOne("rdma_migrate_id", Counting::kOrdinal,
                  [&] { return base().CmMigrateId(id, channel); });
}

}  // namespace verbena::verbs
