# shellcheck shell=bash
# Sourced by what runs in a guest.

# keep_files BIN_DIR PROGRAM...: moves these programs and their libraries from the host's files to
# the guest's memory, as far as opening goes. A file of the host costs some five messages to open,
# every time, and each start of a program opens fifty: half of the time that a start takes.
keep_files() {
  local bin=$1 files
  shift
  # A change of a file's time copies it, or the link itself.
  mapfile -t files < <(cd "$bin" && ldd "${@/#/./}" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | sort -u)
  touch -c "${files[@]}" "${@/#/$bin/}" /etc/ld.so.cache
  touch -ch "${files[@]}"
}
