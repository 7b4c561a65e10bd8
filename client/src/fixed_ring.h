// A first-in-first-out queue in memory that is taken once. Not thread-safe.
#pragma once

#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace verbena::client {

template <typename T>
class FixedRing {
 public:
  // Room for at least `capacity` elements.
  explicit FixedRing(size_t capacity)
      : slots_(std::bit_ceil(capacity < 1 ? size_t{1} : capacity)), mask_(slots_.size() - 1) {}

  bool empty() const { return head_ == tail_; }
  size_t size() const { return tail_ - head_; }
  void Push(T value) {
    assert(size() < slots_.size());
    slots_[tail_++ & mask_] = std::move(value);
  }
  // The i-th, counted from the front.
  T& At(size_t i) {
    assert(i < size());
    return slots_[(head_ + i) & mask_];
  }
  const T& At(size_t i) const {
    assert(i < size());
    return slots_[(head_ + i) & mask_];
  }
  T Pop() {
    assert(!empty());
    return std::move(slots_[head_++ & mask_]);
  }
  // Takes out what remove(const T&) says; the others keep their order.
  template <typename Remove>
  void RemoveIf(Remove&& remove) {
    for (size_t left = size(); left > 0; --left) {
      T value = Pop();
      if (!remove(std::as_const(value))) Push(std::move(value));
    }
  }
  void Clear() { head_ = tail_; }

 private:
  std::vector<T> slots_;
  size_t mask_;
  size_t head_ = 0;
  size_t tail_ = 0;
};

}  // namespace verbena::client
