// Coroutines: many sequences of operations at once, each written as if it were alone.
//
//   verbena-example-coroutine 127.0.0.1:7400
//
// A hundred accounts are moved to new keys, all at the same time on one connection and in one
// thread. Each move is a sequence: get, put, delete; wherever one waits for the fabric, others go
// on.
//
// Exit status: 0 if all were moved, 1 if not, 2 for wrong usage, 3 if the server cannot be reached.

#include "verbena/coroutine.h"

#include <iostream>
#include <memory>
#include <string>

#include "verbena/connection.h"

namespace {

constexpr int kAccounts = 100;
constexpr int kAtOnce = 10;  // each has one operation under way; fewer than Options::depth

std::string OldKey(int i) { return "example/account/" + std::to_string(i); }
std::string NewKey(int i) { return "example/moved/" + std::to_string(i); }

// One after the other for one account. The outcome of each operation is an absl::StatusOr.
verbena::Task<absl::Status> Move(verbena::AsyncClient client, int i) {
  const std::string from = OldKey(i);
  const std::string to = NewKey(i);
  const absl::StatusOr<verbena::Value> account = co_await client.Get(from);
  if (!account.ok()) co_return account.status();
  const auto put = co_await client.Put(to, account->bytes);
  if (!put.ok()) co_return put.status();
  // Only what has been copied is deleted: if somebody has changed it, this is Aborted.
  co_return (co_await client.Delete(from, verbena::Condition::IfVersion(account->version)))
      .status();
}

struct Tally {
  int moved = 0;
  absl::Status failure;  // the first
};

// Moves accounts until there are none left; kAtOnce of these share the work.
verbena::Task<> MoveThem(verbena::AsyncClient client, int* next, Tally* tally) {
  while (*next < kAccounts) {
    const int i = (*next)++;
    const absl::Status status = co_await Move(client, i);
    if (status.ok()) ++tally->moved;
    if (tally->failure.ok()) tally->failure = status;
  }
}

absl::Status MoveAll(verbena::Connection& connection, Tally* tally) {
  for (int i = 0; i < kAccounts; ++i) {
    const auto put = connection.Put(OldKey(i), "balance " + std::to_string(i));
    if (!put.ok()) return put.status();
  }
  const verbena::AsyncClient client(connection);
  int next = 0;
  for (int i = 0; i < kAtOnce; ++i) verbena::Spawn(MoveThem(client, &next, tally));
  // They go on inside of Poll, Wait or Drain; an event loop would call PollAndArm.
  connection.Drain();
  return tally->failure;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "Usage: verbena-example-coroutine ADDR:PORT\n";
    return 2;
  }
  auto connection = verbena::Connection::Connect(argv[1], verbena::Options{});
  if (!connection.ok()) {
    std::cerr << "verbena-example-coroutine: " << connection.status() << "\n";
    return 3;
  }
  Tally tally;
  if (const absl::Status status = MoveAll(**connection, &tally); !status.ok()) {
    std::cerr << "verbena-example-coroutine: " << status << "\n";
    return 1;
  }
  std::cout << tally.moved << " accounts were moved\n";
  return tally.moved == kAccounts ? 0 : 1;
}
