#!/usr/bin/env bash
# Measures GETs and PUTs against what an RDMA fabric does alone. See --help.
set -euo pipefail

usage() {
  cat <<'USAGE'
Usage: bench/fabric_baseline.sh --address=ADDR [--fabric=verbs] [--bin=DIR] [--poll_us=0]
                                [--records=N] [--rounds=N] [--json=FILE]

Starts a verbena-server on ADDR (this host), loads records of 100 bytes, and runs verbena-bench's
baseline: GETs beside plain READs on the same queue pair, PUTs beside a SEND ping-pong, in
alternating rounds. For scale it then prints what perftest's ib_read_lat says, if that is installed
(it polls, and takes its own connection, so its figures are not comparable with the others).

  --address=ADDR  an address of an RDMA device
  --poll_us=N     microseconds that server and client poll before they sleep (default 0: events
                  only, for machines on which both share a processor)
  --records=N     default 2000
  --rounds=N      default 20
  --bin=DIR       folder of verbena-server and verbena-bench (default build/release/bin)

In the tests' virtual machine, on Soft-RoCE and on iWARP:
  tests/lab/lab.sh run --timeout=400 bench/fabric_baseline.sh --address=192.168.77.1
  tests/lab/lab.sh run --timeout=400 bench/fabric_baseline.sh --address=192.168.78.1
USAGE
}

# shellcheck source=bench/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
host='' fabric=verbs poll_us=0 records=2000 rounds=20 json=()
for option in "$@"; do
  value=${option#*=}
  case $option in
    --help | -h) usage && exit 0 ;;
    --address=*) host=$value ;;
    --fabric=*) fabric=$value ;;
    --bin=*) bin=$value ;;
    --poll_us=*) poll_us=$value ;;
    --records=*) records=$value ;;
    --rounds=*) rounds=$value ;;
    --json=*) json=(--json="$value") ;;
    *) usage >&2 && exit 2 ;;
  esac
done
[ -n "$host" ] || { usage >&2 && exit 2; }

start_server --listen="$host:0" --fabric="$fabric" --memory=256MiB --poll_us="$poll_us"
common=(--server="$address" --fabric="$fabric" --records="$records" --key_size=16
  --value_size=100 --depth=16 --poll_us="$poll_us")
"$bin/verbena-bench" load "${common[@]}" >"$work/load" || { cat "$work/load" && exit 1; }
"$bin/verbena-bench" run "${common[@]}" --workload=a --distribution=uniform --seconds=0.5 \
  --baseline --rounds="$rounds" "${json[@]}"

if [ "$fabric" = verbs ] && command -v ib_read_lat >/dev/null; then
  device=$("$bin/verbena-cli" --server="$address" --json info |
    sed -n 's/.*"device": *"\([^"]*\)".*/\1/p' | head -n 1)
  printf '\nperftest, ib_read_lat of 128 bytes over rdma_cm on %s:\n' "$device"
  ib_read_lat -R -d "$device" -s 128 -n 1000 >/dev/null 2>&1 &
  pids+=($!)
  # It has no way to say that it listens.
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    sleep 0.5
    ib_read_lat -R -d "$device" -s 128 -n 1000 "$host" >"$work/perftest" 2>&1 && break
  done
  grep -A 1 't_typical' "$work/perftest" || printf 'no result\n'
fi
