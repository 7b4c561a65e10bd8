#!/usr/bin/env bash
# compare_guest.sh BIN_DIR ADDRESS [FLAG...]: runs in a guest: verbena-bench compare on the RDMA device
# that has ADDRESS, beside memcached and Redis over TCP at the same address and over Unix sockets, and
# beside the fabric's own READs and SENDs and a bare ping-pong over TCP. Further flags go to verbena-bench compare. For example:
#   tests/lab/lab.sh run --timeout=900 tests/lab/compare_guest.sh build/release/bin 192.168.77.1
# All ends share the guest's one emulated processor, so nobody polls.
set -euo pipefail
BIN=$1 ADDRESS=$2
shift 2
WORK=$(mktemp -d)
# shellcheck source=tests/lab/keep_files.sh
source "$(dirname "${BASH_SOURCE[0]}")/keep_files.sh"
keep_files "$BIN" verbena-server verbena-bench
for program in memcached redis-server; do
  if command -v $program >/dev/null; then keep_files "$(dirname "$(command -v $program)")" $program; fi
done

"$BIN/verbena-server" --listen="$ADDRESS:0" --fabric=verbs --memory=64MiB --workers=1 --poll_us=0 \
  --port_file="$WORK/address" &
server=$!
until [ -s "$WORK/address" ]; do
  kill -0 $server
  sleep 0.1
done
status=0
"$BIN/verbena-bench" compare --server="$(<"$WORK/address")" --fabric=verbs --records=1000 \
  --value_size=100 --workload=c --distribution=uniform --preload --depth=4 --poll_us=0 --rounds=5 \
  --systems=verbena,verbena-send,memcached-tcp,memcached-unix,redis-tcp,redis-unix,raw-read,raw-send,tcp-pingpong \
  --seconds=1 --timeout_seconds=30 "$@" || status=$?
kill -TERM $server
wait $server
exit $status
