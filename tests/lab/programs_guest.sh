#!/usr/bin/env bash
# Runs in a guest, started by programs_test.sh: Verbena's programs on the RDMA device that has
# ADDRESS.
#   programs_guest.sh server BIN_DIR ADDRESS   a server, until SIGTERM
#   programs_guest.sh client BIN_DIR ADDRESS   works with that server
#   programs_guest.sh both BIN_DIR ADDRESS     both, and the server's end
set -euo pipefail
ROLE=$1 BIN=$2 SERVER=$3:7400
WORK=$(mktemp -d)
# shellcheck source=tests/lab/keep_files.sh
source "$(dirname "${BASH_SOURCE[0]}")/keep_files.sh"
keep_files "$BIN" verbena-server verbena-cli verbena-bench

fail() {
  printf 'FAIL  %s\n' "$*"
  exit 1
}
# A lost packet of the connection manager costs it 4 s.
cli() { "$BIN/verbena-cli" --fabric=verbs --server="$SERVER" --timeout=30s "$@"; }

# same FILE FILE WHAT
same() {
  cmp "$1" "$2" || fail "$3"
  printf 'ok    %s\n' "$3"
}

# round_trip BYTES: a value of that size, put and got back.
round_trip() {
  head -c "$1" /dev/urandom >"$WORK/put"
  cli put "size-$1" <"$WORK/put" || fail "put of $1 bytes"
  cli get "size-$1" >"$WORK/got" || fail "get of $1 bytes"
  same "$WORK/put" "$WORK/got" "a value of $1 bytes"
}

work_as_client() {
  local bytes status=0
  cli ping
  for bytes in 1 100 4096 8192 20000 300000; do round_trip "$bytes"; done
  cli put size-100 other
  [ "$(cli get size-100)" = other ] || fail 'the value that replaced another'
  cli del size-100
  cli get size-100 >"$WORK/none" 2>&1 || status=$?
  [ $status -eq 1 ] || fail "get of a deleted key: status $status"
  printf 'ok    replaced and deleted\n'
  cli --json info >"$WORK/info"
  grep -q '"items"' "$WORK/info" || fail 'info --json has no items'

  "$BIN/verbena-bench" load --fabric=verbs --server="$SERVER" --records=1000 --value_size=100 \
    --depth=4 || fail 'bench load'
  "$BIN/verbena-bench" run --fabric=verbs --server="$SERVER" --records=1000 --value_size=100 \
    --workload=a --depth=4 --seconds=5 --json="$WORK/run.json" || fail 'bench run'
  grep -Eq '"wrong": *0(,|}|$)' "$WORK/run.json" || fail 'wrong values'
  ! grep -Eq '"errors": *[1-9]' "$WORK/run.json" || fail 'errors'
  printf 'ok    load and run\n'
}

serve() {
  exec "$BIN/verbena-server" --listen="$SERVER" --fabric=verbs --memory=64MiB --workers=1 \
    --port_file="$WORK/port"
}

case $ROLE in
  server) serve ;;
  client) work_as_client ;;
  both)
    serve &
    server=$!
    until [ -s "$WORK/port" ]; do
      kill -0 $server 2>/dev/null || fail 'the server does not start'
      sleep 0.1
    done
    work_as_client
    kill -TERM $server
    wait $server || fail "the server ended with status $?"
    printf 'ok    the server ended\n'
    ;;
esac
