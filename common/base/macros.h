// Early return on errors carried by absl::Status and absl::StatusOr.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define VERBENA_CONCAT_INNER(a, b) a##b
#define VERBENA_CONCAT(a, b) VERBENA_CONCAT_INNER(a, b)

// Evaluates `expr` (an absl::Status); returns it from the enclosing function if it is an error.
#define VERBENA_RETURN_IF_ERROR(expr)                                                      \
  do {                                                                                     \
    if (absl::Status verbena_status = (expr); !verbena_status.ok()) return verbena_status; \
  } while (false)

// VERBENA_ASSIGN_OR_RETURN(auto x, Make()): declares or assigns the left side from a StatusOr, or
// returns its error.
#define VERBENA_ASSIGN_OR_RETURN(lhs, expr) \
  VERBENA_ASSIGN_OR_RETURN_IMPL(VERBENA_CONCAT(verbena_or_, __LINE__), lhs, expr)
#define VERBENA_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                                  \
  if (!tmp.ok()) return std::move(tmp).status();      \
  lhs = std::move(tmp).value()
