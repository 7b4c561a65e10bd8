#include "server/net/message_memory.h"

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
    const verbs::ProtectionDomain& pd, const std::string& name, uint32_t depth) {
  std::unique_ptr<ReceiveQueue> queue(new ReceiveQueue);
  VERBENA_ASSIGN_OR_RETURN(queue->memory_, MessageMemory::Create(pd, name, depth));
  VERBENA_ASSIGN_OR_RETURN(queue->srq_, verbs::SharedReceiveQueue::Create(pd, depth));
  queue->pieces_.reserve(depth);
  queue->requests_.reserve(depth);
  for (uint32_t i = 0; i < depth; ++i) {
    queue->pieces_.push_back(
        verbs::MakeSge(queue->memory_.At(i), kMaxMessage, queue->memory_.lkey()));
    queue->requests_.push_back(verbs::MakeRecv(
        WorkId(WorkKind::kReceive, {.slot = i, .generation = 1}).bits(), &queue->pieces_[i]));
    queue->reserve_.push_back(depth - 1 - i);
  }
  queue->SetGranted(0);
  VERBENA_RETURN_IF_ERROR(queue->Flush().status());
  return queue;
}

void ReceiveQueue::SetGranted(uint32_t granted) {
  target_ = granted + kReceiveMargin;
  while (in_use_ < target_ && !reserve_.empty()) {
    List(reserve_.back());
    reserve_.pop_back();
    ++in_use_;
  }
}

void ReceiveQueue::Return(uint32_t index) {
  if (in_use_ > target_) {
    --in_use_;
    reserve_.push_back(index);
  } else {
    List(index);
  }
}

void ReceiveQueue::List(uint32_t index) {
  ibv_recv_wr* request = &requests_[index];
  request->next = nullptr;
  if (last_ == nullptr) {
    first_ = request;
  } else {
    last_->next = request;
  }
  last_ = request;
  ++listed_;
}

absl::StatusOr<uint32_t> ReceiveQueue::Flush() {
  if (first_ == nullptr) return 0u;
  ibv_recv_wr* bad = nullptr;
  if (const int error = verbs::PostSrqRecv(srq_.get(), first_, &bad); error != 0) {
    // What was not posted stays listed and is tried again.
    while (first_ != bad && first_ != nullptr) {
      first_ = first_->next;
      --listed_;
    }
    if (first_ == nullptr) last_ = nullptr;
    return verbs::ErrnoStatus(error, "ibv_post_srq_recv", "");
  }
  const uint32_t posted = listed_;
  first_ = last_ = nullptr;
  listed_ = 0;
  return posted;
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
