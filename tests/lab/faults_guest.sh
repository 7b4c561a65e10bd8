#!/usr/bin/env bash
# faults_guest.sh BIN_DIR: runs in a guest, started by faults_test.sh. What verbena-server does when
# its devices cannot be used, go, lose their link, and come back.
set -euo pipefail
BIN=$1
RXE=192.168.77.1 SIW=192.168.78.1 PORT=7400
WORK=$(mktemp -d)
LOG=$WORK/log
SERVER=0

fail() {
  printf 'FAIL  %s\n' "$*"
  [ ! -e "$LOG" ] || sed 's/^/server: /' "$LOG"
  [ $SERVER -eq 0 ] || kill -KILL $SERVER
  exit 1
}
ok() { printf 'ok    %s\n' "$*"; }

# says FILE TEXT...: fails unless the file has each text.
says() {
  local file=$1 text
  shift
  for text in "$@"; do
    grep -qF -- "$text" "$file" || fail "not said: \"$text\" in: $(cat "$file")"
  done
}

# shellcheck source=tests/lab/until_true.sh
source "$(dirname "${BASH_SOURCE[0]}")/until_true.sh"
# shellcheck source=tests/lab/keep_files.sh
source "$(dirname "${BASH_SOURCE[0]}")/keep_files.sh"
keep_files "$BIN" verbena-server verbena-cli

cli() {
  local address=$1
  shift
  "$BIN/verbena-cli" --fabric=verbs --server="$address:$PORT" --timeout=5s "$@"
}
# info_has ADDRESS TEXT: asked through ADDRESS, the server says TEXT of itself.
info_has() { cli "$1" --json info 2>/dev/null | grep -F -- "$2" >/dev/null; }
info_lacks() { cli "$1" --json info >"$WORK/info" 2>/dev/null && ! grep -qF -- "$2" "$WORK/info"; }
works() { cli "$1" ping >/dev/null 2>&1; }
serves() { kill -0 $SERVER 2>/dev/null || fail 'the server has ended'; }

# refused WHAT TEXT... -- COMMAND...: the command ends with status 1 (or REFUSED) and says each text.
refused() {
  local what=$1 texts=() status=0
  shift
  while [ "$1" != -- ]; do
    texts+=("$1")
    shift
  done
  shift
  timeout 30 "$@" >"$WORK/refused" 2>&1 || status=$?
  [ $status -eq "${REFUSED:-1}" ] || fail "$what: status $status: $(cat "$WORK/refused")"
  says "$WORK/refused" "${texts[@]}"
  ok "$what"
}

server=("$BIN/verbena-server" --memory=64MiB --workers=1)

start_server() {
  "${server[@]}" "$@" --port_file="$WORK/port" >"$LOG" 2>&1 &
  SERVER=$!
  until_true 30 'the server does not start' test -s "$WORK/port"
}

stop_server() {
  kill -TERM $SERVER
  wait $SERVER || fail "the server ended with status $?"
  SERVER=0
  rm "$WORK/port"
}

cannot_start() {
  refused 'an address without a device' "$RXE (rxe0)" "fd77::1 (rxe0)" "$SIW (siw0)" -- \
    "${server[@]}" --fabric=verbs --listen=127.0.0.1:0
  refused 'too little memory may be locked' 64KiB 'region 64MiB' 'message buffers' \
    'ulimit -l' 'memlock=-1' LimitMEMLOCK -- \
    setpriv --inh-caps=-ipc_lock --bounding-set=-ipc_lock \
    bash -c 'ulimit -l 64 && exec "$@"' - "${server[@]}" --fabric=verbs --listen="$RXE:0"
  # Enough for one device (about 125 MiB each), too little for both.
  refused 'too little memory may be locked for two devices' 195.31MiB 'for all its devices together' \
    'are locked for other devices already, 2' 'in all' 'ulimit -l' -- \
    setpriv --inh-caps=-ipc_lock --bounding-set=-ipc_lock \
    bash -c 'ulimit -l 200000 && exec "$@"' - "${server[@]}" --fabric=verbs --listen="0.0.0.0:0"
  local file=/dev/infiniband/uverbs0
  [ "$(<"/sys/class/infiniband_verbs/uverbs0/ibdev")" = rxe0 ] || file=/dev/infiniband/uverbs1
  chmod 600 $file
  refused 'no permission for the device' "$file" rxe0 root udev --device -- \
    setpriv --reuid=65534 --clear-groups "${server[@]}" --fabric=verbs --listen="$RXE:0"
  chmod 666 $file
  chmod 600 /dev/infiniband/rdma_cm
  refused 'no permission for the connection manager' /dev/infiniband/rdma_cm -- \
    setpriv --reuid=65534 --clear-groups "${server[@]}" --fabric=verbs --listen="$RXE:0"
  chmod 666 /dev/infiniband/rdma_cm

  start_server --fabric=auto --listen=127.0.0.1:0
  says "$LOG" SOFT 'no RDMA device has the address 127.0.0.1' "$RXE (rxe0)"
  stop_server
  ok 'auto says that it takes the software device, and why'
  start_server --fabric=auto --listen=127.0.0.1:0 --log_level=warn
  says "$LOG" SOFT 'no RDMA device has the address 127.0.0.1'
  # It has no use for the devices, so it does not hold them up.
  if find "/proc/$SERVER/fd" -lname '/dev/infiniband/uverbs*' | grep .; then
    fail 'a server on the software device has RDMA devices open'
  fi
  timeout 20 rdma link delete siw0 || fail 'a server on the software device holds siw0 up'
  rdma link add siw0 type siw netdev e0
  until_true 20 'siw0 does not become active' grep -q ACTIVE /sys/class/infiniband/siw0/ports/1/state
  stop_server
  ok 'auto says so at log level warn, and holds up no device'
}

# auto takes the software device only where no RDMA device leads to the address.
auto_without_permission() {
  local nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups) each
  local client=("$BIN/verbena-cli" --fabric=auto --server="$RXE:$PORT" --timeout=5s)
  for each in 0.0.0.0 "$RXE"; do
    chmod 600 /dev/infiniband/*
    refused "auto, a server on $each without permission" /dev/infiniband/ 'no permission' \
      --fabric=soft -- "${nobody[@]}" "${server[@]}" --fabric=auto --listen="$each:0"
    chmod 666 /dev/infiniband/*
  done
  # Serves both fabrics, so that a client could change to the software device.
  start_server --fabric=auto --listen="0.0.0.0:$PORT"
  for each in uverbs rdma_cm; do
    chmod 600 /dev/infiniband/$each*
    REFUSED=3 refused "auto, a client without permission for $each" "/dev/infiniband/$each" \
      'no permission' --fabric=soft -- "${nobody[@]}" "${client[@]}" put a b
    chmod 666 /dev/infiniband/$each*
  done
  mkdir "$WORK/uverbs"
  mv /dev/infiniband/uverbs* "$WORK/uverbs/"
  REFUSED=3 refused 'auto, a client without the files of devices' /dev/infiniband/uverbs \
    'does not exist' --fabric=soft -- "${client[@]}" put a b
  mv "$WORK/uverbs/"* /dev/infiniband/
  "${nobody[@]}" "${client[@]}" ping >"$WORK/ping" || fail 'auto, a user who may use the device cannot'
  says "$WORK/ping" 'fabric verbs'
  stop_server
}

# A device that libibverbs hides, since its provider is missing, is no reason either.
auto_without_provider() {
  local provider
  provider=$(echo /usr/lib/*/libibverbs/librxe-rdmav*.so)
  start_server --fabric=auto --listen="0.0.0.0:$PORT"
  mv "$provider" "$WORK/"
  REFUSED=3 refused 'auto, a client without the provider' 'no provider for rxe0' ibverbs-providers \
    --fabric=soft -- "$BIN/verbena-cli" --fabric=auto --server="$RXE:$PORT" --timeout=5s put a b
  stop_server
  refused 'auto, a server without the provider' 'no provider for rxe0' ibverbs-providers \
    --fabric=soft -- "${server[@]}" --fabric=auto --listen="$RXE:0"
  # The kernel knows of no device that has this one.
  start_server --fabric=auto --listen=127.0.0.1:0
  stop_server
  start_server --fabric=auto --listen=0.0.0.0:0
  says "$LOG" 'not listening on every RDMA device' 'no provider for rxe0' "$SIW"
  stop_server
  mv "$WORK/${provider##*/}" "$provider"
  ok 'auto, a wildcard without a provider: the others serve, and a warning tells'
}

client_without_permission() {
  start_server --fabric=verbs --listen="$RXE:$PORT"
  local nobody=(setpriv --reuid=65534 --clear-groups
    "$BIN/verbena-cli" --fabric=verbs --server="$RXE:$PORT" --timeout=5s ping)
  "${nobody[@]}" || fail 'a user who may use the device cannot'
  chmod 600 /dev/infiniband/uverbs*
  REFUSED=3 refused 'a client without permission for the device' /dev/infiniband/uverbs rxe0 \
    root -- "${nobody[@]}"
  chmod 666 /dev/infiniband/uverbs*
  chmod 600 /dev/infiniband/rdma_cm
  REFUSED=3 refused 'a client without permission for the connection manager' \
    /dev/infiniband/rdma_cm -- "${nobody[@]}"
  chmod 666 /dev/infiniband/rdma_cm
  stop_server
}

device_goes_at_the_start() {
  "${server[@]}" --fabric=verbs --listen="0.0.0.0:$PORT" --memory=128MiB \
    --port_file="$WORK/port" >"$LOG" 2>&1 &
  SERVER=$!
  # Taking the memory needs more time than the removal.
  opened() { [ -n "$(find "/proc/$SERVER/fd" -lname '/dev/infiniband/uverbs*')" ]; }
  until_true 30 'the server does not try its devices' opened
  timeout 30 rdma link delete rxe0 || fail 'the removal of rxe0 waits for a server that is starting'
  until_true 30 'the server does not start without rxe0' test -s "$WORK/port"
  info_has $SIW "\"missing\":[\"$RXE:$PORT\"" || fail 'info does not say what is missing'
  rdma link add rxe0 type rxe netdev d0
  until_true 30 'rxe0 is not used when it is back' works $RXE
  stop_server
  ok 'a device is removed while the server starts, and comes back'
}

listens_everywhere() {
  start_server --fabric=verbs --listen="[::]:$PORT" --log_level=debug \
    --tos=104 --ack_timeout=15 --retry_count=5 --rnr_timer=14
  says "$LOG" "address $RXE:$PORT" "address [fd77::1]:$PORT" "address $SIW:$PORT" \
    "GID ::ffff:$RXE (index" 'RoCE v2' '10 Gb/s' 'MTU 1024' \
    '--ack_timeout=15, --retry_count=5, --rnr_timer=14 on siw0: iWARP'
  local address
  for address in $RXE '[fd77::1]' $SIW '[fd78::1]'; do
    works "$address" || fail "no answer at $address"
  done
  says "$LOG" ': tos 104, ack_timeout 15, retry_count 5, rnr_timer 14, READs ' ': iWARP, TCP repeats'
  head -c 300000 /dev/urandom >"$WORK/large"
  for address in $RXE $SIW; do
    cli "$address" put large <"$WORK/large" || fail "a large value by $address"
    cli "$address" get large >"$WORK/got" || fail "a large value from $address"
    cmp "$WORK/large" "$WORK/got" || fail "a large value by $address is another"
  done
  info_has $SIW '"device":"rxe0"' || fail 'info does not name rxe0'
  ok 'a wildcard address listens on all devices, IPv4 and IPv6'
}

# traffic ADDRESS OTHER SECONDS: in the background, or until its server is gone; seen through OTHER.
traffic() {
  "$BIN/verbena-bench" load --fabric=verbs --server="$1:$PORT" --records=200 --value_size=100 \
    >"$WORK/load" 2>&1 || fail "load: $(cat "$WORK/load")"
  "$BIN/verbena-bench" run --fabric=verbs --server="$1:$PORT" --records=200 --value_size=100 \
    --workload=a --depth=4 --seconds="$3" >"$WORK/traffic" 2>&1 &
  TRAFFIC=$!
  until_true 20 'no traffic' info_has "$2" '"connections":2,'
}

# link ADDRESS OTHER NETDEV: the link of ADDRESS goes down and comes back, seen through OTHER.
link() {
  ip link set "$3" down
  until_true 20 'info does not say that the port is down' info_has "$2" '"port_state":"down"'
  ip link set "$3" up
  # A netdev that goes down loses its global IPv6 addresses.
  ip -6 addr add fd77::1/64 dev "$3" nodad
  until_true 20 'the port does not become active' info_lacks "$2" '"port_state":"down"'
}

link_goes_and_comes() {
  # (A message of the connection manager that rxe cannot send leaves it unable to connect until it
  # is made anew, whatever the program: so there without traffic.)
  link $RXE $SIW d0
  says "$LOG" 'device rxe0, port 1: port down' 'device rxe0, port 1: port active'
  until_true 30 'no new connections of rxe0 after the link is back' works $RXE

  # The connection ends with the link. Within one host another can be made without it.
  traffic $SIW $RXE 10
  ip link set e0 down
  wait $TRAFFIC || fail "no other connection is made: $(cat "$WORK/traffic")"
  grep -q 'connections lost' "$WORK/traffic" || fail "nothing is lost: $(cat "$WORK/traffic")"
  ip link set e0 up
  ip -6 addr add fd78::1/64 dev e0 nodad
  until_true 30 'no new connections of siw0 after the link is back' works $SIW
  until_true 30 'connections are left over' info_has $RXE '"connections":1,'
  serves
  ok 'a link goes and comes back'
}

# device DEVICE TYPE NETDEV ADDRESS OTHER: the device of ADDRESS is removed while clients work over
# it, and comes back; seen through OTHER.
device() {
  local name=$1 address=$4 other=$5 removals
  removals=$(grep -c "device $name is let go" "$LOG" || true)
  traffic "$address" "$other" 60
  local from=$SECONDS
  timeout 30 rdma link delete "$name" || fail "the removal of $name does not end"
  printf 'removed after %s s\n' $((SECONDS - from))
  serves
  if wait "$TRAFFIC"; then fail "traffic goes on without $name"; fi
  says "$LOG" "device $name is removed"
  let_go() { [ "$(grep -c "device $name is let go" "$LOG")" -gt "$removals" ]; }
  until_true 10 "$name is not let go" let_go
  works "$other" || fail "the other device does not serve any more than $name"
  info_has "$other" "\"missing\":[\"$address:$PORT\"" || fail 'info does not say what is missing'
  info_lacks "$other" "\"device\":\"$name\"" || fail "info still lists $name"
  info_lacks "$other" '"device_removed":0' || fail 'no connection has ended for this reason'
  ok "$name is removed under traffic"
  rdma link add "$name" type "$2" netdev "$3"
  until_true 30 "$name is not used again" works "$address"
  until_true 30 "$name is not listed again" info_has "$other" '"missing":[]'
  cli "$address" get large >"$WORK/got" || fail 'the data is gone'
  cmp "$WORK/large" "$WORK/got" || fail 'the data is another'
  ok "$name is used again when it is back"
}

all_devices_go() {
  timeout 30 rdma link delete rxe0 || fail 'the removal of rxe0 does not end'
  timeout 30 rdma link delete siw0 || fail 'the removal of siw0 does not end'
  until_true 10 'it is not said that nobody can connect' grep -q 'no device left' "$LOG"
  serves
  rdma link add siw0 type siw netdev e0
  until_true 30 'siw0 is not used again' works $SIW
  cli $SIW get large | cmp - "$WORK/large" || fail 'the data is gone'
  timeout 30 rdma link delete siw0 || fail 'the second removal of siw0 does not end'
  stop_server
  ok 'all devices are removed while nothing happens'
}

cannot_start
auto_without_permission
auto_without_provider
client_without_permission
device_goes_at_the_start
listens_everywhere
link_goes_and_comes
device rxe0 rxe d0 $RXE $SIW
device siw0 siw e0 $SIW $RXE
all_devices_go
