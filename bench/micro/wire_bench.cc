// Requests, encoded and decoded.
#include <benchmark/benchmark.h>

#include <string>

#include "bench/micro/micro_bench.h"
#include "common/wire/messages.h"

namespace verbena::bench {
namespace {

void BM_EncodePut(benchmark::State& state) {
  alignas(8) uint8_t buffer[1024];
  const std::string key(23, 'k');
  const std::string value(kValueSize, 'v');
  for (auto _ : state) {
    wire::RequestWriter writer(buffer);
    wire::OperationHeader header{};
    header.sequence = 1;
    header.code = static_cast<uint8_t>(wire::OpCode::kPut);
    writer.Add(header, key, value);
    writer.Finish(0, 0);
    benchmark::DoNotOptimize(buffer);
  }
}
BENCHMARK(BM_EncodePut);

void BM_DecodePut(benchmark::State& state) {
  alignas(8) uint8_t buffer[1024];
  wire::RequestWriter writer(buffer);
  wire::OperationHeader header{};
  header.sequence = 1;
  header.code = static_cast<uint8_t>(wire::OpCode::kPut);
  writer.Add(header, std::string(23, 'k'), std::string(kValueSize, 'v'));
  writer.Finish(0, 0);
  for (auto _ : state) {
    auto reader = wire::RequestReader::Open({buffer, writer.size()});
    auto operation = reader->Next();
    if (!operation.ok()) state.SkipWithError("not decoded");
    benchmark::DoNotOptimize(operation);
  }
}
BENCHMARK(BM_DecodePut);

}  // namespace
}  // namespace verbena::bench
