/// \file
/// Versions, for C and C++. docs/client.md has the rule for how they change.
#pragma once

// Of the library and its API. The build takes the project's version from these lines.

/// Another one may take away or change.
#define VERBENA_VERSION_MAJOR 0
/// Another one adds.
#define VERBENA_VERSION_MINOR 2
/// Another one only mends.
#define VERBENA_VERSION_PATCH 0

/// To compare with: `#if VERBENA_VERSION_NUMBER >= VERBENA_MAKE_VERSION(0, 2, 0)`
#define VERBENA_MAKE_VERSION(major, minor, patch) ((major)*1000000 + (minor)*1000 + (patch))
/// Of this version.
#define VERBENA_VERSION_NUMBER \
  VERBENA_MAKE_VERSION(VERBENA_VERSION_MAJOR, VERBENA_VERSION_MINOR, VERBENA_VERSION_PATCH)

/// Of the bytes between client and server. Both sides must have the same: Connect says so if not.
#define VERBENA_PROTOCOL_VERSION 4
