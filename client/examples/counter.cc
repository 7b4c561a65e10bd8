// Compare-and-swap: threads change one value at the same time and lose nothing.
//
//   verbena-example-counter 127.0.0.1:7400
//
// The value is a small record, "COUNT LAST-WRITER", so that Add will not do. Each thread has a
// connection of its own; it reads the record with its version, makes a new one, and puts it only if
// the key still has that version. Aborted means that another thread was faster: look again.
//
// Exit status: 0 if the count is what all threads together have counted, 1 if not, 2 for wrong
// usage, 3 if the server cannot be reached.

#include <iostream>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "verbena/connection.h"

namespace {

constexpr int kThreads = 4;
constexpr int kStepsPerThread = 250;
constexpr const char* kKey = "example/counter";

std::string Record(int count, int writer) {
  return std::to_string(count) + " thread-" + std::to_string(writer);
}
int CountOf(const std::string& record) {
  int count = 0;
  std::istringstream(record) >> count;
  return count;
}

// Makes the record one higher, however many others do the same. `*retries` counts how often another
// one was faster.
absl::Status CountOne(verbena::Connection& connection, int writer, int* retries) {
  for (;;) {
    std::string record;
    uint64_t version = 0;
    if (absl::Status status = connection.Get(kKey, &record, &version); !status.ok()) return status;
    const absl::Status status =
        connection.CompareAndSwap(kKey, version, Record(CountOf(record) + 1, writer)).status();
    if (!absl::IsAborted(status)) return status;
    ++*retries;
  }
}

// What the threads have in common.
struct Outcome {
  std::mutex mutex;
  absl::Status status;
  int retries = 0;
};

void CountInThread(const std::string& server, int writer, Outcome& outcome) {
  int retries = 0;
  auto connection = verbena::Connection::Connect(server, verbena::Options{});
  absl::Status status = connection.status();
  for (int i = 0; i < kStepsPerThread && status.ok(); ++i) {
    status = CountOne(**connection, writer, &retries);
  }
  const std::lock_guard lock(outcome.mutex);
  outcome.retries += retries;
  if (outcome.status.ok()) outcome.status = status;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "Usage: verbena-example-counter ADDR:PORT\n";
    return 2;
  }
  const std::string server = argv[1];
  auto connection = verbena::Connection::Connect(server, verbena::Options{});
  if (!connection.ok()) {
    std::cerr << "verbena-example-counter: " << connection.status() << "\n";
    return 3;
  }
  if (const auto begun = (*connection)->Put(kKey, Record(0, 0)); !begun.ok()) {
    std::cerr << "verbena-example-counter: " << begun.status() << "\n";
    return 1;
  }

  Outcome outcome;
  {
    std::vector<std::jthread> threads;
    for (int writer = 1; writer <= kThreads; ++writer) {
      threads.emplace_back([&, writer] { CountInThread(server, writer, outcome); });
    }
  }  // joined
  std::string record;
  if (outcome.status.ok()) outcome.status = (*connection)->Get(kKey, &record);
  if (!outcome.status.ok()) {
    std::cerr << "verbena-example-counter: " << outcome.status << "\n";
    return 1;
  }
  std::cout << kThreads << " threads counted to " << record << " (" << outcome.retries
            << " times another one was faster)\n";
  return CountOf(record) == kThreads * kStepsPerThread ? 0 : 1;
}
