/// \file
/// A move-only function object that never allocates: what a completion calls.
#include "verbena/cxx20.h"  // ahead of all else
#pragma once

#include <cassert>
#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

namespace verbena {

template <typename Signature>
class Callback;

/// Holds any callable of up to kCapacity bytes (checked when it is compiled); capture a pointer if
/// yours is larger. Not thread-safe.
///
/// What it holds must not throw when it is called: an exception that leaves it ends the process
/// (std::terminate), since there is nobody above it who could go on.
template <typename... Args>
class Callback<void(Args...)> {
 public:
  static constexpr size_t kCapacity = 64;  ///< bytes

  /// Empty: false as a condition, and not to be called (asserted).
  Callback() = default;
  /// Of a lambda, or whatever can be called so.
  template <typename F>
  requires(!std::is_same_v<std::decay_t<F>, Callback> && std::is_invocable_v<F&, Args...>)
      Callback(F&& function) {  // NOLINT(google-explicit-constructor): a lambda is a callback
    using Function = std::decay_t<F>;
    static_assert(sizeof(Function) <= kCapacity, "capture a pointer instead of so much state");
    static_assert(alignof(Function) <= alignof(std::max_align_t));
    static_assert(std::is_nothrow_move_constructible_v<Function>);
    new (storage_) Function(std::forward<F>(function));
    call_ = [](void* self, Args... args) noexcept {
      (*static_cast<Function*>(self))(std::forward<Args>(args)...);
    };
    if constexpr (!std::is_trivially_copyable_v<Function>) {
      manage_ = [](void* self, void* target) {
        auto* function_object = static_cast<Function*>(self);
        if (target != nullptr) new (target) Function(std::move(*function_object));
        function_object->~Function();
      };
    }
  }
  /// `other` is empty then.
  Callback(Callback&& other) noexcept
      : call_(std::exchange(other.call_, nullptr)), manage_(std::exchange(other.manage_, nullptr)) {
    TakeObject(other);
  }
  /// Resets this one before.
  Callback& operator=(Callback&& other) noexcept {
    if (this != &other) {
      Reset();
      call_ = std::exchange(other.call_, nullptr);
      manage_ = std::exchange(other.manage_, nullptr);
      TakeObject(other);
    }
    return *this;
  }
  ~Callback() { Reset(); }

  /// Destroys what it holds; it is empty then.
  void Reset() {
    if (manage_ != nullptr) manage_(storage_, nullptr);
    call_ = nullptr;
    manage_ = nullptr;
  }

  /// Whether it holds something.
  explicit operator bool() const { return call_ != nullptr; }
  /// Calls what it holds.
  void operator()(Args... args) noexcept {
    assert(call_ != nullptr);
    call_(storage_, std::forward<Args>(args)...);
  }

 private:
  void TakeObject(Callback& other) {
    if (manage_ != nullptr) [[unlikely]] {
      manage_(other.storage_, storage_);
    } else if (call_ != nullptr) {
      __builtin_memcpy(storage_, other.storage_, kCapacity);
    }
  }

  alignas(std::max_align_t) unsigned char storage_[kCapacity];
  void (*call_)(void*, Args...) noexcept = nullptr;
  // Moves the callable to `target` (or nowhere if null) and destroys it; null if trivial.
  void (*manage_)(void* self, void* target) = nullptr;
};

}  // namespace verbena
