// Lookups whose value lands in memory of the caller's: header and key in the sink, the value behind
// them in other memory. The bytes of the item are judged as if they lay in one piece.
#include <algorithm>
#include <cstring>

#include "client/src/lookup.h"

namespace verbena::client {

using layout::ItemHeader;

bool Lookup::SplitsRead(const Step& step) const {
  return split() && step.action == Action::kRead && state_ == State::kBlock &&
         step.length > head_size();
}

Lookup::Step Lookup::OnSplitRead(LookupContext& context) {
  switch (state_) {
    case State::kBlock:
      return OnSplitBlock(context);
    case State::kPieces:
      return OnSplitPieces(context);
    default:
      return OnRead(context);
  }
}

void Lookup::BeginBody(LookupContext& context) {
  const uint64_t seed = context.shape.hash_seed;
  if (body_hash_ == nullptr) {
    body_hash_ = std::make_unique<layout::BodyHash>(seed);
  } else {
    body_hash_->Reset(seed);
  }
}

Lookup::Step Lookup::OnSplitBlock(LookupContext& context) {
  const uint64_t head = head_size();
  const uint8_t* const bytes = sink_->block.data();
  std::memcpy(&expected_, bytes, sizeof(expected_));
  if (length_ < head || expected_.check == 0 || expected_.key_len != key_.size() ||
      std::memcmp(bytes + sizeof(expected_), key_.data(), key_.size()) != 0) {
    return NotAccepted(context);
  }
  // It may be that only these bytes are wrong: the whole decides, elsewhere.
  if (expected_.value_len > split_.size()) return {.action = Action::kTooSmall};
  const uint64_t size = expected_.size();
  BeginBody(context);
  body_hash_->Add({bytes + sizeof(expected_), key_.size()});
  if (size <= length_) {
    body_hash_->Add(split_.first(expected_.value_len));
    return JudgeSplit(context);
  }
  if (slot_.size_class() != layout::kRunClass || size > context.shape.max_item_size ||
      !context.shape.InHeap(slot_.offset(), size)) {
    return NotAccepted(context);
  }
  // A run: its begin is here, and the rest of its value follows in pieces.
  body_hash_->Add(split_.first(length_ - head));
  have_ = length_;
  asked_ = length_;
  length_ = size;
  at_.in_flight = 0;
  at_.in_space = true;
  state_ = State::kPieces;
  return NextPiece();
}

Lookup::Step Lookup::OnSplitPieces(LookupContext& context) {
  const uint64_t begin = have_;
  have_ = PieceEnd(begin);
  --at_.in_flight;
  body_hash_->Add(split_.subspan(begin - head_size(), have_ - begin));
  if (have_ == length_) return JudgeSplit(context);
  return {.action = Action::kWait};
}

Lookup::Step Lookup::JudgeSplit(LookupContext& context) {
  const uint64_t header_check = layout::HeaderCheck(expected_, slot_.offset(), context.hash_seed);
  if (layout::CombineChecks(header_check, body_hash_->Check()) != expected_.check) {
    return NotAccepted(context);
  }
  version_ = expected_.version;
  value_ = {reinterpret_cast<const char*>(split_.data()), expected_.value_len};
  return {.action = Action::kFound};
}

}  // namespace verbena::client
