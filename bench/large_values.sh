#!/usr/bin/env bash
# Measures small PUTs beside a client that puts and gets very large values. See --help.
set -euo pipefail

usage() {
  cat <<'USAGE'
Usage: bench/large_values.sh [--bin=DIR] [--value=SIZE] [--memory=SIZE] [--seconds=N] [--rounds=N]

Starts a verbena-server (software device, one worker) with --max_value_size=SIZE and prints
the latency of 100-byte PUTs, one at a time: alone, and beside a client that puts and gets one value
of SIZE in a loop. The server serves others between the pieces of a large value (256 KiB), so they
wait for pieces and not for values. Every value that is read is verified, the large ones too.

  --value=SIZE    default 1GiB
  --memory=SIZE   of the region, room for three such values (default 4GiB)
  --seconds=N     of each measurement (default 10)
  --rounds=N      default 3
  --bin=DIR       folder with verbena-server and verbena-bench (default build/release/bin)

Needs perl. Exit status 1 if a value was wrong.
USAGE
}

# shellcheck source=bench/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
value=1GiB
memory=4GiB
seconds=10
rounds=3
for option in "$@"; do
  case $option in
    --help | -h) usage && exit 0 ;;
    --bin=*) bin=${option#*=} ;;
    --value=*) value=${option#*=} ;;
    --memory=*) memory=${option#*=} ;;
    --seconds=*) seconds=${option#*=} ;;
    --rounds=*) rounds=${option#*=} ;;
    *) usage >&2 && exit 2 ;;
  esac
done

start_server --listen=127.0.0.1:0 --fabric=soft --memory="$memory" --max_value_size="$value"

# The large value has a name of another length than the small ones.
large=(--server="$address" --fabric=soft --records=1 --key_size=40 --value_size="$value" --depth=1
  --timeout_seconds=600)
small=(--server="$address" --fabric=soft --records=10000 --value_size=100 --depth=1)
for records in small large; do
  declare -n flags=$records
  "$bin/verbena-bench" load "${flags[@]}" >"$work/load.log" 2>&1 || { cat "$work/load.log" >&2 && exit 2; }
done

# report FILE WHAT: the latencies of the updates.
report() {
  perl -MJSON::PP -e '
    my $r = decode_json(do { local $/; <STDIN> });
    my $us = $r->{ops}{update}{latency_us} or die "no updates\n";
    printf "%-28s %s us\n", $ARGV[0], join ", ", map { "$_ $us->{$_}" } qw(p50 p99 p99.9 max);
  ' "$2" <"$1"
}

for round in $(seq "$rounds"); do
  "$bin/verbena-bench" run "${small[@]}" --workload=a --seconds="$seconds" \
    --json="$work/alone.json" >"$work/alone.log"
  "$bin/verbena-bench" run "${large[@]}" --workload=a --seconds=100000 >"$work/large.log" 2>&1 &
  writer=$!
  pids+=("$writer")
  "$bin/verbena-bench" run "${small[@]}" --workload=a --seconds="$seconds" \
    --json="$work/beside.json" >"$work/beside.log"
  kill -INT "$writer"
  status=0
  wait "$writer" || status=$?
  [ "$status" = 130 ] || { cat "$work/large.log" >&2 && exit 1; }
  echo "round $round"
  report "$work/alone.json" "small PUTs alone"
  report "$work/beside.json" "small PUTs beside $value"
  grep -E 'operations|errors|MB/s|GB/s' "$work/large.log" | sed 's/^/  large: /' || true
done
