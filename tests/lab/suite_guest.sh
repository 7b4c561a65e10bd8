#!/usr/bin/env bash
# Runs in a guest, started by suite_test.sh.
#   suite_guest.sh agent BIN_DIR               starts processes for the other guest, until SIGTERM
#   suite_guest.sh tests BIN_DIR SIZE FABRIC...  runs the integration tests: all of them (SIZE is
#                                              full) or a part that stands for them (subset)
# The tests know the fabric by environment variables only: tests/integration/fabric_under_test.h.
set -euo pipefail
ROLE=$1 BIN=$2
PORT=7399 # of the agent

if [ "$ROLE" = agent ]; then exec "$BIN/process_agent" "192.168.77.1:$PORT"; fi
SIZE=$3
shift 3
export VERBENA_BIN_DIR=$BIN

# choose FABRIC: sets the environment of the tests.
choose() {
  export VERBENA_TEST_FABRIC=verbs VERBENA_TEST_ADDRESS=192.168.77.1
  export VERBENA_TEST_SCALE=0.1 VERBENA_TEST_SOON_SECONDS=10
  unset VERBENA_TEST_AGENT VERBENA_TEST_LOCAL_ADDRESS
  case $1 in
    rxe) ;;
    siw) export VERBENA_TEST_ADDRESS=192.168.78.1 ;;
    lossy)
      # A lost packet of the connection manager costs it 4 s.
      export VERBENA_TEST_AGENT=192.168.77.1:$PORT VERBENA_TEST_LOCAL_ADDRESS=192.168.77.2
      export VERBENA_TEST_SCALE=0.02 VERBENA_TEST_SOON_SECONDS=40
      ;;
    *)
      printf 'suite_guest.sh: no fabric "%s": rxe, siw or lossy\n' "$1" >&2
      exit 2
      ;;
  esac
}

# What the subset leaves out or takes of each program (--gtest_filter); '' is nothing.
filter() {
  [ "$SIZE" != full ] || { printf '*' && return; }
  case $1:$2 in
    *:client_integration_test) printf '*' ;;
    *) printf '*' ;;
  esac
}

PROGRAMS=(
  client_integration_test client_faults_test consistency_test server_test cli_test
  bench_integration_test
)

run_program() {
  local fabric=$1 program=$2 status=0 start=$SECONDS
  printf '=== %s %s\n' "$fabric" "$program"
  timeout --kill-after=5 600 "$BIN/$program" --gtest_brief=0 --gtest_color=no \
    --gtest_filter="$(filter "$fabric" "$program")" </dev/null || status=$?
  [ $status -eq 0 ] || FAILED=1
  SUMMARY+=("$(printf '%-6s %-26s %3d s  status %d' "$fabric" "$program" $((SECONDS - start)) $status)")
}

FAILED=0
SUMMARY=()
for fabric in "$@"; do
  choose "$fabric"
  for program in "${PROGRAMS[@]}"; do
    [ -z "$(filter "$fabric" "$program")" ] || run_program "$fabric" "$program"
  done
done
printf '%s\n' "${SUMMARY[@]}"
exit $FAILED
