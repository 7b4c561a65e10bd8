#include "client/src/process_forks.h"

#include <pthread.h>

#include <mutex>
#include <unordered_set>

namespace verbena::client {
namespace {

// Never destroyed: forks may happen until the end.
struct Observers {
  static Observers& Get() {
    static Observers& observers = *new Observers;
    return observers;
  }

  // The lock is held over the fork, so that the set is whole in the child.
  Observers() { pthread_atfork(&Before, &InParent, &InChild); }

  static void Before() { Get().mutex.lock(); }
  static void InParent() { Get().mutex.unlock(); }
  static void InChild() {
    for (ForkObserver* observer : Get().all) observer->OnForkInChild();
    Get().mutex.unlock();
  }

  std::mutex mutex;
  std::unordered_set<ForkObserver*> all;
};

}  // namespace

ForkWatch::ForkWatch(ForkObserver& observer) : observer_(observer) {
  Observers& observers = Observers::Get();
  const std::lock_guard lock(observers.mutex);
  observers.all.insert(&observer_);
}

ForkWatch::~ForkWatch() {
  Observers& observers = Observers::Get();
  const std::lock_guard lock(observers.mutex);
  observers.all.erase(&observer_);
}

}  // namespace verbena::client
