#!/usr/bin/env bash
# Measures PUTs in the storage beside what no store can do without, and two threads beside one. See --help.
set -euo pipefail

usage() {
  cat <<'USAGE'
Usage: bench/storage_ratios.sh [--bin=DIR] [--rounds=N]

Runs three of verbena-micro-bench's benchmarks, without a network, and prints two ratios of their
medians with their limits:

  a PUT over one cache miss, XXH3 over the item and a copy of it   at most 2.5
  the rate of PUTs of two threads over one's                       at least 1.7 (two processors)

Exit status 1 if a limit is missed.

  --rounds=N  of each benchmark (default 9)
  --bin=DIR   folder of verbena-micro-bench (default build/release/bin)

Needs perl.
USAGE
}

# shellcheck source=bench/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
rounds=9
for option in "$@"; do
  case $option in
    --help | -h) usage && exit 0 ;;
    --bin=*) bin=${option#*=} ;;
    --rounds=*) rounds=${option#*=} ;;
    *) usage >&2 && exit 2 ;;
  esac
done

"$bin/verbena-micro-bench" --benchmark_format=json --benchmark_repetitions="$rounds" \
  --benchmark_report_aggregates_only=true \
  --benchmark_filter='^BM_(StoragePut|CopyAndHash|StoragePutThreads/real_time/threads:[12])$' \
  >"$work/report.json" 2>"$work/report.log" || { cat "$work/report.log" >&2 && exit 2; }
perl -MJSON::PP -e '
  my $report = decode_json(do { local $/; <STDIN> });
  my %median = map { $_->{run_name} => $_ }
    grep { ($_->{aggregate_name} // "") eq "median" } @{$report->{benchmarks}};
  sub figure {
    my ($name, $what) = @_;
    my $value = $median{$name}{$what} or die "storage_ratios.sh: no $what of $name\n";
    return $value;
  }
  my $put = figure("BM_StoragePut", "cpu_time");
  my $needed = figure("BM_CopyAndHash", "cpu_time");
  my $one = figure("BM_StoragePutThreads/real_time/threads:1", "items_per_second");
  my $two = figure("BM_StoragePutThreads/real_time/threads:2", "items_per_second");
  printf "PUT %.0f ns, copy and hash and one cache miss %.0f ns: %.2f (at most 2.5)\n",
    $put, $needed, $put / $needed;
  printf "PUTs of two threads %.1f, of one %.1f million/s: %.2f (at least 1.7)\n",
    $two / 1e6, $one / 1e6, $two / $one;
  exit($put / $needed <= 2.5 && $two / $one >= 1.7 ? 0 : 1);
' <"$work/report.json"
