#!/bin/bash
# Counts the client's instructions per warm GET outside the verbs calls, with callgrind.
# See --help.
set -euo pipefail

usage() {
  cat <<'EOF'
Usage: bench/count_instructions.sh [--bin=DIR] [--gets=N] [--records=N] [--value_size=BYTES] [--limit=N]
                                   [--submit_limit=N] [--eviction]

Starts a verbena-server on the software device, loads records, and runs N GETs of random keys, one
at a time, with a warm index cache, under callgrind: once with SubmitGet and Poll, once with the
call that waits. Counted is what the client executes from the submission to the callback, or from
the call to its return with the value in a string, except inside ibv_post_send and ibv_poll_cq of
the software device (on real hardware those are the driver's). Prints instructions per GET; exit
status 1 if there are more than --limit (default 500) in a call that waits, or more than
--submit_limit (default 500) with SubmitGet and Poll.

  --eviction  the server evicts (--eviction=s3fifo), so the client reports some of its GETs to it;
              that is counted too
  --bin=DIR   folder with verbena-server and verbena-bench (default build/release/bin)
Needs valgrind: apt-get install valgrind
EOF
}

# shellcheck source=bench/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
gets=2000
records=20000
value_size=100
limit=500
submit_limit=500
eviction=none
for arg in "$@"; do
  case $arg in
    --help | -h) usage && exit 0 ;;
    --bin=*) bin=${arg#*=} ;;
    --gets=*) gets=${arg#*=} ;;
    --records=*) records=${arg#*=} ;;
    --value_size=*) value_size=${arg#*=} ;;
    --limit=*) limit=${arg#*=} ;;
    --eviction) eviction=s3fifo ;;
    --submit_limit=*) submit_limit=${arg#*=} ;;
    *) usage >&2 && exit 2 ;;
  esac
done
command -v valgrind >/dev/null || {
  echo "count_instructions.sh: valgrind is missing: apt-get install valgrind" >&2
  exit 2
}

start_server --listen=127.0.0.1:0 --fabric=soft --memory=256MiB --eviction="$eviction"
flags=(--server="$address" --fabric=soft --records="$records" --value_size="$value_size"
  --distribution=uniform)
"$bin/verbena-bench" load "${flags[@]}" >"$work/load.log" || { cat "$work/load.log" >&2 && exit 2; }

# count FUNCTION WHAT LIMIT: counts between entry and exit of the function that does the GETs. The device's
# own functions are taken out afterwards by their names (and not by a second toggle: they end in tail
# calls). What they call in libc stays in: that errs against the client.
missed=0
count() {
  valgrind --tool=callgrind --callgrind-out-file="$work/callgrind.out" --collect-atstart=no \
    --toggle-collect="$1" \
    "$bin/verbena-bench" warm-gets "${flags[@]}" --operations="$gets" --depth=1 \
    >"$work/gets.log" 2>"$work/valgrind.log" ||
    { cat "$work/gets.log" "$work/valgrind.log" >&2 && exit 2; }
  callgrind_annotate --threshold=100 --auto=no "$work/callgrind.out" >"$work/annotated"
  # Lines look like "12,345 (1.2%)  file:function [object]".
  awk '/^ *[0-9,]+ \(/ && !/PROGRAM TOTALS/ && !/verbena::softverbs::/ {
         count = $1; gsub(",", "", count); line = $0; sub(/^[^)]*\) +/, "", line)
         sub(/ \[[^]]*\]$/, "", line); print count, line
       }' "$work/annotated" | sort -rn >"$work/client"
  total=$(awk '{ sum += $1 } END { print sum + 0 }' "$work/client")
  if [ "$total" -eq 0 ]; then
    echo "count_instructions.sh: callgrind counted nothing" >&2
    exit 2
  fi
  cat "$work/gets.log"
  echo "where they are spent, instructions per GET ($2):"
  awk -v gets="$gets" 'NR <= 15 { printf "  %7.1f  ", $1 / gets; $1 = ""; print substr($0, 2, 90) }' \
    "$work/client"
  per_get=$((total / gets))
  echo "client instructions per warm GET of $value_size bytes, outside the verbs calls, $2: $per_get (limit $3)"
  [ "$per_get" -le "$3" ] || missed=1
}
count VerbenaBenchMeasuredSubmits "SubmitGet and Poll" "$submit_limit"
count VerbenaBenchMeasuredGets "Get" "$limit"
exit "$missed"
