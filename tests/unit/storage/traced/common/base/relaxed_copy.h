// Stands in for common/base/relaxed_copy.h where the storage is compiled for order_test.cc: the
// same functions, with a call after each store of a word.
#pragma once

#define CopyToShared UntracedCopyToShared
#define StoreRelease UntracedStoreRelease
#include "../../../../../../common/base/relaxed_copy.h"  // IWYU pragma: export
#undef CopyToShared
#undef StoreRelease

namespace verbena {

// Called with the aligned word that was stored to, if set. Not thread-safe.
inline void (*traced_store)(const uint64_t* word) = nullptr;

inline void TraceStore(const void* address) {
  if (traced_store == nullptr) return;
  traced_store(reinterpret_cast<const uint64_t*>(reinterpret_cast<uintptr_t>(address) & ~7ul));
}

inline void StoreRelease(uint64_t* word, uint64_t value) {
  UntracedStoreRelease(word, value);
  TraceStore(word);
}

// One word after the other, so that each is seen to arrive by itself.
inline void CopyToShared(void* target, const void* source, size_t size) {
  auto* to = static_cast<char*>(target);
  const auto* from = static_cast<const char*>(source);
  while (size > 0) {
    size_t piece = 8 - (reinterpret_cast<uintptr_t>(to) & 7);
    if (piece > size) piece = size;
    UntracedCopyToShared(to, from, piece);
    TraceStore(to);
    to += piece;
    from += piece;
    size -= piece;
  }
}

}  // namespace verbena
