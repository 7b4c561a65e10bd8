/// \file
/// Says what is wrong where the C++ headers are compiled as an older C++, before all that follows
/// from it. Included ahead of everything else.
#pragma once

#if !defined(__cplusplus)
#error "Verbena's C++ headers are included in C: include verbena/verbena.h, which is for C"
#elif __cplusplus <= 201703L
#error "Verbena's C++ headers need C++20: use -std=c++20 or later, or verbena/verbena.h"
#endif
