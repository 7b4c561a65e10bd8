#!/usr/bin/env bash
# Measures the client library beside what it is made of. See --help.
set -euo pipefail

usage() {
  cat <<'USAGE'
Usage: bench/client_ratios.sh [--bin=DIR] [--records=N] [--rounds=N]

Starts a verbena-server on the software device, loads records of 100 bytes, and prints ratios with
their limits, each the median of rounds in which both sides were measured alternately: GETs of 1 MiB
and plain READs; PUTs, a SEND ping-pong and the storage alone; PUTs and GETs together and one by
one; two threads and one. Exit status 1 if a limit is missed.

  --records=N   default 20000
  --rounds=N    default 15
  --bin=DIR     folder of verbena-server and verbena-bench (default build/release/bin)
USAGE
}

# shellcheck source=bench/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
records=1000000 rounds=15
for option in "$@"; do
  value=${option#*=}
  case $option in
    --help | -h) usage && exit 0 ;;
    --bin=*) bin=$value ;;
    --records=*) records=$value ;;
    --rounds=*) rounds=$value ;;
    *) usage >&2 && exit 2 ;;
  esac
done

start_server --listen=127.0.0.1:0 --fabric=soft --memory=512MiB
flags=(--server="$address" --fabric=soft --records="$records" --value_size=100)
"$bin/verbena-bench" load "${flags[@]}" >"$work/load.log" || { cat "$work/load.log" >&2 && exit 2; }
"$bin/verbena-bench" client-ratios "${flags[@]}" --distribution=uniform --depth=64 \
  --rounds="$rounds"
