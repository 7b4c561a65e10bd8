// How the device presents itself: its limits, its one port, the port's addresses, and the paths
// between two ends. Thread-safe.
//
// By default the port is Ethernet's (RoCE v2, GIDs that are IP addresses). With
// VERBENA_SOFT_LINK_LAYER=infiniband it is one of an InfiniBand subnet without routers: peers are
// addressed by LID, packets carry no GRH, and the only GID is the port's own.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "common/base/net_address.h"

namespace verbena::softverbs {

// Device and port attributes, as a good adapter has them.
void FillDeviceAttr(ibv_device_attr* attr);
void FillPortAttr(ibv_port_attr* attr);

// The entry of the port's GID table; false if the table has none there.
bool FillGidEntry(uint32_t port, uint32_t index, ibv_gid_entry* entry);

// The GID by which the connection manager reaches an address of this host.
ibv_gid GidOf(const NetAddress& address);

// The address vector from one end of a connection to the other.
ibv_ah_attr PathTo(const ibv_gid& target, uint8_t type_of_service);
// Whether a QP may be given this one. On InfiniBand: the LID of the only port, without a GRH.
bool IsPath(const ibv_ah_attr& path);

}  // namespace verbena::softverbs
