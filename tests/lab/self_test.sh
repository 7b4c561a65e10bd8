#!/usr/bin/env bash
# Tests the lab itself with rdma-core's own tools. Exit status 77: the lab cannot run here.
# shellcheck disable=SC2317 # the checks are called through check and wait_until
set -euo pipefail
LAB=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lab.sh
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
FAILED=0

# check WHAT COMMAND...: COMMAND succeeds.
check() {
  local what=$1
  shift
  if "$@"; then
    printf 'ok    %s\n' "$what"
  else
    printf 'FAIL  %s (%s)\n' "$what" "$*"
    FAILED=1
  fi
}
equal() { [ "$1" = "$2" ] || { printf '      "%s" is not "%s"\n' "$1" "$2" && return 1; }; }
has() { grep -q -- "$2" "$1"; }
has_not() { ! has "$@"; }
is_running() { kill -0 "$1" 2>/dev/null; }
is_gone() { ! is_running "$1"; }
# guest_of PID: the process of the guest that this lab.sh started.
guest_of() {
  local child
  for child in $(<"/proc/$1/task/$1/children"); do
    ! grep -q '^qemu' "/proc/$child/comm" || printf '%s\n' "$child"
  done
}

# lab NAME ARGUMENT...: runs lab.sh; leaves NAME.out, NAME.err and NAME.status in WORK.
lab() {
  local name=$1 status=0
  shift
  "$LAB" "$@" >"$WORK/$name.out" 2>"$WORK/$name.err" || status=$?
  printf '%s\n' "$status" >"$WORK/$name.status"
}

# has_status NAME STATUS
has_status() {
  equal "$(<"$WORK/$1.status")" "$2" || { sed 's/^/      /' "$WORK/$1.out" "$WORK/$1.err" && return 1; }
}

# wait_until SECONDS COMMAND...
wait_until() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 0.1
  done
}

# What guest "devices" runs: both devices, IPv4 and IPv6.
cat >"$WORK/devices.sh" <<'GUEST'
set -e
listening() { rdma resource show cm_id | grep 'state LISTEN' >/dev/null; }
for device in rxe0 siw0; do
  ibv_devinfo -d $device | grep -E 'hca_id|transport|state|link_layer'
done
for address in 192.168.77.1 fd77::1 192.168.78.1 fd78::1; do
  timeout 30 rping -s -a $address -C 5 >/dev/null &
  until listening; do sleep 0.1; done
  timeout 30 rping -c -a $address -C 5 -v | grep -c '^ping data' | sed "s/^/rping $address: /"
  wait
  while listening; do sleep 0.1; done
done
cat /proc/sys/kernel/hostname
GUEST

# What guest "limits" runs: memory lock, folder for output, what the host sees of its writes.
cat >"$WORK/limits.sh" <<'GUEST'
ulimit -l
grep CapEff /proc/self/status
echo written >"$1/out/file"
echo lost >"$1/lost"
echo to stderr >&2
echo to /dev/stderr >/dev/stderr
head -c 3000000 /dev/zero | tr '\0' x
sleep 1000 &
exit 3
GUEST
mkdir "$WORK/out"

lab prepare prepare
if [ "$(<"$WORK/prepare.status")" -eq 77 ]; then
  cat "$WORK/prepare.err"
  exit 77
fi
check 'prepare succeeds' has_status prepare 0

# Mistakes, each without a boot.
lab mode sing true
lab option run --timeout=soon true
lab loss run --loss=2% true
lab nothing run
lab half pair true
for name in mode option loss nothing half; do check "wrong use: $name" has_status $name 2; done
check 'the message tells the value' has "$WORK/option.err" 'timeout=soon'
VERBENA_LAB_CACHE=/proc/nowhere lab cache run true
check 'no cache: skipped' has_status cache 77
mkdir "$WORK/stubs"
printf '#!/bin/sh\nexit 1\n' | tee "$WORK/stubs/dpkg-query" >"$WORK/stubs/apt-get"
chmod +x "$WORK"/stubs/*
PATH=$WORK/stubs:$PATH lab packages run true
check 'no packages: skipped' has_status packages 77
check 'the message tells what is missing' has "$WORK/packages.err" 'installing.*qemu-system-x86'
VERBENA_LAB_ACCEL=warp lab accel run true
check 'QEMU refuses: the lab failed' has_status accel 125
check 'QEMU refuses: its words are shown' has "$WORK/accel.err" warp

# Two guests at a time.
lab devices run --timeout=120 bash "$WORK/devices.sh" &
lab limits run --memlock=8192 --output="$WORK/out" bash "$WORK/limits.sh" "$WORK" &
wait
check 'both devices: status' has_status devices 0
for line in 'hca_id:.*rxe0' 'hca_id:.*siw0' 'transport:.*InfiniBand' 'transport:.*iWARP' \
  'rping 192.168.77.1: 5' 'rping fd77::1: 5' 'rping 192.168.78.1: 5' 'rping fd78::1: 5' \
  'lab-single'; do
  check "both devices: $line" has "$WORK/devices.out" "$line"
done
check 'status 3 passes through' has_status limits 3
check 'memory lock is limited' has "$WORK/limits.out" '^8192$'
check 'and nobody is above the limit' has_not "$WORK/limits.out" 'CapEff:.*[4567cdef]...$'
check 'stderr comes out' has "$WORK/limits.err" '^to stderr$'
check '/dev/stderr can be opened' has "$WORK/limits.err" '^to /dev/stderr$'
check 'all output comes out' equal "$(tr -dc x <"$WORK/limits.out" | wc -c)" 3000000
check 'the folder for output is written' equal "$(cat "$WORK/out/file")" written
check 'nothing else is' test ! -e "$WORK/lost"

lab timeout run --timeout=3 bash -c 'trap "" TERM; echo begun; sleep 1000; sleep 1000' &
# (rping keeps what it says until its end, which a server may not come to.)
lab pair pair --loss=2% --delay=3ms stdbuf -oL rping -s -a fd77::1 -C 20 -v -- \
  bash -c 'tc qdisc show; rping -c -a fd77::1 -C 20 -v' &
wait
check 'a hung command: 124' has_status timeout 124
check 'a hung command: output' has "$WORK/timeout.out" begun
check 'a hung command: the kernel tells' has "$WORK/timeout.err" 'time is up after 3 s'
check 'pair: status' has_status pair 0
check 'pair: loss and delay' has "$WORK/pair.out" 'netem.*delay 3ms.*loss 2%'
check 'pair: client' equal "$(grep -c '^ping data' "$WORK/pair.out")" 20
check 'pair: server' equal "$(grep -c '^server: .*ping data' "$WORK/pair.err")" 20

# Whoever ends the script ends its guest. The guest's command is known by its argument.
for signal in TERM KILL; do
  mkfifo "$WORK/begun.$signal"
  TMPDIR=$WORK "$LAB" run sh -c 'echo begun; sleep 1000' >"$WORK/begun.$signal" 2>"$WORK/killed.err" &
  script=$!
  read -r line <"$WORK/begun.$signal"
  guest=$(guest_of $script)
  check "SIG$signal: begun" equal "$line" begun
  check "SIG$signal: the guest runs" is_running "$guest"
  kill -$signal $script
  status=0
  { wait $script || status=$?; } 2>/dev/null
  check "SIG$signal: status" equal $status $((128 + $(kill -l $signal)))
  check "SIG$signal: the guest is gone" wait_until 10 is_gone "$guest"
done

exit $FAILED
