// Loads a Debian package index into a Verbena server and proves that it is there.
//
//   apt-cache dumpavail | verbena-example-packages 127.0.0.1:7400
//
// Every record of the index (a paragraph of text) is put under the package's name, then read back
// by one-sided READ and compared byte for byte with the source. Shows pipelining: operations are
// submitted until the connection says that its depth is reached, then polled.
//
// Exit status: 0 if every record came back as it was, 1 if not, 2 for wrong usage, 3 if the server
// cannot be reached.

#include <chrono>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "verbena/connection.h"

namespace {

using Clock = std::chrono::steady_clock;
using Records = std::map<std::string_view, std::string_view>;  // package name -> record

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The value of "Package: NAME" in a record; empty if there is none.
std::string_view PackageName(std::string_view record) {
  constexpr std::string_view kField = "Package: ";
  size_t at = record.starts_with(kField) ? 0 : record.find("\nPackage: ");
  if (at == std::string_view::npos) return {};
  at += (at == 0 ? 0 : 1) + kField.size();
  return record.substr(at, record.find('\n', at) - at);
}

// Cuts an index into its records, which empty lines separate. Of several records with one name the
// last one counts, as it does in the store.
Records ParseIndex(std::string_view index) {
  Records records;
  while (!index.empty()) {
    const size_t end = index.find("\n\n");
    const std::string_view record = index.substr(0, end);
    if (const std::string_view name = PackageName(record); !name.empty()) {
      records[name] = record;
    }
    index.remove_prefix(end == std::string_view::npos ? index.size() : end + 2);
  }
  return records;
}

// Counts what went wrong and shows the first few cases.
class Failures {
 public:
  void Add(std::string_view name, const std::string& what) {
    if (++count_ <= 5) {
      std::cerr << "verbena-example-packages: " << name << ": " << what << "\n";
    }
  }
  int count() const { return count_; }

 private:
  int count_ = 0;
};

// Submits one operation for each record and waits until all have ended.
template <typename Submit>
void ForEachRecord(verbena::Connection& connection, const Records& records, Failures& failures,
                   Submit submit) {
  for (const auto& [name, record] : records) {
    absl::Status status = submit(name, record);
    while (absl::IsResourceExhausted(status) && connection.status().ok()) {
      connection.Wait(std::chrono::seconds(1));
      status = submit(name, record);
    }
    if (!status.ok()) failures.Add(name, status.ToString());
    if (!connection.status().ok()) break;
  }
  connection.Drain();
}

void Load(verbena::Connection& connection, const Records& records, Failures& failures) {
  const Clock::time_point start = Clock::now();
  size_t bytes = 0;
  for (const auto& [name, record] : records) bytes += record.size();
  ForEachRecord(connection, records, failures, [&](std::string_view name, std::string_view record) {
    return connection.SubmitPut(
        name, record, [name, &failures](const absl::Status& status, const verbena::ChangeResult&) {
          if (!status.ok()) failures.Add(name, status.ToString());
        });
  });
  std::printf("loaded    %zu records, %.1f MB, in %.2f s\n", records.size(),
              static_cast<double>(bytes) / 1e6, SecondsSince(start));
}

// Returns the number of records that came back as they were.
size_t Verify(verbena::Connection& connection, const Records& records, Failures& failures) {
  const Clock::time_point start = Clock::now();
  const verbena::ConnectionStats before = connection.stats();
  size_t same = 0;
  ForEachRecord(connection, records, failures, [&](std::string_view name, std::string_view record) {
    return connection.SubmitGet(name,
                                [&same, &failures, name, record](const absl::Status& status,
                                                                 const verbena::GetResult& result) {
                                  if (!status.ok()) {
                                    failures.Add(name, status.ToString());
                                  } else if (result.value != record) {
                                    failures.Add(name, "the value differs from the source");
                                  } else {
                                    ++same;
                                  }
                                });
  });
  const verbena::ConnectionStats& after = connection.stats();
  std::printf(
      "verified  %zu of %zu records byte for byte in %.2f s: %.3f READs per GET, "
      "%llu GETs by the server's CPU\n",
      same, records.size(), SecondsSince(start),
      static_cast<double>(after.reads - before.reads) /
          static_cast<double>(records.empty() ? 1 : records.size()),
      static_cast<unsigned long long>(after.rpc_gets - before.rpc_gets));
  return same;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || std::string_view(argv[1]).starts_with("-")) {
    std::cerr << "Usage: apt-cache dumpavail | verbena-example-packages ADDR:PORT\n";
    return 2;
  }
  const std::string index{std::istreambuf_iterator<char>(std::cin), {}};
  const Records records = ParseIndex(index);
  if (records.empty()) {
    std::cerr << "verbena-example-packages: no package records on standard input\n";
    return 2;
  }
  auto connection = verbena::Connection::Connect(argv[1], verbena::Options{});
  if (!connection.ok()) {
    std::cerr << "verbena-example-packages: " << connection.status().ToString() << "\n";
    return 3;
  }
  Failures failures;
  Load(**connection, records, failures);
  const size_t same = Verify(**connection, records, failures);
  if (failures.count() > 0 || same != records.size()) {
    std::cerr << "verbena-example-packages: " << failures.count() << " failures\n";
    return 1;
  }
  return 0;
}
