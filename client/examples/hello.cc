// The first program: puts a value and gets it back.
//
//   verbena-example-hello 127.0.0.1:7400
//
// Exit status: 0 if the value came back as it was, 1 if not, 2 for wrong usage, 3 if the server
// cannot be reached.

#include <iostream>
#include <memory>
#include <string>

#include "verbena/connection.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "Usage: verbena-example-hello ADDR:PORT\n";
    return 2;
  }
  // Options are plain values with defaults. A connection belongs to one thread at a time.
  auto connected = verbena::Connection::Connect(argv[1], verbena::Options{});
  if (!connected.ok()) {
    std::cerr << "verbena-example-hello: " << connected.status() << "\n";
    return 3;
  }
  const std::unique_ptr<verbena::Connection> connection = *std::move(connected);

  // A change travels to the server, which makes it and answers. Keys and values are bytes.
  const auto stored = connection->Put("greeting", "hello, fabric");
  if (!stored.ok()) {
    std::cerr << "verbena-example-hello: put: " << stored.status() << "\n";
    return 1;
  }
  std::cout << "stored as version " << stored->version << " over " << connection->fabric() << "\n";

  // A GET fetches the value from the server's memory by RDMA READ: no code runs there.
  std::string value;
  uint64_t version = 0;
  if (const absl::Status status = connection->Get("greeting", &value, &version); !status.ok()) {
    std::cerr << "verbena-example-hello: get: " << status << "\n";
    return 1;
  }
  std::cout << "greeting: " << value << "\n";

  // An absent key is an answer like others, not a fault.
  if (const absl::Status status = connection->Get("farewell", &value); !absl::IsNotFound(status)) {
    std::cerr << "verbena-example-hello: get farewell: " << status << "\n";
    return 1;
  }
  std::cout << "farewell: not there\n";
  return version == stored->version ? 0 : 1;
}
