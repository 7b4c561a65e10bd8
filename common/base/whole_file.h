// Small files that others wait for: they see all of one or nothing.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace verbena {

// Writes `text` to `path`: beside it first, then renamed, so that a file is never seen in part.
// What is there and is no file (a device, a pipe) stays what it is and is written to, and so is
// what this process has open, by the name of its descriptor (/dev/stdout, /dev/fd/3); a link stays
// one. InvalidArgument with path and reason: it cannot be written, it is a folder, or a pipe that
// nobody reads. It does not wait for a reader.
absl::Status WriteWholeFile(const std::string& path, std::string_view text);

// Whether WriteWholeFile could write to `path`, found out before there is anything to write. What
// is there is not changed. Errors as WriteWholeFile, but that it does not look whether a pipe is
// read.
absl::Status CheckWholeFile(const std::string& path);

}  // namespace verbena
