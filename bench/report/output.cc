#include "bench/report/output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "bench/commands.h"

namespace verbena::bench {

int Print(const std::string& text, int exit_status) {
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return exit_status;
  std::fprintf(stderr, "verbena-bench: cannot write to standard output: %s\n",
               std::strerror(errno));
  return exit_status == kExitOk ? kExitOutput : exit_status;
}

}  // namespace verbena::bench
