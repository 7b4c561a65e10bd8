#!/usr/bin/env bash
# The microbenchmarks of two builds, in turns, so that what else the machine does meets both alike.
set -euo pipefail

usage() {
  cat <<'EOF'
compare_builds.sh BUILD_A BUILD_B [--rounds=5] [--filter=REGEX] [--min_time=0.2]

BUILD_A and BUILD_B are build folders (with bin/verbena-micro-bench) or such programs themselves.
Runs the microbenchmarks of A and B in turns, in every other round the other way round. Prints for each
benchmark that both have the medians of the processor times in ns (of the real time, where the benchmark
goes by that), their ratio B / A as the median of the rounds' ratios, and the least and the most of
these. A ratio means something only where the spread does not hold 1.

Exit status: 0; 2 wrong usage; 1 a benchmark could not be run.
EOF
}

fail() {
  echo "compare_builds.sh: $1" >&2
  exit "${2:-1}"
}

rounds=5
filter=.
min_time=0.2
sides=()
for arg in "$@"; do
  case $arg in
    --help) usage; exit 0 ;;
    --rounds=*) rounds=${arg#*=} ;;
    --filter=*) filter=${arg#*=} ;;
    --min_time=*) min_time=${arg#*=} ;;
    --*) fail "what is $arg? See --help" 2 ;;
    *) sides+=("$arg") ;;
  esac
done
[ ${#sides[@]} -eq 2 ] || fail "two builds are needed. See --help" 2
[[ $rounds =~ ^[1-9][0-9]{0,2}$ ]] || fail "--rounds=$rounds is not allowed: it must be 1 to 999" 2
[[ $min_time =~ ^[0-9]+(\.[0-9]+)?$ ]] || fail "--min_time=$min_time is not allowed: it must be seconds" 2
command -v python3 >/dev/null || fail "python3 is needed: apt-get install python3" 2

programs=()
for side in "${sides[@]}"; do
  [ -d "$side" ] && side=$side/bin/verbena-micro-bench
  [ -x "$side" ] || fail "there is no program $side: build the target verbena-micro-bench" 2
  programs+=("$side")
done

results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT

measure() {  # SIDE ROUND
  "${programs[$1]}" --benchmark_filter="$filter" --benchmark_min_time="$min_time" \
    --benchmark_format=json >"$results/$1.$2.json" 2>"$results/err" ||
    fail "${programs[$1]}: $(tail -n 3 "$results/err")"
}

for ((round = 0; round < rounds; ++round)); do
  if ((round % 2 == 0)); then order="0 1"; else order="1 0"; fi
  for side in $order; do measure "$side" "$round"; done
  echo "round $((round + 1)) of $rounds" >&2
done

python3 - "$results" "$rounds" <<'EOF'
import json, statistics, sys

folder, rounds = sys.argv[1], int(sys.argv[2])
UNITS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}


def times(side, number):
    with open(f"{folder}/{side}.{number}.json") as file:
        found = json.load(file)["benchmarks"]
    result = {}
    for entry in found:
        if entry.get("run_type") == "aggregate" or entry.get("error_occurred"):
            continue
        # Benchmarks that go by another clock say so in their names.
        real = entry["name"].endswith(("/real_time", "/manual_time"))
        result[entry["name"]] = entry["real_time" if real else "cpu_time"] * UNITS[entry["time_unit"]]
    return result


a = [times(0, i) for i in range(rounds)]
b = [times(1, i) for i in range(rounds)]
names = [name for name in a[0] if all(name in one for one in a + b)]
print(f"{'ns, medians of ' + str(rounds) + ' rounds':<44} {'A':>12} {'B':>12} {'B / A':>7}   spread")
for name in names:
    ratios = [after[name] / before[name] for before, after in zip(a, b) if before[name] > 0]
    if not ratios:
        continue
    print(f"{name:<44} {statistics.median(x[name] for x in a):>12.1f} "
          f"{statistics.median(x[name] for x in b):>12.1f} {statistics.median(ratios):>7.2f}   "
          f"{min(ratios):.2f} to {max(ratios):.2f}")
for side, own, other in (("A", a, b), ("B", b, a)):
    only = sorted(set(own[0]) - set(other[0]))
    if only:
        print(f"only in {side}: {', '.join(only)}")
EOF
