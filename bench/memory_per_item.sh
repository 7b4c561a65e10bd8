#!/bin/bash
# Measures how many bytes of the region an item takes, index included. See --help.
set -euo pipefail

usage() {
  cat <<'EOF'
Usage: bench/memory_per_item.sh [--bin=DIR] [--records=N] [--key_size=BYTES] [--value_size=BYTES] [--limit=N]

Starts a verbena-server on the software device, loads records (default 1,000,000 of 16 + 100 bytes)
and prints the server's memory.used_bytes divided by its items. Exit status 1 if that is more than
--limit (default 174, which is 1.5 times 116).

  --bin=DIR   folder with verbena-server and verbena-bench (default build/release/bin)
EOF
}

# shellcheck source=bench/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
records=1000000
key_size=16
value_size=100
limit=174
for arg in "$@"; do
  case $arg in
    --help | -h) usage && exit 0 ;;
    --bin=*) bin=${arg#*=} ;;
    --records=*) records=${arg#*=} ;;
    --key_size=*) key_size=${arg#*=} ;;
    --value_size=*) value_size=${arg#*=} ;;
    --limit=*) limit=${arg#*=} ;;
    *) usage >&2 && exit 2 ;;
  esac
done

mebibytes=$((records * (key_size + value_size + value_size / 2 + 200) / 1048576 + 64))
start_server --listen=127.0.0.1:0 --fabric=soft --memory="${mebibytes}MiB"
"$bin/verbena-bench" load --server="$address" --fabric=soft --records="$records" \
  --key_size="$key_size" --value_size="$value_size" --json="$work/load.json" >"$work/load.log" ||
  { cat "$work/load.log" >&2 && exit 2; }
# verbena-bench writes one member a line.
per_item=$(sed -n 's/^ *"bytes_per_item": *\([0-9.]*\).*/\1/p' "$work/load.json")
[ -n "$per_item" ] || { cat "$work/load.log" >&2 && exit 2; }
echo "bytes of region per item of $key_size + $value_size bytes, index included: $per_item ($records items, limit $limit)"
awk -v have="$per_item" -v limit="$limit" 'BEGIN { exit !(have <= limit) }'
