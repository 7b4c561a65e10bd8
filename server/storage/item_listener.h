// What else is kept about items, outside the slice: told of every item that comes, moves or goes.
#pragma once

#include <string_view>

#include "common/layout/key_hash.h"
#include "common/layout/slot.h"

namespace verbena::storage {

// The calls for one key come one after the other, in the order of its changes, each under the lock
// of the key's bucket; calls for keys of different buckets come at the same time from different
// threads. They must be short, must not wait and must not come back to the Store. Locks that they
// take rank below the buckets' locks: nobody who holds one may take a bucket's lock.
//
// `key` and the block that a slot names hold the key's bytes during the call; a block that has gone
// or was moved away from is freed, and may be used for another item, as soon as the call has
// returned.
class ItemListener {
 public:
  virtual ~ItemListener() = default;

  // A key that was not there. Called before readers can see the item.
  virtual void OnInserted(layout::KeyHash hash, std::string_view key, layout::Slot slot) = 0;
  // The key's item lies in another block from now on: it was moved (`changed` false) or has another
  // value (true). A change in place is not told. Readers see the old item or the new one.
  virtual void OnMoved(layout::KeyHash hash, std::string_view key, layout::Slot from,
                       layout::Slot to, bool changed) = 0;
  // The key is not there any more: it was deleted, has expired or was evicted. Called after readers
  // have lost the item.
  virtual void OnRemoved(layout::KeyHash hash, std::string_view key, layout::Slot slot) = 0;
};

}  // namespace verbena::storage
