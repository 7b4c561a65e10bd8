#include "common/verbs/kernel_cm.h"

#include <endian.h>
#include <fcntl.h>
#include <rdma/rdma_user_cm.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/macros.h"
#include "common/base/unique_fd.h"

namespace verbena::verbs {
namespace {

constexpr char kFile[] = "/dev/infiniband/rdma_cm";
// IBV_QPT_RC. The kernel's header and librdmacm's define the same names and do not go together.
constexpr uint8_t kReliableConnected = 2;

absl::Status Failed(const char* what, int error) {
  return absl::UnavailableError(absl::StrCat(kFile, ": ", what, ": ", std::strerror(error)));
}

// Sends one command; the answer, if the command has one, goes to where `body` says. 0 or errno.
template <typename Body>
int Send(int fd, uint32_t command, const Body& body, uint16_t answer_bytes) {
  struct {
    rdma_ucm_cmd_hdr header;
    Body body;
  } message;
  // The kernel takes the header and the body without a gap.
  static_assert(sizeof(message) == sizeof(rdma_ucm_cmd_hdr) + sizeof(Body));
  message.header = {.cmd = command, .in = sizeof(Body), .out = answer_bytes};
  message.body = body;
  return write(fd, &message, sizeof(message)) == sizeof(message) ? 0 : errno;
}

uint64_t AddressOf(void* answer) { return reinterpret_cast<uintptr_t>(answer); }

// The GUID of the device that has `address`; 0 if none has.
absl::StatusOr<uint64_t> GuidOfAddress(int fd, const NetAddress& address) {
  rdma_ucm_create_id_resp created{};
  rdma_ucm_create_id create{};
  create.response = AddressOf(&created);
  create.ps = RDMA_PS_TCP;
  create.qp_type = kReliableConnected;
  if (const int error = Send(fd, RDMA_USER_CM_CMD_CREATE_ID, create, sizeof(created)); error != 0) {
    return Failed("RDMA_USER_CM_CMD_CREATE_ID", error);
  }
  rdma_ucm_bind bind{};
  bind.id = created.id;
  bind.addr_size =
      address.addr()->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(&bind.addr, address.addr(), bind.addr_size);
  // Refused where no device has the address. Ids end with the file.
  if (Send(fd, RDMA_USER_CM_CMD_BIND, bind, 0) != 0) return uint64_t{0};
  rdma_ucm_query_addr_resp answer{};
  rdma_ucm_query query{};
  query.response = AddressOf(&answer);
  query.id = created.id;
  query.option = RDMA_USER_CM_QUERY_ADDR;
  if (const int error = Send(fd, RDMA_USER_CM_CMD_QUERY, query, sizeof(answer)); error != 0) {
    return Failed("RDMA_USER_CM_CMD_QUERY", error);
  }
  return be64toh(answer.node_guid);
}

// Names of the kernel's devices by their GUID, which sysfs writes as "5054:00ff:fe12:3456".
std::map<uint64_t, std::string> DevicesByGuid() {
  std::map<uint64_t, std::string> devices;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/class/infiniband", error)) {
    std::ifstream file(entry.path() / "node_guid");
    std::string text;
    uint64_t guid = 0;
    if (file >> text && absl::SimpleHexAtoi(absl::StrReplaceAll(text, {{":", ""}}), &guid)) {
      devices[guid] = entry.path().filename();
    }
  }
  return devices;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> DevicesOfAddresses(
    const std::vector<NetAddress>& addresses) {
  const UniqueFd file(open(kFile, O_RDWR | O_CLOEXEC));
  if (!file.valid()) return Failed("open", errno);
  const std::map<uint64_t, std::string> devices = DevicesByGuid();
  std::vector<std::string> names;
  for (const NetAddress& address : addresses) {
    VERBENA_ASSIGN_OR_RETURN(const uint64_t guid, GuidOfAddress(file.get(), address));
    const auto device = devices.find(guid);
    names.push_back(guid == 0 || device == devices.end() ? std::string() : device->second);
  }
  return names;
}

}  // namespace verbena::verbs
