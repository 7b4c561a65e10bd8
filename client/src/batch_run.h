// Several operations that are carried out asynchronously, for one callback.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "client/src/operation.h"
#include "verbena/batch.h"
#include "verbena/connection.h"

namespace verbena::client {

// Belongs to its operations in flight: it goes with the last one, when its callback has run. It
// never moves, since they refer to its calls, its keys and its values.
struct BatchRun {
  BatchRun(Batch&& given, const OperationGroup& of, BatchCallback&& then)
      : group(of), batch(std::move(given)), calls(batch.size()), callback(std::move(then)) {
    group.run = this;
    for (SyncCall& call : calls) call.group = &group;
    place.group = &group;
  }
  BatchRun(const BatchRun&) = delete;
  BatchRun& operator=(const BatchRun&) = delete;

  OperationGroup group;
  Batch batch;
  std::vector<SyncCall> calls;  // of each operation
  SyncCall place;               // of one that stands for all, where none could be begun
  size_t next = 0;              // the first that has not been begun
  size_t in_flight = 0;
  BatchCallback callback;
};

}  // namespace verbena::client
