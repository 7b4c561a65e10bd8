#!/usr/bin/env bash
# The first program of a guest, started by guest_init.sh: brings the devices up, runs the job that
# the host put into /run/lab/job, and switches the guest off.
#
# It talks to lab.sh through the virtio port "status", one line per event:
#   up              the devices are there; the command starts (a client's: once the file "go" exists)
#   listening       something on the server's guest listens for RDMA or TCP connections
#   exit STATUS     the command has ended and all its output is out
#   failed REASON   the devices could not be brought up
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/run/home LANG=C.UTF-8
mkdir -p "$HOME"

# The job: JOB_COMMAND (array), JOB_DIRECTORY, JOB_TIMEOUT (s), JOB_MEMLOCK (KiB or "unlimited"),
# JOB_OUTPUT (a folder or ""), JOB_ROLE (single, server, client), JOB_NETEM (arguments, an array).
# shellcheck source=/dev/null
source /run/lab/job

# port NAME: the device of the virtio port of this name.
port() {
  local entry
  for entry in /sys/class/virtio-ports/*; do
    if [ "$(<"$entry/name")" = "$1" ]; then printf '/dev/%s\n' "${entry##*/}"; fi
  done
}

tell() { printf '%s\n' "$*" >&"$status_fd"; }

power_off() {
  sync
  dmesg -n 1
  busybox poweroff -f
}

fail() {
  tell "failed $*"
  power_off
}

# try COMMAND...: a step of bringing up that has to work.
try() {
  local said
  said=$("$@" 2>&1) || fail "$*: $said"
}

# wait_until SECONDS COMMAND...: repeats COMMAND until it succeeds.
wait_until() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 0.1
  done
}

gone() { ! [ -e "$1" ]; }

is_active() { grep -q ACTIVE "/sys/class/infiniband/$1/ports/1/state" 2>/dev/null; }

# rdma_cm looks addresses up in this table, which follows the netdev's addresses with a delay:
# link-local, IPv4, IPv6.
rxe_has_gids() {
  local gids
  gids=$(cat /sys/class/infiniband/rxe0/ports/1/gids/[0-5] 2>/dev/null)
  [ "$(grep -vc '^0000:0000:0000:0000:0000:0000:0000:0000$' <<<"$gids")" -ge 3 ]
}

# The connection manager's table, or a TCP port (iproute2's ss needs no name look-ups with -n).
is_listening() {
  rdma resource show cm_id 2>/dev/null | grep 'state LISTEN' >/dev/null || ss -Hltn | grep . >/dev/null
}

# bring_up DEVICE TYPE NETDEV IPV4 IPV6
bring_up() {
  local device=$1 type=$2 netdev=$3
  try ip addr add "$4/24" dev "$netdev"
  try ip -6 addr add "$5/64" dev "$netdev" nodad
  try ip link set "$netdev" up
  try rdma link add "$device" type "$type" netdev "$netdev"
  wait_until 20 is_active "$device" || fail "$device does not become active"
}

make_devices() {
  try ip link set lo up
  if [ "$JOB_ROLE" = single ]; then
    # An end of a pair each: a netdev with a carrier.
    try ip link add d0 type veth peer name d1
    try ip link add e0 type veth peer name e1
    try ip link set d1 up
    try ip link set e1 up
    bring_up rxe0 rxe d0 192.168.77.1 fd77::1
    bring_up siw0 siw e0 192.168.78.1 fd78::1
  else
    local netdev host=1
    [ "$JOB_ROLE" = server ] || host=2
    netdev=$(basename /sys/bus/virtio/drivers/virtio_net/virtio*/net/*)
    bring_up rxe0 rxe "$netdev" "192.168.77.$host" "fd77::$host"
    [ ${#JOB_NETEM[@]} -eq 0 ] ||
      try tc qdisc add dev "$netdev" root netem limit 10000 "${JOB_NETEM[@]}"
  fi
  wait_until 20 rxe_has_gids || fail 'the GIDs of rxe0 do not appear'
}

mount_output() {
  [ -n "$JOB_OUTPUT" ] || return 0
  mkdir -p "$JOB_OUTPUT"
  try mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000 output "$JOB_OUTPUT"
}

# rdma-core loads the libraries of all the adapters it knows, in every program, to find out which of
# them has rxe0 and siw0; and each of these links is read from the host whenever a path has it.
make_starts_cheap() {
  local file
  for file in /etc/libibverbs.d/*.driver; do
    case ${file##*/} in
      rxe.driver | siw.driver) ;;
      *) rm "$file" ;;
    esac
  done
  for file in /bin /lib /lib64 /sbin; do
    [ ! -L "$file" ] || touch -h "$file"
  done
}

# The job's command in place of the shell. "timeout 0" never ends it by itself, but hands a signal on
# to the whole process group and kills what is left of it some seconds later (a server may drain).
start_command() {
  local limited=() grace=5
  [ "$JOB_ROLE" != server ] || grace=20
  if [ "$JOB_MEMLOCK" != unlimited ]; then
    # Whoever has this capability is above the limit.
    limited=(setpriv --inh-caps=-ipc_lock --bounding-set=-ipc_lock)
  fi
  ulimit -l "$JOB_MEMLOCK"
  ulimit -n 65536
  cd "$JOB_DIRECTORY" || exit 126
  exec "${limited[@]}" timeout --kill-after=$grace 0 "${JOB_COMMAND[@]}"
}

# end_after_timeout PID
end_after_timeout() {
  sleep "$JOB_TIMEOUT"
  touch /run/timed_out
  echo "lab: time is up after $JOB_TIMEOUT s; what waits in the kernel:" >/dev/kmsg
  echo w >/proc/sysrq-trigger
  kill -TERM "$1"
}

ln -s /proc/self/fd /dev/fd
ln -s /proc/self/fd/0 /dev/stdin
ln -s /proc/self/fd/1 /dev/stdout
ln -s /proc/self/fd/2 /dev/stderr
exec {status_fd}>"$(port status)" {out_fd}>"$(port out)" {err_fd}>"$(port err)"
mkdir -p /dev/shm /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t devpts devpts /dev/pts
hostname "lab-$JOB_ROLE"
make_starts_cheap
make_devices
mount_output
dmesg -n 7 # what the kernel says from here on is about the command: to the console with it
tell up
[ "$JOB_ROLE" != client ] || wait_until 86400 test -e /run/lab/go

# The command writes into pipes: a port can be opened once only, but a program may open /dev/stdout.
exec {out_pipe}> >(exec cat >&"$out_fd")
out_cat=$!
exec {err_pipe}> >(exec cat >&"$err_fd")
err_cat=$!
start_command </dev/null 1>&"$out_pipe" 2>&"$err_pipe" &
command=$!
exec {out_pipe}>&- {err_pipe}>&-
end_after_timeout $command &
if [ "$JOB_ROLE" = server ]; then
  { wait_until "$JOB_TIMEOUT" is_listening && tell listening; } &
  { wait_until 86400 test -e /run/lab/stop && kill -TERM $command; } &
fi

wait $command
status=$?
[ ! -e /run/timed_out ] || status=124
# What the command left running may keep its output open for ever.
wait_until 3 gone "/proc/$out_cat"
wait_until 3 gone "/proc/$err_cat"
[ -z "$JOB_OUTPUT" ] || umount "$JOB_OUTPUT" 2>/dev/null
tell "exit $status"
[ "$JOB_ROLE" != server ] || wait_until 86400 test -e /run/lab/stop
power_off
