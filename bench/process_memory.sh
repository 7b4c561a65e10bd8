#!/usr/bin/env bash
# Measures the memory of whole processes for each item, beside memcached's. See --help.
set -euo pipefail

usage() {
  cat <<'USAGE'
Usage: bench/process_memory.sh [--bin=DIR] [--memory=SIZE_IN_MIB] [--fill=PERCENT]

Loads items of 16 + 100 bytes into a verbena-server (software device, one worker,
--ordered_index=off) until its region is full to so many percent, and the same number of items into
memcached, and prints the resident memory (VmRSS) of both processes divided by the items. For
Verbena that is everything: region, index, message buffers. Exit status 1 if an item takes more of
it than of memcached.

  --memory=MIB    region (default 1024)
  --fill=PERCENT  default 97
  --bin=DIR       folder with verbena-server and verbena-bench (default build/release/bin)

Needs memcached and perl.
USAGE
}

# shellcheck source=bench/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
memory=1024
fill=97
for option in "$@"; do
  case $option in
    --help | -h) usage && exit 0 ;;
    --bin=*) bin=${option#*=} ;;
    --memory=*) memory=${option#*=} ;;
    --fill=*) fill=${option#*=} ;;
    *) usage >&2 && exit 2 ;;
  esac
done
command -v memcached >/dev/null || { echo "process_memory.sh: memcached is not installed" >&2 && exit 2; }

resident() { sed -n 's/^VmRSS:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$1/status"; }

# 168 bytes is what an item takes at the worst number of items.
records=$((memory * 1048576 * fill / 100 / 168))

start_server --listen=127.0.0.1:0 --fabric=soft --memory="${memory}MiB" --ordered_index=off
"$bin/verbena-bench" load --server="$address" --fabric=soft --records="$records" \
  --key_size=16 --value_size=100 >"$work/load.log" 2>&1 || { cat "$work/load.log" >&2 && exit 2; }
ours=$(resident "$server")

memcached -u nobody -U 0 -s "$work/memcached.sock" -a 777 -m $((memory * 4)) -t 1 \
  >"$work/memcached.log" 2>&1 &
peer=$!
pids+=("$peer")
chmod 777 "$work"
wait_for "$peer" test -S "$work/memcached.sock"
perl -MSocket -e '
  my ($path, $records) = @ARGV;
  my $s;
  socket($s, AF_UNIX, SOCK_STREAM, 0) && connect($s, pack_sockaddr_un($path)) or die "$path: $!";
  my $value = "v" x 100;
  my $batch = "";
  for my $i (0 .. $records - 1) {
    $batch .= sprintf("set user%012d 0 0 100 noreply\r\n%s\r\n", $i, $value);
    if (length($batch) > 65536 || $i == $records - 1) { print $s $batch or die $!; $batch = ""; }
  }
  $s->flush;
  print $s "stats\r\n";
  $s->flush;
  while (<$s>) { if (/^STAT curr_items (\d+)/) { $1 == $records or die "memcached kept $1 items" } last if /^END/ }
' "$work/memcached.sock" "$records"
theirs=$(resident "$peer")

awk -v n="$records" -v ours="$ours" -v theirs="$theirs" -v version="$(memcached -V)" 'BEGIN {
  printf "resident bytes per item of 16 + 100 bytes, %d items: verbena %.1f, %s %.1f\n",
    n, ours * 1024 / n, version, theirs * 1024 / n
  exit !(ours < theirs) }'
