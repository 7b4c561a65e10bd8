// Standard input, output and error of a program that was started without some of them.
#pragma once

namespace verbena {

// A standard descriptor that the caller has closed would be given to the next file, event counter
// or socket that is opened, and a line meant for people would be written into that. So its place is
// taken by one that refuses: reads and writes then fail, and are told. To be called first in
// main().
void HoldStandardDescriptors();

}  // namespace verbena
