// Ctrl-C: the first one asks the run to end and report, the second one ends the program.
#pragma once

namespace verbena::bench {

// For SIGINT and SIGTERM. Call once, before threads are started.
void CatchInterrupts();
bool Interrupted();

}  // namespace verbena::bench
