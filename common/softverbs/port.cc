#include "common/softverbs/port.h"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "common/softverbs/device.h"
#include "common/softverbs/switches.h"

namespace verbena::softverbs {
namespace {

// On InfiniBand. Every process has the same port, so that all are in one subnet, and the subnet
// manager is said to run beside it.
constexpr uint16_t kLid = 0x11;
constexpr uint16_t kSubnetManagerLid = 0x01;
constexpr ibv_gid kPortGid = {
    {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x02, 0x76, 0x73, 0xff, 0xfe, 0x6f, 0x66, 0x74}};

bool IsInfiniBand() { return CurrentSwitches().infiniband; }

ibv_gid MappedLoopback() {
  ibv_gid gid{};
  gid.raw[10] = gid.raw[11] = 0xff;
  gid.raw[12] = 127;
  gid.raw[15] = 1;
  return gid;
}

}  // namespace

void FillDeviceAttr(ibv_device_attr* attr) {
  *attr = {};
  std::strncpy(attr->fw_ver, "verbena-soft-1", sizeof(attr->fw_ver) - 1);
  attr->node_guid = Device::Existing().id()[0];
  attr->sys_image_guid = attr->node_guid;
  attr->max_mr_size = uint64_t{1} << 47;
  attr->page_size_cap = 0xfffff000;
  attr->vendor_id = 0;
  attr->max_qp = static_cast<int>(kMaxQps);
  attr->max_qp_wr = kMaxWr;
  attr->device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN;
  attr->max_sge = kMaxSge;
  attr->max_sge_rd = kMaxSge;
  attr->max_cq = static_cast<int>(kMaxCqs);
  attr->max_cqe = kMaxCqe;
  attr->max_mr = static_cast<int>(kMaxMrs) - 1;
  attr->max_pd = 65536;
  attr->max_qp_rd_atom = kMaxRdAtomic;
  attr->max_res_rd_atom = kMaxRdAtomic * static_cast<int>(kMaxQps);
  attr->max_qp_init_rd_atom = kMaxRdAtomic;
  attr->atomic_cap = IBV_ATOMIC_GLOB;  // the processor's own atomic instructions
  attr->max_srq = 65536;
  attr->max_srq_wr = kMaxWr;
  attr->max_srq_sge = kMaxSge;
  attr->max_pkeys = 1;
  attr->local_ca_ack_delay = 1;
  attr->phys_port_cnt = 1;
}

void FillPortAttr(ibv_port_attr* attr) {
  *attr = {};
  attr->state = IBV_PORT_ACTIVE;
  attr->max_mtu = IBV_MTU_4096;
  attr->active_mtu = IBV_MTU_4096;
  attr->gid_tbl_len = 1;
  attr->max_msg_sz = kMaxMessage;
  attr->pkey_tbl_len = 1;
  attr->active_width = 2;   // 4x
  attr->active_speed = 32;  // EDR
  attr->phys_state = 5;     // link up
  attr->link_layer = IBV_LINK_LAYER_ETHERNET;
  if (IsInfiniBand()) {
    attr->link_layer = IBV_LINK_LAYER_INFINIBAND;
    attr->lid = kLid;
    attr->sm_lid = kSubnetManagerLid;
  }
}

bool FillGidEntry(uint32_t port, uint32_t index, ibv_gid_entry* entry) {
  if (port != 1 || index != 0) return false;
  *entry = {};
  entry->port_num = port;
  entry->gid_index = index;
  const bool infiniband = IsInfiniBand();
  entry->gid = infiniband ? kPortGid : MappedLoopback();
  entry->gid_type = infiniband ? IBV_GID_TYPE_IB : IBV_GID_TYPE_ROCE_V2;
  return true;
}

ibv_gid GidOf(const NetAddress& address) {
  if (IsInfiniBand()) return kPortGid;
  ibv_gid gid{};
  if (address.family() == AF_INET6) {
    std::memcpy(gid.raw, &reinterpret_cast<const sockaddr_in6*>(address.addr())->sin6_addr, 16);
  } else {
    gid.raw[10] = gid.raw[11] = 0xff;
    std::memcpy(gid.raw + 12, &reinterpret_cast<const sockaddr_in*>(address.addr())->sin_addr, 4);
  }
  return gid;
}

ibv_ah_attr PathTo(const ibv_gid& target, uint8_t type_of_service) {
  ibv_ah_attr path{};
  path.port_num = 1;
  if (IsInfiniBand()) {
    path.dlid = kLid;
    return path;
  }
  path.is_global = 1;
  path.grh.dgid = target;
  path.grh.hop_limit = 64;
  path.grh.traffic_class = type_of_service;
  return path;
}

bool IsPath(const ibv_ah_attr& path) {
  if (!IsInfiniBand()) return true;
  return path.is_global == 0 && path.dlid == kLid && path.port_num == 1;
}

}  // namespace verbena::softverbs
