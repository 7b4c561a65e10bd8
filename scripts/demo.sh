#!/usr/bin/env bash
# Installs what Verbena needs, builds it and shows its whole job on this machine.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'USAGE'
Usage: scripts/demo.sh [--seconds=N] [--help]

Installs the Debian packages that are missing (root, or a user with sudo), builds the release
preset, and then, with no RDMA adapter needed:
  1. starts a server on 127.0.0.1 with a free port, on the software verbs device;
  2. loads every record of this machine's Debian package index (apt-cache dumpavail) and reads
     each one back by one-sided READ, compared byte for byte with the source;
  3. looks up a few packages with verbena-cli;
  4. runs YCSB-B (95 % reads) and prints throughput, latencies, READs per GET and the server's
     CPU per operation;
  5. stops the server.
Takes at most a minute after the build. Safe to run twice.

  --seconds=N   length of the YCSB run, 1 to 600 (default 10)
USAGE
}

SECONDS_OF_LOAD=10
for option in "$@"; do
  case $option in
    --seconds=*) SECONDS_OF_LOAD=${option#*=} ;;
    --help | -h)
      usage
      exit 0
      ;;
    *)
      usage >&2
      printf '\ndemo.sh: unknown option %s\n' "$option" >&2
      exit 2
      ;;
  esac
done
case $SECONDS_OF_LOAD in
  '' | *[!0-9]*) SECONDS_OF_LOAD=0 ;;
esac
if [ "$SECONDS_OF_LOAD" -lt 1 ] || [ "$SECONDS_OF_LOAD" -gt 600 ]; then
  printf 'demo.sh: --seconds takes a whole number from 1 to 600\n' >&2
  exit 2
fi

cd "$ROOT"
needs_writable_tree release
install_packages "${BUILD_PACKAGES[@]}"
build release verbena-server verbena-cli verbena-bench verbena-example-packages
bin=$ROOT/build/release/bin

work=$(mktemp -d)
server=
# shellcheck disable=SC2317  # called by the trap
cleanup() {
  if [ -n "$server" ] && kill -0 "$server" 2>/dev/null; then
    kill -TERM "$server" 2>/dev/null || true
    wait "$server" || true
  fi
  rm -rf "$work"
}
trap cleanup EXIT

say "starting verbena-server"
"$bin/verbena-server" --listen=127.0.0.1:0 --fabric=auto --memory=1GiB \
  --port_file="$work/address" 2>"$work/server.log" &
server=$!
for _ in $(seq 300); do
  [ -s "$work/address" ] && break
  kill -0 "$server" 2>/dev/null || {
    cat "$work/server.log" >&2
    die "the server did not start"
  }
  sleep 0.1
done
[ -s "$work/address" ] || die "the server did not get ready within 30 s"
address=$(cat "$work/address")
cat "$work/server.log"

say "loading the Debian package index and reading it back"
apt-cache dumpavail >"$work/index"
if ! grep -q '^Package: ' "$work/index"; then
  say "the machine has no package index yet: apt-get update"
  as_root apt-get update -qq
  apt-cache dumpavail >"$work/index"
fi
"$bin/verbena-example-packages" "$address" <"$work/index"

for package in bash coreutils libibverbs1; do
  say "verbena-cli --server=$address get $package"
  "$bin/verbena-cli" --server="$address" get "$package" |
    grep -E '^(Package|Version|Installed-Size|Description)' || true
done

say "YCSB-B: 95 % reads, 5 % updates, zipfian keys, $SECONDS_OF_LOAD s"
"$bin/verbena-bench" load --server="$address" --records=100000 --value_size=100
"$bin/verbena-bench" run --server="$address" --workload=b --records=100000 --value_size=100 \
  --seconds="$SECONDS_OF_LOAD" --depth=16 --json="$work/ycsb-b.json"

say "stopping the server"
kill -TERM "$server"
status=0
wait "$server" || status=$?
server=
[ $status -eq 0 ] || die "the server ended with status $status"
say "done"
