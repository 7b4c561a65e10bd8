#!/usr/bin/env bash
# Measures GETs and PUTs against what RDMA fabrics do alone. See --help.
set -euo pipefail

usage() {
  cat <<'USAGE'
Usage: bench/fabric_baseline.sh --address=ADDR [--address=ADDR ...] [--fabric=verbs] [--bin=DIR]
                                [--poll_us=0] [--records=N] [--rounds=N]

For each address: starts a verbena-server there (it is one of this host), loads records of 100
bytes, and prints ratios with their limits, each the median of rounds in which both sides were
measured alternately: GETs beside plain READs on the same queue pair, PUTs beside a SEND ping-pong
between two processes. For scale it then prints what perftest's ib_read_lat says, if that is
installed (it polls, and takes its own connection, so its figures are not comparable with the
others). Exit status 1 if a limit is missed on one of them.

  --address=ADDR  an address of an RDMA device; may be given several times
  --poll_us=N     microseconds that server, client and both ends of the ping-pong poll before they
                  sleep (default 0: events only, for machines on which all share a processor)
  --records=N     default 2000
  --rounds=N      default 21
  --bin=DIR       folder of verbena-server and verbena-bench (default build/release/bin)

In the tests' virtual machine, on Soft-RoCE and on iWARP in one boot, on an otherwise idle host:
  tests/lab/lab.sh run --timeout=500 bench/fabric_baseline.sh --address=192.168.77.1 \
    --address=192.168.78.1
USAGE
}

# shellcheck source=bench/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
hosts=() fabric=verbs poll_us=0 records=2000 rounds=21
for option in "$@"; do
  value=${option#*=}
  case $option in
    --help | -h) usage && exit 0 ;;
    --address=*) hosts+=("$value") ;;
    --fabric=*) fabric=$value ;;
    --bin=*) bin=$value ;;
    --poll_us=*) poll_us=$value ;;
    --records=*) records=$value ;;
    --rounds=*) rounds=$value ;;
    *) usage >&2 && exit 2 ;;
  esac
done
[ ${#hosts[@]} -gt 0 ] || { usage >&2 && exit 2; }

# for_scale HOST: perftest on the device of the server that runs.
for_scale() {
  local device
  device=$("$bin/verbena-cli" --server="$address" --fabric=verbs --json info |
    sed -n 's/.*"device": *"\([^"]*\)".*/\1/p' | head -n 1)
  printf '\nperftest, ib_read_lat of 128 bytes over rdma_cm on %s:\n' "$device"
  ib_read_lat -R -d "$device" -s 128 -n 1000 >/dev/null 2>&1 &
  pids+=($!)
  # It has no way to say that it listens.
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    sleep 0.5
    ib_read_lat -R -d "$device" -s 128 -n 1000 "$1" >"$work/perftest" 2>&1 && break
  done
  grep -A 1 't_typical' "$work/perftest" || printf 'no result\n'
}

missed=0
for host in "${hosts[@]}"; do
  rm -f "$work/address"
  start_server --listen="$host:0" --fabric="$fabric" --memory=64MiB --poll_us="$poll_us"
  flags=(--server="$address" --fabric="$fabric" --records="$records" --key_size=16
    --value_size=100 --depth=16 --poll_us="$poll_us")
  "$bin/verbena-bench" load "${flags[@]}" >"$work/load" || { cat "$work/load" >&2 && exit 2; }
  status=0
  "$bin/verbena-bench" fabric-ratios "${flags[@]}" --distribution=uniform --rounds="$rounds" ||
    status=$?
  case $status in
    0) ;;
    1) missed=1 ;;
    *) exit 2 ;;
  esac
  if [ "$fabric" = verbs ] && command -v ib_read_lat >/dev/null; then for_scale "$host"; fi
  kill -TERM "$server"
  wait "$server"
  printf '\n'
done
exit $missed
