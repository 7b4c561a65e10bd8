#!/usr/bin/env bash
# Measures PUTs in the storage beside what no store can do without, and more. See --help.
set -euo pipefail

usage() {
  cat <<'USAGE'
Usage: bench/storage_ratios.sh [--bin=DIR] [--records=N] [--rounds=N]

Measures the storage in one process, without a network, and prints with their limits:

  a PUT over one cache miss, XXH3 over the item and a copy of it   at most 2.5
  the rate of PUTs of two threads over one's                       at least 1.7 (two processors)
  p99.9 of PUTs while segments of the index are split              at most 1 ms (two processors)

Each is the median of rounds in which both sides were measured in turns (of at most five fresh
stores, for the last). Exit status 1 if a limit is missed.

  --records=N   of 100 bytes; the items should be beyond the processor's caches (default 1000000)
  --rounds=N    default 15
  --bin=DIR     folder of verbena-bench (default build/release/bin)
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

"$bin/verbena-bench" storage-ratios --records="$records" --value_size=100 --rounds="$rounds"
