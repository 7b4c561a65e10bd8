#!/usr/bin/env bash
# Runs commands on kernel RDMA (Soft-RoCE and siw) in virtual machines. See --help.
set -euo pipefail
LAB_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/common.sh
source "$LAB_DIR/../../scripts/common.sh"
# shellcheck source=tests/lab/prepare.sh
source "$LAB_DIR/prepare.sh"

usage() {
  cat <<'USAGE'
Usage: lab.sh run  [OPTION]... [--] COMMAND [ARGUMENT]...
       lab.sh pair [OPTION]... [--] SERVER_COMMAND [ARGUMENT]... -- COMMAND [ARGUMENT]...
       lab.sh prepare

Runs a command on real kernel RDMA drivers on a machine that has none: QEMU boots Debian's kernel,
which sees this machine's whole root folder; what is written there is lost with the guest.

  run      one guest with two RDMA devices:
             rxe0  Soft-RoCE (RoCEv2)   192.168.77.1  fd77::1
             siw0  iWARP                192.168.78.1  fd78::1
  pair     two guests joined by a wire, each with rxe0: the server's has 192.168.77.1 and fd77::1,
           the client's 192.168.77.2 and fd77::2. COMMAND starts as soon as something listens for
           RDMA or TCP connections on the server; when it has ended, SERVER_COMMAND gets a SIGTERM.
           What
           the server writes comes out on stderr, each line after "server: ".
  prepare  only makes the kernel and the initrd (the others do so when needed, once per version of
           Debian's kernel)

COMMAND runs as root in the current folder, without a terminal and with the environment PATH, HOME
and LANG only ("env NAME=VALUE COMMAND" gives more).

  --timeout=SECONDS  the command is ended after that many seconds (default 120)
  --cpus=N           processors per guest (default 1, which gives the steadiest latencies)
  --memory=SIZE      memory per guest (default 2G)
  --memlock=KIB      memory that the command may lock, capability to exceed it taken away (default
                     unlimited)
  --output=DIR       a folder that the guest may write to (a pair's client), under the same path
  --loss=PERCENT     pair: packets lost in each direction, for example 2%
  --delay=TIME       pair: delay in each direction, for example 3ms
  --server-wait=SECONDS  pair: COMMAND starts at the latest after that time (default 30)
  --verbose          tells how long the boot took

Exit status: COMMAND's; 124 if it was ended by --timeout; 125 if the guest failed; 2 for a wrong
option; 77 if QEMU or Debian's packages cannot be had. If it is not 0, the kernel's messages since
the start of the command follow on stderr.

Environment: VERBENA_LAB_CACHE (default ~/.cache/verbena-lab) keeps kernel and initrd;
VERBENA_LAB_ACCEL is QEMU's accelerator (default tcg,thread=multi, software emulation);
VERBENA_LAB_BOOT_SECONDS is how long a boot may take (default 180).
USAGE
}

wrong() {
  usage >&2
  printf '\nlab.sh: %s\n' "$*" >&2
  exit 2
}

# is_count TEXT: a whole number of 1 or more.
is_count() { [[ $1 =~ ^[1-9][0-9]{0,8}$ ]]; }

parse_options() {
  MODE=${1-}
  TIMEOUT=120 CPUS=1 MEMORY=2G MEMLOCK=unlimited OUTPUT='' NETEM=() SERVER_WAIT=30 VERBOSE=0
  COMMAND=() SERVER_COMMAND=()
  case $MODE in
    run | pair | prepare) shift ;;
    --help | -h)
      usage
      exit 0
      ;;
    '') wrong 'say run, pair or prepare' ;;
    *) wrong "no mode \"$MODE\": say run, pair or prepare" ;;
  esac
  while [ $# -gt 0 ]; do
    local value=${1#*=}
    case $1 in
      --timeout=*) TIMEOUT=$value ;;
      --cpus=*) CPUS=$value ;;
      --memory=*) MEMORY=$value ;;
      --memlock=*) MEMLOCK=$value ;;
      --output=*) OUTPUT=$value ;;
      --loss=* | --delay=*)
        [ "$MODE" = pair ] || wrong "${1%%=*} needs pair: within one guest rxe passes no netdev"
        if [[ $1 = --loss=* ]]; then
          [[ $value =~ ^[0-9.]+%$ ]] || wrong "--loss=$value is not a percentage like 2%"
          NETEM+=(loss "$value")
        else
          [[ $value =~ ^[0-9.]+(us|ms|s)$ ]] || wrong "--delay=$value is not a time like 3ms"
          NETEM+=(delay "$value")
        fi
        ;;
      --server-wait=*) SERVER_WAIT=$value ;;
      --verbose) VERBOSE=1 ;;
      --help | -h)
        usage
        exit 0
        ;;
      --)
        shift
        break
        ;;
      -*) wrong "unknown option $1" ;;
      *) break ;;
    esac
    shift
  done
  is_count "$TIMEOUT" || wrong "--timeout=$TIMEOUT is not a number of seconds"
  is_count "$CPUS" || wrong "--cpus=$CPUS is not a number of processors"
  is_count "$SERVER_WAIT" || wrong "--server-wait=$SERVER_WAIT is not a number of seconds"
  [[ $MEMORY =~ ^[1-9][0-9]*[MG]$ ]] || wrong "--memory=$MEMORY is not a size like 2G"
  [ "$MEMLOCK" = unlimited ] || is_count "$MEMLOCK" || wrong "--memlock=$MEMLOCK is no number of KiB"
  if [ -n "$OUTPUT" ]; then
    if [ ! -d "$OUTPUT" ] || [ ! -w "$OUTPUT" ]; then
      wrong "--output=$OUTPUT is no folder that can be written"
    fi
    OUTPUT=$(cd "$OUTPUT" && pwd)
  fi
  if [ "$MODE" = pair ]; then
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
      SERVER_COMMAND+=("$1")
      shift
    done
    [ $# -eq 0 ] || shift
    if [ ${#SERVER_COMMAND[@]} -eq 0 ] || [ $# -eq 0 ]; then
      wrong 'pair needs SERVER_COMMAND -- COMMAND'
    fi
  fi
  COMMAND=("$@")
  if [ "$MODE" = prepare ]; then
    [ $# -eq 0 ] || wrong "prepare takes no command"
  elif [ $# -eq 0 ]; then
    wrong 'which command?'
  fi
}

# Started programs, by process: guests, and the programs that pass their output on.
QEMUS=()
CATS=()

# A guest does not outlive this script, whatever ends it: here, or by setpriv below.
# shellcheck disable=SC2317 # called by trap
cleanup() {
  local pid
  for pid in "${QEMUS[@]}" "${CATS[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${QEMUS[@]}"; do wait "$pid" 2>/dev/null || true; done
  rm -rf "$WORK"
}

# boot ROLE: starts a guest with the job of this role (single, server, client). Its status lines come
# from file descriptor STATUS_FD[ROLE].
declare -A STATUS_FD PID
boot() {
  local role=$1 dir=$WORK/$1 out err status network=() output=() JOB_COMMAND=("${COMMAND[@]}")
  mkdir "$dir" "$dir/job"
  [ "$role" != server ] || JOB_COMMAND=("${SERVER_COMMAND[@]}")
  # The guest's script reads these as bash wrote them.
  # shellcheck disable=SC2034
  local JOB_ROLE=$role JOB_DIRECTORY=$PWD JOB_TIMEOUT=$TIMEOUT JOB_MEMLOCK=$MEMLOCK \
    JOB_NETEM=("${NETEM[@]}") JOB_OUTPUT=''
  if [ -n "$OUTPUT" ] && [ "$role" != server ]; then
    # shellcheck disable=SC2034
    JOB_OUTPUT=$OUTPUT
    output=(-virtfs "local,path=${OUTPUT//,/,,},mount_tag=output,security_model=none")
  fi
  declare -p JOB_COMMAND JOB_ROLE JOB_DIRECTORY JOB_TIMEOUT JOB_MEMLOCK JOB_NETEM JOB_OUTPUT \
    >"$dir/job/job"
  cp "$LAB_DIR/guest.sh" "$dir/job/"

  if [ "$role" = server ]; then
    exec {out}> >(exec sed -u 's/^/server: /' >&2)
    CATS+=($!)
    exec {err}>&"$out"
  else
    exec {out}> >(exec cat)
    CATS+=($!)
    exec {err}> >(exec cat >&2)
    CATS+=($!)
  fi
  case $role in
    single) network=(-nic none) ;;
    server) network=(-netdev 'stream,id=n0,server=on,addr.type=unix,addr.path=../wire') ;;
    client) network=(-netdev 'stream,id=n0,server=off,addr.type=unix,addr.path=../wire') ;;
  esac
  [ "$role" = single ] ||
    network+=(-device "virtio-net-pci,netdev=n0,romfile=,mac=52:54:00:77:00:0${#QEMUS[@]}")

  local accel=${VERBENA_LAB_ACCEL:-tcg,thread=multi} kernel_options='console=ttyS0 panic=-1 quiet'
  kernel_options+=' mitigations=off init_on_alloc=0 nokaslr audit=0 apparmor=0 no_timer_check'
  # A simple processor is a fast one where it is emulated: one level of page tables less, user memory
  # accessed without a switch of modes, no wide vectors; and a kernel that does not clear memory when
  # it is taken. Together that saves an eighth of the time. (rdrand: the kernel waits for randomness.)
  # shellcheck disable=SC2054 # QEMU wants the commas
  local qemu=(
    qemu-system-x86_64 -accel "$accel" -cpu qemu64,+rdrand -smp "$CPUS" -m "$MEMORY"
    -no-user-config -nodefaults -no-reboot -display none
    -kernel "$LAB_KERNEL" -initrd "$LAB_INITRD"
    -append "$kernel_options"
    -serial file:console
    -virtfs 'local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap'
    -virtfs 'local,path=job,mount_tag=lab,security_model=none,readonly=on'
    "${output[@]}" "${network[@]}"
    -device virtio-serial-pci
    -add-fd "fd=$out,set=1" -chardev file,id=out,path=/dev/fdset/1,append=on
    -add-fd "fd=$err,set=2" -chardev file,id=err,path=/dev/fdset/2,append=on
    -add-fd fd=9,set=3 -chardev file,id=status,path=/dev/fdset/3,append=on
    -device virtserialport,chardev=status,name=status
    -device virtserialport,chardev=out,name=out
    -device virtserialport,chardev=err,name=err
  )
  exec {status}< <(cd "$dir" && exec setpriv --pdeathsig KILL "${qemu[@]}" </dev/null 9>&1 2>qemu.log)
  PID[$role]=$!
  QEMUS+=($!)
  STATUS_FD[$role]=$status
  exec {out}>&- {err}>&-
}

# event ROLE SECONDS: EVENT becomes the guest's next status line, "ended" if it has ended, or "late".
event() {
  local status=0
  IFS= read -r -t "$2" -u "${STATUS_FD[$1]}" EVENT || status=$?
  if [ $status -gt 128 ]; then
    EVENT=late
  elif [ $status -ne 0 ]; then
    EVENT=ended
  fi
}

wait_for_boot() {
  local role=$1 limit=${VERBENA_LAB_BOOT_SECONDS:-180}
  event "$role" "$limit"
  case $EVENT in
    up) [ $VERBOSE -eq 0 ] || say "lab: $role guest up after $((SECONDS - BOOT_START)) s" >&2 ;;
    failed*) give_up "$role" "the $role guest: ${EVENT#failed }" ;;
    late) give_up "$role" "the $role guest did not come up within $limit s" ;;
    *) give_up "$role" "the $role guest ended while it booted" ;;
  esac
}

# wait_for_exit ROLE: STATUS becomes the exit status of the command.
wait_for_exit() {
  # The guest ends the command itself; this is for a guest that no longer can.
  event "$1" $((TIMEOUT + 30))
  # A server that has come to listen after --server-wait.
  [ "$EVENT" != listening ] || event "$1" $((TIMEOUT + 30))
  case $EVENT in
    exit\ *) STATUS=${EVENT#exit } ;;
    late)
      printf 'lab.sh: the %s guest does not answer\n' "$1" >&2
      STATUS=124
      ;;
    *)
      printf 'lab.sh: the %s guest ended before its command\n' "$1" >&2
      STATUS=125
      ;;
  esac
}

# wait_for_end ROLE: the guest switches itself off once it has told the status.
wait_for_end() {
  event "$1" 20
  [ "$EVENT" = ended ] || kill "${PID[$1]}" 2>/dev/null || true
  wait "${PID[$1]}" 2>/dev/null || true
}

# What the kernel of a guest said on its console, and QEMU.
show_messages() {
  local dir=$WORK/$1 file
  for file in console qemu.log; do
    [ -s "$dir/$file" ] || continue
    tail -n 100 "$dir/$file" | tr -d '\r' |
      sed "/reboot: Power down\$/d; s/^/lab: $1 ${file%.log}: /" >&2
  done
}

give_up() {
  show_messages "$1"
  printf 'lab.sh: %s\n' "$2" >&2
  exit 125
}

# All that the guests wrote is out when these have ended.
wait_for_output() {
  local pid
  for pid in "${CATS[@]}"; do wait "$pid" || true; done
  CATS=()
}

run_single() {
  boot single
  wait_for_boot single
  wait_for_exit single
  wait_for_end single
  wait_for_output
  [ "$STATUS" -eq 0 ] || show_messages single
}

run_pair() {
  local server_status='' client_status deadline=$((SECONDS + 10))
  boot server
  until [ -S "$WORK/wire" ]; do
    if ! kill -0 "${PID[server]}" 2>/dev/null || [ $SECONDS -ge $deadline ]; then
      give_up server 'the server guest has not started'
    fi
    sleep 0.05
  done
  boot client
  wait_for_boot server
  wait_for_boot client

  event server "$SERVER_WAIT"
  case $EVENT in
    listening) ;;
    late) say "lab: nothing listens after $SERVER_WAIT s, the client starts all the same" >&2 ;;
    exit\ *) server_status=${EVENT#exit } ;;
    *) give_up server 'the server guest ended before its command' ;;
  esac
  touch "$WORK/client/job/go"
  wait_for_exit client
  client_status=$STATUS
  wait_for_end client

  touch "$WORK/server/job/stop"
  if [ -z "$server_status" ]; then
    wait_for_exit server
    server_status=$STATUS
  fi
  wait_for_end server
  wait_for_output
  # 143: the SIGTERM at the end.
  case $server_status in
    0 | 143) ;;
    *) printf "lab.sh: the server's command ended with status %s\n" "$server_status" >&2 ;;
  esac
  STATUS=$client_status
  if [ "$STATUS" -ne 0 ]; then
    show_messages server
    show_messages client
  fi
}

parse_options "$@"
prepare
[ "$MODE" != prepare ] || exit 0
WORK=$(mktemp -d "${TMPDIR:-/tmp}/verbena-lab.XXXXXX")
trap cleanup EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
BOOT_START=$SECONDS
if [ "$MODE" = run ]; then run_single; else run_pair; fi
exit "$STATUS"
