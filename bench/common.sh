# What the scripts beside it share; to be sourced. Sets `bin`, and `work`, a folder that goes with the
# script, as do the processes whose numbers are in `pids`.
# shellcheck shell=bash
bin=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/build/release/bin
work=$(mktemp -d)
pids=()

# shellcheck disable=SC2317 # called by trap
cleanup() {
  local pid
  for pid in "${pids[@]}"; do
    kill -TERM "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  rm -rf "$work"
}
trap cleanup EXIT

# wait_for PID COMMAND...: until the command succeeds, while the process lives; a minute at most.
wait_for() {
  local pid=$1
  shift
  for _ in $(seq 600); do
    "$@" && return
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  printf '%s: a server did not get ready\n' "${0##*/}" >&2
  cat "$work"/*.log >&2
  exit 2
}

# start_server FLAG...: a verbena-server with one worker; sets `server`, its number, and `address`.
start_server() {
  "$bin/verbena-server" --workers=1 --port_file="$work/address" "$@" >"$work/server.log" 2>&1 &
  server=$!
  pids+=("$server")
  wait_for "$server" test -s "$work/address"
  # shellcheck disable=SC2034 # for the script
  address=$(<"$work/address")
}
