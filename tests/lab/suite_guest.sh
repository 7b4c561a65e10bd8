#!/usr/bin/env bash
# Runs in a guest, started by suite_test.sh.
#   suite_guest.sh agent BIN_DIR               starts processes for the other guest, until SIGTERM,
#                                              beside the servers of tos_guest.sh
#   suite_guest.sh tests BIN_DIR SIZE FABRIC...  runs the integration tests: all of them (SIZE is
#                                              full) or a part that stands for them (subset)
# The tests know the fabric by environment variables only: tests/integration/fabric_under_test.h.
set -euo pipefail
ROLE=$1 BIN=$2
PORT=7399 # of the agent

HERE=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=tests/lab/keep_files.sh
source "$HERE/keep_files.sh"
keep_files "$BIN" verbena-server verbena-cli
if [ "$ROLE" = agent ]; then
  "$HERE/tos_guest.sh" serve "$BIN" &
  exec "$BIN/process_agent" "192.168.77.1:$PORT"
fi
SIZE=$3
shift 3
# (Of client_recovery_test: a connection takes half a second here.)
export VERBENA_BIN_DIR=$BIN VERBENA_KILLS=20

# choose FABRIC: sets the environment of the tests.
choose() {
  export VERBENA_TEST_FABRIC=verbs VERBENA_TEST_ADDRESS=192.168.77.1
  export VERBENA_TEST_SCALE=0.1 VERBENA_TEST_SOON_SECONDS=10
  unset VERBENA_TEST_AGENT VERBENA_TEST_LOCAL_ADDRESS
  case $1 in
    rxe) ;;
    siw)
      # The driver gives an attempt to connect up after 10 s, and not before.
      export VERBENA_TEST_ADDRESS=192.168.78.1 VERBENA_TEST_SOON_SECONDS=20
      # Everything that waits for an interrupt takes longer there than on rxe.
      [ "$SIZE" = full ] || VERBENA_TEST_SCALE=0.04
      ;;
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

# Tests of client_integration_test that are about the client's use of its own parts, or about the
# server's index, clock and memory, which no fabric has to do with.
ABOVE_THE_FABRIC='ClientMisuse*:ClientCoroutines*:ClientThreads*:ClientCache*'
ABOVE_THE_FABRIC+=':*.WhatIsWrongInABatch:*.NoneAtAll:*.EachKeyHas*:*.InACallbackThey*'
ABOVE_THE_FABRIC+=':*.WithoutAnOrderedIndex*:*.RangesAndPrefixes:*.KeysGoWhen*'
ABOVE_THE_FABRIC+=':*.ExpireAndPersist:*.TimesOutOfRange*:Eviction.NoneRefuses*'

# filter FABRIC PROGRAM: which of its tests the subset takes (--gtest_filter); '' is none. What needs
# much memory or many bytes is slow where packets are lost, and each program's start costs an
# emulated processor up to a second.
filter() {
  if [ "$SIZE" = full ]; then
    case $1:$2 in
      # They are users' programs, with the time limits that users have.
      lossy:c_api_test | lossy:examples_test) ;;
      # The other tests reach no server.
      *:examples_test) printf '*DoesWhatItSays*' ;;
      # The guest has not the memory for the largest value there is.
      *) printf -- '-*.TheLargestThereIs' ;;
    esac
    return
  fi
  case $1:$2 in
    lossy:client_integration_test)
      printf -- '-*OfAllSizes:*OfEverySize:*.WithoutOneSidedReads:*.ManyKeys*:Eviction.*'
      printf -- ':*.Append:*.GivesKeysAndValuesInOrder'
      printf -- ':ClientAsync*:ClientBuffers*:ClientBatches*:%s' "$ABOVE_THE_FABRIC"
      ;;
    lossy:client_faults_test) printf '*UnderReadsOnly:*UnderAWait:*Frozen*:*InOrder' ;;
    lossy:server_test) printf 'Misuse.GrantGrows*:Misuse.CreditsOf*:Signals/*/0' ;;
    lossy:cli_test | lossy:bench_integration_test | lossy:connect_attempts_test) ;;
    lossy:read_staging_test | lossy:server_queues_test | lossy:large_values_test) ;;
    *:large_values_test) printf '*.AKeptItem*' ;;
    *:server_queues_test) printf '*.ADevice*:*.Workers*:*.ConnectionsTake*' ;;
    *:client_integration_test)
      # What takes longest and differs least between the two: on rxe.
      printf -- '-'
      [ "$1" = rxe ] || printf 'Eviction.*:*.Append:*.GivesKeysAndValuesInOrder:'
      printf -- '*.AsynchronousT*:ClientAsync*Timeouts:*.ReturnsToTheLoop*:*.DeadlinesWake*:%s' \
        "$ABOVE_THE_FABRIC"
      ;;
    *:applied_once_test | *:consistency_test) printf '*' ;;
    *:connect_attempts_test) printf '*' ;;
    *:read_staging_test) printf -- '-*.TheSoftwareDevice*' ;;
    *:client_faults_test) printf -- '-*OutOfMemory*:*ConnectingToAFrozen*' ;;
    *:server_test)
      printf -- 'Misuse.*:Signals/*:ServerInfo.*:ServerStart.Banner*:ServerStart.PortInUse'
      printf -- ':-*.OperationsThatCannotBeDone:*.OtherProtocol*:*.Garbage*'
      ;;
    *:cli_test) printf 'CliTest.PutGetDelete:CliTest.ValuesArePassed*:CliTest.Info:CliTest.Ping' ;;
    *:bench_integration_test) printf '*.LoadReports:*.RunReports*' ;;
  esac
}

# dropped: the packets that netem has dropped in this guest.
dropped() { tc -s qdisc show | sed -n '/netem/,$s/.*dropped \([0-9]*\).*/\1/p' | sed -n 1p; }

# Not here, since they bring a device of their own, behind a table that lowers its limits or fails its
# calls: device_limits_test, failing_verbs_test. Nor readme_test, whose lines are those of the example
# "hello"; nor process_test, which is about the tests' own helpers.
# And not warm_get_test: with these drivers a READ is a system call, and librdmacm takes memory
# whenever it is asked for an event.
PROGRAMS=(
  client_integration_test client_faults_test connect_attempts_test applied_once_test
  consistency_test server_test server_queues_test read_staging_test large_values_test cli_test
  bench_integration_test client_recovery_test c_api_test examples_test
)

# over_ipv6 FABRIC: the deadlines once more, at the device's other address.
over_ipv6() {
  local filter='-*OutOfMemory*'
  case $1 in
    rxe) export VERBENA_TEST_ADDRESS=fd77::1 ;;
    siw) export VERBENA_TEST_ADDRESS=fd78::1 ;;
    *) return 0 ;;
  esac
  if [ "$SIZE" = subset ]; then
    [ "$1" = rxe ] || return 0
    filter='*FrozenServerMisses*'
  fi
  run "$1" 'client_faults_test, IPv6' "$BIN/client_faults_test" --gtest_color=no \
    --gtest_filter="$filter"
}

# run FABRIC NAME COMMAND...
run() {
  local fabric=$1 name=$2 status=0 start=$SECONDS
  shift 2
  printf '=== %s %s\n' "$fabric" "$name"
  timeout --kill-after=5 1200 "$@" </dev/null || status=$?
  [ $status -eq 0 ] || FAILED=1
  SUMMARY+=("$(printf '%-6s %-26s %3d s  status %d' "$fabric" "$name" $((SECONDS - start)) $status)")
}
run_program() {
  run "$1" "$2" "$BIN/$2" --gtest_color=no --gtest_filter="$(filter "$1" "$2")"
}

# The servers of tos_guest.sh may listen before the agent does.
if [ "$*" = lossy ]; then
  end=$((SECONDS + 30))
  until (exec 3<>"/dev/tcp/192.168.77.1/$PORT") 2>/dev/null; do
    [ $SECONDS -lt $end ] || { printf 'suite_guest.sh: no agent\n' >&2 && exit 1; }
    sleep 0.1
  done
fi

FAILED=0
SUMMARY=()
for fabric in "$@"; do
  choose "$fabric"
  for program in "${PROGRAMS[@]}"; do
    [ -z "$(filter "$fabric" "$program")" ] || run_program "$fabric" "$program"
  done
  over_ipv6 "$fabric"
done
if [ "$*" = lossy ]; then
  run lossy tos_guest.sh "$HERE/tos_guest.sh" look "$BIN"
  run lossy mtu_guest.sh "$HERE/mtu_guest.sh" "$BIN"
  lost=$(dropped)
  SUMMARY+=("lossy  packets dropped on the way to the server: ${lost:-0}")
  [ "${lost:-0}" -gt 0 ] || FAILED=1
fi
printf '%s\n' "${SUMMARY[@]}"
exit $FAILED
