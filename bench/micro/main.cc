// Microbenchmarks of the pieces that a GET or a PUT is made of, and of the generator itself.
// Run: verbena-micro-bench [--benchmark_filter=REGEX]
#include <benchmark/benchmark.h>

BENCHMARK_MAIN();
