#include "server/server.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/macros.h"
#include "common/base/sizes.h"
#include "common/layout/item.h"
#include "common/layout/region_header.h"
#include "common/softverbs/softverbs.h"
#include "common/verbs/rdma_core.h"
#include "server/admin/info.h"
#include "server/admin/memory_check.h"
#include "server/storage/allocator.h"
#include "server/storage/eviction.h"
#include "server/storage/expiry.h"

namespace verbena::server {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

std::vector<net::Fabric> FabricsOf(const ServerConfig& config) {
  if (!config.fabrics.empty()) return config.fabrics;
  switch (config.fabric) {
    case FabricChoice::kVerbs:
      return {{.api = &verbs::RdmaCoreVerbs(), .required = true}};
    case FabricChoice::kSoft:
      return {{.api = &softverbs::SoftVerbs(), .required = true}};
    case FabricChoice::kAuto:
      break;
  }
  return {{.api = &verbs::RdmaCoreVerbs(), .required = false},
          {.api = &softverbs::SoftVerbs(), .required = true}};
}

absl::StatusOr<storage::Region> MakeRegion(const ServerConfig& config) {
  VERBENA_RETURN_IF_ERROR(admin::CheckMemory(config.memory));
  storage::RegionOptions options;
  options.name = "verbena-region";
  options.size = config.memory;
  options.want_huge_pages = config.huge_pages;
  options.progress = [next = MonotonicNanos() + kSecond](uint64_t done, uint64_t total) mutable {
    if (MonotonicNanos() < next) return;
    next = MonotonicNanos() + kSecond;
    LogInfo("touching memory: ", FormatSize(done), " of ", FormatSize(total));
  };
  return storage::Region::Create(options);
}

// The owner of a port that is taken cannot be named; the address and the way out can.
absl::Status Explain(const absl::Status& status, const NetAddress& listen) {
  if (absl::IsAlreadyExists(status)) {
    return absl::AlreadyExistsError(
        absl::StrCat("--listen=", listen.ToString(),
                     ": the port is in use; stop the other server, or choose another port (0 takes "
                     "a free one). ",
                     status.message()));
  }
  return status;
}

// Of the flags about connections, those that were changed to something and that mean nothing on the
// adapter's device, and why: "--ack_timeout=15, --retry_count=5 on siw0: ...". Empty: none.
std::string WithoutEffect(const verbs::ConnectOptions& given, const net::AdapterInfo& adapter) {
  const bool iwarp = adapter.transport == "iWARP";
  const bool soft = adapter.fabric == "soft";
  const verbs::ConnectOptions usual;
  std::vector<std::string> flags;
  const auto add = [&](bool in_vain, const verbs::ConnectRange& range, uint8_t value,
                       uint8_t otherwise) {
    if (in_vain && value != otherwise) {
      flags.push_back(absl::StrCat("--", range.name, "=", value));
    }
  };
  add(soft, verbs::kTosRange, given.tos.value_or(0), 0);
  add(iwarp, verbs::kAckTimeoutRange, given.ack_timeout, usual.ack_timeout);
  add(iwarp || soft, verbs::kRetryCountRange, given.retry_count, usual.retry_count);
  add(iwarp, verbs::kRnrTimerRange, given.min_rnr_timer, usual.min_rnr_timer);
  if (flags.empty()) return "";
  return absl::StrCat(absl::StrJoin(flags, ", "), " on ", adapter.device,
                      iwarp ? ": iWARP leaves repeating to TCP"
                            : ": it has no packets, and the client's retry_count holds");
}

}  // namespace

const char* Version() { return VERBENA_VERSION; }

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerConfig& config) {
  if (!config.listen.IsLocal()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--listen=", config.listen.ToString(), ": ", config.listen.host(),
                     " is not an address of this machine (see `ip address`)"));
  }
  const net::NetworkOptions options = {.listen = config.listen,
                                       .fabrics = FabricsOf(config),
                                       .queues = config.queues,
                                       .connect = config.connect,
                                       .poll_ns = config.poll_us * 1000,
                                       .silence_seconds = config.silence_seconds,
                                       .sessions = config.sessions};
  // Before the memory is taken, which can be slow.
  absl::StatusOr<std::vector<net::HeldDevices>> held = net::Network::TryBind(options);
  if (!held.ok()) return Explain(held.status(), config.listen);
  std::unique_ptr<Server> server(new Server(config));
  server->started_ = MonotonicNanos();
  VERBENA_ASSIGN_OR_RETURN(storage::Region region, MakeRegion(config));
  const net::Slice slice = {.memory = region.bytes(),
                            .epoch = region.epoch(),
                            .max_value_size = config.max_value_size,
                            .max_key_size = layout::kMaxKeySize,
                            .layout_version = layout::kLayoutVersion,
                            .features = (config.ordered_index ? wire::kFeatureScans : 0) |
                                        (config.evict ? wire::kFeatureTouches : 0)};
  const storage::StoreOptions store_options = {
      .workers = static_cast<int>(config.queues.workers),
      .max_value_size = config.max_value_size,
      .ordered_index = config.ordered_index,
      .evict = config.evict,
      .expiry_tick_ns = config.expiry_tick_ns,
      .wake_for_expiry = [raw = server.get()] { raw->maintenance_->Wake(); }};
  VERBENA_ASSIGN_OR_RETURN(server->store_,
                           storage::Store::Create(std::move(region), store_options));
  server->handler_ =
      std::make_unique<StoreHandler>(*server->store_, [raw = server.get()] { return raw->Info(); });
  VERBENA_RETURN_IF_ERROR(server->StartMaintenance());
  absl::StatusOr<std::unique_ptr<net::Network>> network =
      net::Network::Create(options, slice, *std::move(held));
  if (!network.ok()) return Explain(network.status(), config.listen);
  server->network_ = *std::move(network);
  if (const absl::Status status = server->network_->Start(*server->handler_); !status.ok()) {
    return Explain(status, config.listen);
  }
  return server;
}

// Before any worker runs. The thread is woken when a 64th of the region has been freed.
absl::Status Server::StartMaintenance() {
  std::vector<Maintenance::Task> tasks;
  if (config_.compaction_rate > 0) {
    tasks.emplace_back(CompactionTask(*store_, config_.compaction_rate));
  }
  tasks.emplace_back([this](int64_t now_ns) { return RemoveDue(now_ns); });
  // Last, since the others free blocks.
  tasks.emplace_back([this](int64_t) {
    store_->allocator().FlushCache(store_->maintenance_worker());
    return Maintenance::kWhenWoken;
  });
  maintenance_ = std::make_unique<Maintenance>(std::move(tasks));
  storage::Allocator& allocator = store_->allocator();
  allocator.SetCompactionNotice(std::max<uint64_t>(allocator.heap_bytes() / 64, layout::kPageSize),
                                [this] { maintenance_->Wake(); });
  return maintenance_->Start();
}

Server::~Server() {
  // The network uses the handler and the store, pending changes included; maintenance the store.
  network_.reset();
  if (maintenance_ != nullptr) maintenance_->Stop();
}

// A piece of the removal of items whose time is over; says when to go on.
int64_t Server::RemoveDue(int64_t now_ns) {
  constexpr size_t kPiece = 256;
  const size_t looked_at = store_->RemoveDue(store_->maintenance_worker(), now_ns, kPiece);
  return looked_at == kPiece ? now_ns : store_->expiry().NextLook(now_ns);
}

bool Server::Stop(absl::Duration limit) { return network_->Stop(limit); }

std::string Server::Info() const {
  return admin::InfoJson({.version = Version(),
                          .started = started_,
                          .max_value_size = config_.max_value_size,
                          .network = *network_,
                          .store = *store_});
}

// What the banner says of the largest value. A page is the index's, and the item's header and key
// take a part of one.
std::string Server::LargestValue() const {
  const uint64_t pages = store_->allocator().heap_bytes() / layout::kPageSize;
  const uint64_t holds = pages > 2 ? (pages - 2) * layout::kPageSize : 0;
  if (config_.max_value_size <= holds) return FormatSize(config_.max_value_size);
  return absl::StrCat("what fits into the region, about ", FormatSize(holds),
                      " (--max_value_size=", FormatSize(config_.max_value_size),
                      " needs a larger --memory)");
}

std::vector<std::string> Server::Warnings() const {
  std::vector<std::string> lines;
  for (const std::string& reason : network_->left_out()) {
    lines.push_back(
        absl::StrCat("no RDMA      ", reason,
                     "; SOFT serves: the software device, for clients on this host only"));
  }
  return lines;
}

std::vector<std::string> Server::Banner() const {
  std::vector<std::string> lines;
  for (const net::AdapterInfo& adapter : network_->adapters()) {
    lines.push_back(absl::StrCat(
        "fabric       ", adapter.fabric == "soft"
                             ? "SOFT: the software verbs device, for clients on this host only"
                             : "VERBS: RDMA device"));
    for (const net::ListenerInfo& listener : adapter.listeners) {
      lines.push_back(absl::StrCat("device       ", verbs::ToString(adapter.device, listener.port),
                                   ", ", verbs::ToString(listener.gid), ", address ",
                                   listener.address));
    }
    lines.push_back(absl::StrCat("queues       ", adapter.plan.Describe()));
    const std::string in_vain = WithoutEffect(config_.connect, adapter);
    if (!in_vain.empty()) lines.push_back(absl::StrCat("no effect    ", in_vain));
  }
  for (const std::string& address : network_->missing()) {
    lines.push_back(absl::StrCat("waiting for  ", address));
  }
  const storage::Region& region = store_->region();
  lines.push_back(absl::StrCat("region       ", FormatSize(region.size()),
                               ", pages: ", PageKindName(region.page_kind()), ", epoch ",
                               absl::Hex(region.epoch(), absl::kZeroPad16)));
  lines.push_back(absl::StrCat("values       up to ", LargestValue()));
  lines.push_back(absl::StrCat(
      "eviction     ", config_.evict
                           ? absl::StrCat(storage::Eviction::kPolicy,
                                          ": keys that are read least go when the region is full")
                           : "none: when the region is full changes are refused"));
  lines.push_back(absl::StrCat("connections  ", network_->max_connections(), " admitted, ",
                               config_.queues.workers,
                               config_.queues.workers == 1 ? " worker" : " workers"));
  lines.push_back(absl::StrCat("listening    ", address()));
  return lines;
}

}  // namespace verbena::server
