/// \file
/// Which symbols libverbena.so offers. The library is compiled with hidden visibility: what stands
/// in a public header and is not inline carries VERBENA_EXPORT. For C and C++.
#pragma once

/// A class or function that is offered.
#define VERBENA_EXPORT __attribute__((visibility("default")))
/// A class inside of an exported one that is not offered.
#define VERBENA_LOCAL __attribute__((visibility("hidden")))
