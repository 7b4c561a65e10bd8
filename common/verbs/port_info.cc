#include "common/verbs/port_info.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/macros.h"
#include "common/verbs/capabilities.h"
#include "common/verbs/errors.h"

namespace verbena::verbs {
namespace {

bool IsZero(const ibv_gid& gid) {
  return std::all_of(std::begin(gid.raw), std::end(gid.raw),
                     [](uint8_t byte) { return byte == 0; });
}

}  // namespace

const char* PortStateName(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_DOWN:
      return "down";
    case IBV_PORT_INIT:
      return "initializing";
    case IBV_PORT_ARMED:
      return "armed";
    case IBV_PORT_ACTIVE:
    case IBV_PORT_ACTIVE_DEFER:
      return "active";
    default:
      return "no state";
  }
}

double PortGbps(uint8_t active_width, uint8_t active_speed) {
  const auto lanes = [&] {
    switch (active_width) {
      case 1:
        return 1;
      case 2:
        return 4;
      case 4:
        return 8;
      case 8:
        return 12;
      case 16:
        return 2;
      default:
        return 0;
    }
  }();
  const auto lane = [&] {
    switch (active_speed) {
      case 1:
        return 2.5;
      case 2:
        return 5.0;
      case 4:  // QDR
      case 8:  // FDR-10
        return 10.0;
      case 16:
        return 14.0;
      case 32:
        return 25.0;
      case 64:
        return 50.0;
      case 128:
        return 100.0;
      default:
        return 0.0;
    }
  }();
  return lanes * lane;
}

std::string FormatGid(const ibv_gid& gid) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET6, gid.raw, text, sizeof(text));
  return text;
}

const char* GidTypeName(uint32_t gid_type) {
  switch (gid_type) {
    case IBV_GID_TYPE_IB:
      return "IB";
    case IBV_GID_TYPE_ROCE_V1:
      return "RoCE v1";
    case IBV_GID_TYPE_ROCE_V2:
      return "RoCE v2";
    default:
      return "unknown";
  }
}

absl::StatusOr<PortInfo> DescribePort(const DeviceView& device, int port) {
  VERBENA_ASSIGN_OR_RETURN(const ibv_port_attr attr, device.QueryPort(static_cast<uint8_t>(port)));
  PortInfo info;
  info.port = port;
  info.active = attr.state == IBV_PORT_ACTIVE || attr.state == IBV_PORT_ACTIVE_DEFER;
  info.state = PortStateName(attr.state);
  info.link_layer = LinkLayerName(attr.link_layer);
  info.mtu = MtuBytes(attr.active_mtu);
  info.gbps = PortGbps(attr.active_width, attr.active_speed);
  if (attr.link_layer == IBV_LINK_LAYER_INFINIBAND) {
    info.lid = attr.lid;
    info.sm_lid = attr.sm_lid;
  }
  info.gids = attr.gid_tbl_len;
  return info;
}

GidInfo DescribeGid(const DeviceView& device, const PortInfo& port, const ibv_gid& gid) {
  GidInfo info;
  if (!HasGids(device.transport()) || IsZero(gid)) return info;
  info.gid = FormatGid(gid);
  for (int index = 0; index < port.gids; ++index) {
    ibv_gid_entry entry{};
    if (device.api().QueryGidEx(device.context(), static_cast<uint32_t>(port.port),
                                static_cast<uint32_t>(index), &entry) != 0) {
      continue;  // an empty entry
    }
    if (std::memcmp(entry.gid.raw, gid.raw, sizeof(gid.raw)) != 0) continue;
    if (info.index >= 0 && entry.gid_type != IBV_GID_TYPE_ROCE_V2) continue;
    info.index = index;
    info.type = GidTypeName(entry.gid_type);
    // Only a GID of RoCE v1 may be there once more, as one of v2. Looking at all the rest would be
    // a system call each, and some tables have 1024 entries.
    if (entry.gid_type != IBV_GID_TYPE_ROCE_V1) break;
  }
  return info;
}

std::string ToString(const std::string& device, const PortInfo& port) {
  const std::string speed =
      port.gbps > 0 ? absl::StrCat(port.gbps, " Gb/s") : std::string("unknown speed");
  std::string text = absl::StrCat(device, ", port ", port.port, " (", port.state, "), link layer ",
                                  port.link_layer, ", ", speed, ", MTU ", port.mtu);
  if (port.lid != 0) absl::StrAppend(&text, ", LID ", port.lid, ", SM LID ", port.sm_lid);
  return text;
}

std::string ToString(const GidInfo& gid) {
  if (gid.gid.empty()) return "no GID";
  if (gid.index < 0) return absl::StrCat("GID ", gid.gid);
  return absl::StrCat("GID ", gid.gid, " (index ", gid.index, ", ", gid.type, ")");
}

}  // namespace verbena::verbs
