#include "server/net/message_memory.h"

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/base/macros.h"
#include "common/verbs/errors.h"

namespace verbena::net {

absl::StatusOr<MessageMemory> MessageMemory::Create(const verbs::ProtectionDomain& pd,
                                                    const std::string& name, uint32_t count) {
  MessageMemory made;
  VERBENA_ASSIGN_OR_RETURN(
      made.memory_, SharedMemory::Create(name, uint64_t{count} * kMaxMessage, /*want_huge=*/false));
  VERBENA_ASSIGN_OR_RETURN(
      made.region_, verbs::MemoryRegion::Register(pd, made.memory_.data(), made.memory_.size(),
                                                  IBV_ACCESS_LOCAL_WRITE));
  made.count_ = count;
  return made;
}

absl::StatusOr<std::unique_ptr<ReceiveQueue>> ReceiveQueue::Create(
    const verbs::ProtectionDomain& pd, const std::string& name, const QueuePlan& plan) {
  std::unique_ptr<ReceiveQueue> queue(new ReceiveQueue);
  const uint32_t depth = plan.receives;
  if (plan.shared_receives()) {
    absl::StatusOr<verbs::SharedReceiveQueue> srq = verbs::SharedReceiveQueue::Create(pd, depth);
    if (!srq.ok()) {
      const int error = verbs::ErrnoOf(srq.status()).value_or(0);
      if (error != EOPNOTSUPP && error != ENOSYS) return srq.status();
      return absl::UnimplementedError(srq.status().message());
    }
    queue->srq_ = *std::move(srq);
  }
  VERBENA_ASSIGN_OR_RETURN(queue->memory_, MessageMemory::Create(pd, name, depth));
  queue->pieces_.reserve(depth);
  queue->requests_.reserve(depth);
  queue->generations_.assign(depth, 1);
  queue->owners_.assign(depth, nullptr);
  for (uint32_t i = 0; i < depth; ++i) {
    queue->pieces_.push_back(
        verbs::MakeSge(queue->memory_.At(i), kMaxMessage, queue->memory_.lkey()));
    queue->requests_.push_back(verbs::MakeRecv(
        WorkId(WorkKind::kReceive, {.slot = i, .generation = 1}).bits(), &queue->pieces_[i]));
    queue->reserve_.push_back(depth - 1 - i);
  }
  if (!plan.shared_receives()) return queue;
  queue->shared_.margin_ = plan.worker_margin();
  queue->SetGranted(queue->shared_, 0);
  absl::Status failed;
  queue->Flush([&](ReceiveLane&, const absl::Status& status) { failed = status; });
  VERBENA_RETURN_IF_ERROR(failed);
  return queue;
}

ReceiveLane* ReceiveQueue::Attach(ReceiveLane* own, ibv_qp* qp) {
  if (srq_.valid()) return &shared_;
  own->qp_ = qp;
  own->margin_ = kOwnMargin;
  return own;
}

void ReceiveQueue::Detach(ReceiveLane& lane) {
  if (&lane == &shared_) return;
  lane.open_ = false;
  for (const ibv_recv_wr* at = lane.first_; at != nullptr; at = at->next) {
    Reserve(WorkId(at->wr_id).ref.slot);
  }
  lane.first_ = lane.last_ = nullptr;
  lane.listed_ = 0;
  if (lane.dirty_) std::erase(dirty_, &lane);
  lane.dirty_ = false;
}

void ReceiveQueue::Reclaim(ReceiveLane& lane) {
  if (&lane == &shared_) return;
  Detach(lane);
  for (uint32_t i = 0; i < owners_.size() && lane.in_use_ > 0; ++i) {
    if (owners_[i] != &lane) continue;
    uint32_t& generation = generations_[i];
    generation = generation == verbs::kMaxGeneration ? 1 : generation + 1;
    requests_[i].wr_id = WorkId(WorkKind::kReceive, {.slot = i, .generation = generation}).bits();
    Reserve(i);
  }
}

void ReceiveQueue::SetGranted(ReceiveLane& lane, uint32_t granted) {
  lane.target_ = granted + lane.margin_;
  while (lane.open_ && lane.in_use_ < lane.target_ && !reserve_.empty()) {
    const uint32_t index = reserve_.back();
    reserve_.pop_back();
    ++lane.in_use_;
    owners_[index] = &lane;
    List(lane, index);
  }
}

void ReceiveQueue::Return(uint32_t index) {
  ReceiveLane* const lane = owners_[index];
  if (lane == nullptr) return;  // a completion came twice
  if (!lane->open_ || lane->in_use_ > lane->target_) {
    Reserve(index);
  } else {
    List(*lane, index);
  }
}

void ReceiveQueue::Reserve(uint32_t index) {
  --owners_[index]->in_use_;
  owners_[index] = nullptr;
  reserve_.push_back(index);
}

void ReceiveQueue::List(ReceiveLane& lane, uint32_t index) {
  ibv_recv_wr* request = &requests_[index];
  request->next = nullptr;
  if (lane.last_ == nullptr) {
    lane.first_ = request;
  } else {
    lane.last_->next = request;
  }
  lane.last_ = request;
  ++lane.listed_;
  if (!lane.dirty_) dirty_.push_back(&lane);
  lane.dirty_ = true;
}

absl::Status ReceiveQueue::Post(ReceiveLane& lane, uint32_t* posted) {
  ibv_recv_wr* bad = nullptr;
  const bool shared = lane.qp_ == nullptr;
  const int error = shared ? verbs::PostSrqRecv(srq_.get(), lane.first_, &bad)
                           : verbs::PostRecv(lane.qp_, lane.first_, &bad);
  if (error == 0) bad = nullptr;
  while (lane.first_ != bad && lane.first_ != nullptr) {
    lane.first_ = lane.first_->next;
    --lane.listed_;
    ++*posted;
  }
  if (lane.first_ == nullptr) lane.last_ = nullptr;
  if (error == 0) return absl::OkStatus();
  return verbs::ErrnoStatus(error, shared ? "ibv_post_srq_recv" : "ibv_post_recv",
                            absl::StrCat(lane.listed_, " receives"));
}

absl::Status ReceiveQueue::ArmAlarm() {
  if (!srq_.valid()) return absl::OkStatus();
  return srq_.ArmLimit(std::max(shared_.margin_ / 2, 1u));
}

absl::StatusOr<ResponsePool> ResponsePool::Create(const verbs::ProtectionDomain& pd,
                                                  const std::string& name, uint32_t count) {
  ResponsePool pool;
  VERBENA_ASSIGN_OR_RETURN(pool.memory_, MessageMemory::Create(pd, name, count));
  pool.free_.reserve(count);
  for (uint32_t i = count; i > 0; --i) pool.free_.push_back(i - 1);
  return pool;
}

}  // namespace verbena::net
