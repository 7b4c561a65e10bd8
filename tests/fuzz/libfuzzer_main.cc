// A libFuzzer program for the target named by VERBENA_FUZZ_TARGET.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/reader_targets.h"
#include "tests/fuzz/soft_targets.h"
#include "tests/fuzz/wire_targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  verbena::fuzz::VERBENA_FUZZ_TARGET({data, size});
  return 0;
}
