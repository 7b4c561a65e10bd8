#include "common/verbs/device.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/log.h"
#include "common/base/macros.h"
#include "common/base/sizes.h"
#include "common/base/text.h"
#include "common/base/unique_fd.h"
#include "common/verbs/errors.h"

namespace verbena::verbs {
namespace {

std::atomic<uint64_t> failed_destroys{0};

// A device list that is freed on every path.
class DeviceList {
 public:
  static absl::StatusOr<DeviceList> Get(VerbsApi& api) {
    int count = 0;
    VERBENA_ASSIGN_OR_RETURN(ibv_device * * const list,
                             FromPointer(api.GetDeviceList(&count), "ibv_get_device_list"));
    return DeviceList(api, list, count);
  }
  DeviceList(DeviceList&& other) noexcept
      : api_(other.api_), list_(std::exchange(other.list_, nullptr)), count_(other.count_) {}
  DeviceList& operator=(DeviceList&&) = delete;
  ~DeviceList() {
    if (list_ != nullptr) api_->FreeDeviceList(list_);
  }

  int size() const { return count_; }
  ibv_device* at(int index) const { return list_[index]; }

 private:
  DeviceList(VerbsApi& api, ibv_device** list, int count)
      : api_(&api), list_(list), count_(count) {}

  VerbsApi* api_;
  ibv_device** list_;
  int count_;
};

std::string AccessNames(int access) {
  std::vector<const char*> names;
  if (access & IBV_ACCESS_LOCAL_WRITE) names.push_back("local write");
  if (access & IBV_ACCESS_REMOTE_READ) names.push_back("remote read");
  if (access & IBV_ACCESS_REMOTE_WRITE) names.push_back("remote write");
  if (access & IBV_ACCESS_REMOTE_ATOMIC) names.push_back("remote atomic");
  return names.empty() ? "local read" : absl::StrJoin(names, ", ");
}

}  // namespace

uint64_t FailedDestroyCount() { return failed_destroys.load(std::memory_order_relaxed); }

namespace internal {

void ReportFailedDestroy(const char* call, int returned, int errno_value) noexcept {
  failed_destroys.fetch_add(1, std::memory_order_relaxed);
  try {
    const int error = ReturnToErrno(returned, errno_value);
    // What drivers with hot removal answer for every object of a device that has been pulled out.
    const char* const consequence =
        error == EIO ? "the device may have gone, and the kernel's part of the object with it"
                     : "the object leaks";
    LogError(ErrnoStatus(error, call, consequence).message());
  } catch (...) {
    // Logging failed (no memory): the count still tells.
  }
}

}  // namespace internal

AsyncEvent& AsyncEvent::operator=(AsyncEvent&& other) noexcept {
  if (this != &other) {
    Ack();
    api_ = std::exchange(other.api_, nullptr);
    event_ = other.event_;
  }
  return *this;
}

std::string DeviceView::name() const {
  return context_ == nullptr || context_->device == nullptr ? "none" : context_->device->name;
}

ibv_transport_type DeviceView::transport() const {
  return context_ == nullptr || context_->device == nullptr ? IBV_TRANSPORT_UNKNOWN
                                                            : context_->device->transport_type;
}

absl::StatusOr<ibv_device_attr> DeviceView::Query() const {
  ibv_device_attr attr{};
  VERBENA_RETURN_IF_ERROR(FromReturn(api_->QueryDevice(context_, &attr), "ibv_query_device",
                                     [&] { return "device " + name(); }));
  return attr;
}

absl::StatusOr<ibv_port_attr> DeviceView::QueryPort(uint8_t port) const {
  ibv_port_attr attr{};
  VERBENA_RETURN_IF_ERROR(FromReturn(api_->QueryPort(context_, port, &attr), "ibv_query_port", [&] {
    return absl::StrCat("device ", name(), ", port ", port);
  }));
  return attr;
}

absl::StatusOr<ibv_gid> DeviceView::QueryGid(uint8_t port, int index) const {
  ibv_gid gid{};
  VERBENA_RETURN_IF_ERROR(FromReturn(
      api_->QueryGid(context_, port, index, &gid), "ibv_query_gid",
      [&] { return absl::StrCat("device ", name(), ", port ", port, ", index ", index); }));
  return gid;
}

int DeviceView::completion_vectors() const { return std::max(context_->num_comp_vectors, 1); }

int DeviceView::async_fd() const { return context_->async_fd; }

absl::StatusOr<std::optional<AsyncEvent>> DeviceView::TryGetAsyncEvent() const {
  ibv_async_event event{};
  const int returned = api_->GetAsyncEvent(context_, &event);
  const int error = ReturnToErrno(returned, errno);
  if (error == EAGAIN || error == EWOULDBLOCK || error == EINTR) return std::nullopt;
  if (error != 0) return ErrnoStatus(error, "ibv_get_async_event", "device " + name());
  return AsyncEvent(*api_, event);
}

void CloseFilesOfRemoved(const DeviceView& device) {
  const ibv_context& context = *device.context();
  // The software device has no such file.
  if (context.cmd_fd < 0) return;
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null.valid() || dup3(null.get(), context.async_fd, O_CLOEXEC) < 0 ||
      dup3(null.get(), context.cmd_fd, O_CLOEXEC) < 0) {
    LogError("device ", device.name(), ": cannot close its files: ", std::strerror(errno));
  }
}

const char* LinkLayerName(uint8_t link_layer) {
  switch (link_layer) {
    case IBV_LINK_LAYER_INFINIBAND:
      return "InfiniBand";
    case IBV_LINK_LAYER_ETHERNET:
      return "Ethernet";
    default:
      return "unspecified";
  }
}

uint32_t MtuBytes(ibv_mtu mtu) {
  return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128U << mtu : 0U;
}

absl::StatusOr<std::vector<std::string>> Device::List(VerbsApi& api) {
  auto devices = DeviceList::Get(api);
  if (!devices.ok()) {
    // A kernel without RDMA support answers ENOSYS: that is a list with nothing in it.
    if (IsNoDevice(devices.status())) return std::vector<std::string>{};
    return devices.status();
  }
  std::vector<std::string> names;
  names.reserve(static_cast<size_t>(devices->size()));
  for (int i = 0; i < devices->size(); ++i) names.emplace_back(devices->at(i)->name);
  return names;
}

absl::StatusOr<Device> Device::Open(VerbsApi& api, std::string_view name) {
  VERBENA_ASSIGN_OR_RETURN(const DeviceList devices, DeviceList::Get(api));
  std::vector<std::string> names;
  for (int i = 0; i < devices.size(); ++i) {
    ibv_device* const device = devices.at(i);
    names.emplace_back(device->name);
    if (!name.empty() && name != device->name) continue;
    VERBENA_ASSIGN_OR_RETURN(ibv_context* const context,
                             FromPointer(api.OpenDevice(device), "ibv_open_device",
                                         [&] { return absl::StrCat("device ", device->name); }));
    return Device(internal::Handle<ibv_context>(api, context));
  }
  if (names.empty()) return ErrnoStatus(ENODEV, "ibv_get_device_list", "no device");
  return absl::NotFoundError(absl::StrCat("There is no RDMA device called ", ToAbsl(name),
                                          "; there are: ", absl::StrJoin(names, ", ")));
}

absl::StatusOr<ProtectionDomain> ProtectionDomain::Create(const DeviceView& device) {
  VERBENA_ASSIGN_OR_RETURN(ibv_pd* const pd,
                           FromPointer(device.api().AllocPd(device.context()), "ibv_alloc_pd",
                                       [&] { return "device " + device.name(); }));
  return ProtectionDomain(internal::Handle<ibv_pd>(device.api(), pd));
}

absl::StatusOr<MemoryRegion> MemoryRegion::Register(const ProtectionDomain& pd, void* address,
                                                    size_t length, int access) {
  VERBENA_ASSIGN_OR_RETURN(
      ibv_mr* const mr,
      FromPointer(pd.api().RegMr(pd.get(), address, length, access), "ibv_reg_mr", [&] {
        return absl::StrFormat("%s at %p, %s", FormatSize(length), address, AccessNames(access));
      }));
  return MemoryRegion(internal::Handle<ibv_mr>(pd.api(), mr));
}

}  // namespace verbena::verbs
