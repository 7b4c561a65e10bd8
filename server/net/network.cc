#include "server/net/network.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/macros.h"

namespace verbena::net {
namespace {

// For the last steps once connections have been cut off; they wait for nobody.
constexpr absl::Duration kCutOffLimit = absl::Seconds(3);

// Whether a fabric that is not required may be left out for this: only because no RDMA device has
// the address. One that cannot be used is a failure, or clients would get another fabric unasked.
bool CanDoWithout(const absl::Status& status) { return absl::IsNotFound(status); }

// The same for a fabric that is required or not: the way out of the latter is said.
absl::Status WithWayOut(const Fabric& fabric, const absl::Status& status) {
  if (status.ok() || fabric.required) return status;
  return absl::Status(status.code(),
                      absl::StrCat(status.message(),
                                   ". To serve the software device alone (clients of this host "
                                   "only), say --fabric=soft"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Network>> Network::Create(const NetworkOptions& options,
                                                         const Slice& slice,
                                                         std::vector<HeldDevices> held) {
  std::unique_ptr<Network> network(new Network(options, slice));
  uint64_t possible = 0;
  held.resize(options.fabrics.size());
  for (size_t i = 0; i < options.fabrics.size(); ++i) {
    const Fabric& fabric = options.fabrics[i];
    const bool had_devices = !held[i].held.empty();
    absl::StatusOr<std::unique_ptr<Acceptor>> acceptor =
        Acceptor::Bind(*fabric.api, &network->options_.listen, options.queues, options.connect,
                       slice, std::move(held[i]));
    if (!acceptor.ok()) {
      // Devices that have gone meanwhile are open still, until this process ends.
      if (fabric.required || had_devices || !CanDoWithout(acceptor.status())) {
        return WithWayOut(fabric, acceptor.status());
      }
      network->left_out_.emplace_back(acceptor.status().message());
      continue;
    }
    for (const std::unique_ptr<Adapter>& adapter : (*acceptor)->adapters()) {
      possible += adapter->plan().max_connections;
    }
    network->acceptors_.push_back(*std::move(acceptor));
  }
  if (network->acceptors_.empty()) {
    return absl::NotFoundError(absl::StrJoin(network->left_out_, "; "));
  }
  const uint32_t wanted =
      options.queues.max_connections > 0 ? options.queues.max_connections : kDefaultMaxConnections;
  network->admission_.set_limit(static_cast<uint32_t>(std::min<uint64_t>(possible, wanted)));
  return network;
}

absl::StatusOr<std::vector<HeldDevices>> Network::TryBind(const NetworkOptions& options) {
  std::vector<HeldDevices> all;
  for (const Fabric& fabric : options.fabrics) {
    absl::StatusOr<HeldDevices> held = Acceptor::TryBind(*fabric.api, options.listen);
    if (!held.ok() && (fabric.required || !CanDoWithout(held.status()))) {
      return WithWayOut(fabric, held.status());
    }
    all.push_back(held.ok() ? *std::move(held) : HeldDevices());
  }
  return all;
}

absl::Status Network::Start(RequestHandler& handler) {
  started_ = true;
  std::vector<Worker*> workers;
  for (uint32_t index = 0; index < options_.queues.workers; ++index) {
    std::vector<QueueSet*> queues;
    uint32_t connections = 0;
    for (const std::unique_ptr<Acceptor>& acceptor : acceptors_) {
      for (const std::unique_ptr<Adapter>& adapter : acceptor->adapters()) {
        queues.push_back(&adapter->queues(static_cast<int>(index)));
        connections += adapter->plan().connections_per_worker;
      }
    }
    const WorkerOptions options = {
        .index = static_cast<int>(index),
        .poll_ns = options_.poll_ns,
        .silence_ticks = options_.silence_seconds,
        .max_connections = std::min(connections, kMaxConnectionsPerWorker)};
    workers_.push_back(
        std::make_unique<Worker>(options, handler, sessions_, slice_, std::move(queues)));
    workers.push_back(workers_.back().get());
  }
  for (const std::unique_ptr<Worker>& worker : workers_) VERBENA_RETURN_IF_ERROR(worker->Start());
  for (const std::unique_ptr<Acceptor>& acceptor : acceptors_) {
    VERBENA_RETURN_IF_ERROR(acceptor->Start(workers, &admission_, &sessions_));
  }
  return absl::OkStatus();
}

bool Network::Stop(absl::Duration limit) {
  if (!started_) return true;
  started_ = false;
  for (const std::unique_ptr<Acceptor>& acceptor : acceptors_) acceptor->Drain();
  for (const std::unique_ptr<Worker>& worker : workers_) worker->Post({WorkerMail::Kind::kDrain});
  bool by_themselves = admission_.WaitEmpty(limit);
  if (!by_themselves) {
    for (const std::unique_ptr<Worker>& worker : workers_) {
      worker->Post({WorkerMail::Kind::kCloseAll});
    }
    admission_.WaitEmpty(kCutOffLimit);
  }
  // Acceptors first: their last mail to the workers is taken before those stop.
  for (const std::unique_ptr<Acceptor>& acceptor : acceptors_) acceptor->Stop();
  for (const std::unique_ptr<Worker>& worker : workers_) worker->Stop();
  return by_themselves;
}

// Stopped threads first, then the acceptors with what connections are left, then the workers.
Network::~Network() {
  Stop(absl::ZeroDuration());
  acceptors_.clear();
}

std::vector<AdapterInfo> Network::adapters() const {
  std::vector<AdapterInfo> all;
  for (const std::unique_ptr<Acceptor>& acceptor : acceptors_) {
    for (AdapterInfo& info : acceptor->Describe()) all.push_back(std::move(info));
  }
  return all;
}

std::vector<std::string> Network::missing() const {
  std::vector<std::string> all;
  for (const std::unique_ptr<Acceptor>& acceptor : acceptors_) {
    for (std::string& address : acceptor->Missing()) all.push_back(std::move(address));
  }
  return all;
}

}  // namespace verbena::net
