// What all owners of verbs objects share: a pointer, the table that destroys it, and moves.
//
// A failed destroy is logged and counted, never thrown, and never ends the process: it means that
// something still depends on the object, and the object leaks.
//
// Not thread-safe; different handles may be used by different threads.
#pragma once

#include <cerrno>
#include <cstdint>
#include <utility>

#include "common/verbs/verbs_api.h"

namespace verbena::verbs {

// Destroys that failed in this process so far. Thread-safe.
uint64_t FailedDestroyCount();

namespace internal {

// Logs and counts. `returned` and `errno_value` as in errors.h's ReturnToErrno.
void ReportFailedDestroy(const char* call, int returned, int errno_value) noexcept;

// How to destroy each kind of object.
template <typename T>
struct Destroyer;
template <>
struct Destroyer<ibv_context> {
  static constexpr const char* kCall = "ibv_close_device";
  static int Destroy(VerbsApi& api, ibv_context* object) { return api.CloseDevice(object); }
};
template <>
struct Destroyer<ibv_pd> {
  static constexpr const char* kCall = "ibv_dealloc_pd";
  static int Destroy(VerbsApi& api, ibv_pd* object) { return api.DeallocPd(object); }
};
template <>
struct Destroyer<ibv_mr> {
  static constexpr const char* kCall = "ibv_dereg_mr";
  static int Destroy(VerbsApi& api, ibv_mr* object) { return api.DeregMr(object); }
};
template <>
struct Destroyer<ibv_comp_channel> {
  static constexpr const char* kCall = "ibv_destroy_comp_channel";
  static int Destroy(VerbsApi& api, ibv_comp_channel* object) {
    return api.DestroyCompChannel(object);
  }
};
template <>
struct Destroyer<ibv_cq> {
  static constexpr const char* kCall = "ibv_destroy_cq";
  static int Destroy(VerbsApi& api, ibv_cq* object) { return api.DestroyCq(object); }
};
template <>
struct Destroyer<ibv_srq> {
  static constexpr const char* kCall = "ibv_destroy_srq";
  static int Destroy(VerbsApi& api, ibv_srq* object) { return api.DestroySrq(object); }
};
template <>
struct Destroyer<ibv_qp> {
  static constexpr const char* kCall = "ibv_destroy_qp";
  static int Destroy(VerbsApi& api, ibv_qp* object) { return api.DestroyQp(object); }
};
template <>
struct Destroyer<rdma_event_channel> {
  static constexpr const char* kCall = "rdma_destroy_event_channel";
  static int Destroy(VerbsApi& api, rdma_event_channel* object) {
    api.CmDestroyEventChannel(object);
    return 0;
  }
};
template <>
struct Destroyer<rdma_cm_id> {
  static constexpr const char* kCall = "rdma_destroy_id";
  static int Destroy(VerbsApi& api, rdma_cm_id* object) { return api.CmDestroyId(object); }
};
template <>
struct Destroyer<rdma_cm_event> {
  static constexpr const char* kCall = "rdma_ack_cm_event";
  static int Destroy(VerbsApi& api, rdma_cm_event* object) { return api.CmAckEvent(object); }
};

template <typename T>
class Handle {
 public:
  Handle() = default;
  Handle(VerbsApi& api, T* object) : api_(&api), object_(object) {}
  Handle(Handle&& other) noexcept
      : api_(other.api_), object_(std::exchange(other.object_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      Reset();
      api_ = other.api_;
      object_ = std::exchange(other.object_, nullptr);
    }
    return *this;
  }
  ~Handle() { Reset(); }

  T* get() const { return object_; }
  VerbsApi* api() const { return api_; }
  explicit operator bool() const { return object_ != nullptr; }

  T* Release() { return std::exchange(object_, nullptr); }
  void Reset() noexcept {
    T* object = std::exchange(object_, nullptr);
    if (object == nullptr) return;
    if (const int returned = Destroyer<T>::Destroy(*api_, object); returned != 0) {
      ReportFailedDestroy(Destroyer<T>::kCall, returned, errno);
    }
  }

 private:
  VerbsApi* api_ = nullptr;
  T* object_ = nullptr;
};

}  // namespace internal
}  // namespace verbena::verbs
