#!/usr/bin/env bash
# Runs in a guest, started by doctor_test.sh: makes the guest ill in one way after the other, and
# looks at what the doctor says. doctor_guest.sh BIN_DIR
# shellcheck disable=SC2016,SC2317 # the text of a remedy; functions are called through examine
set -euo pipefail
BIN=$1
RXE=192.168.77.1 SIW=192.168.78.1 MEMORY=64MiB
WORK=$(mktemp -d)
FAILED=0
CASE=''
# shellcheck source=tests/lab/keep_files.sh
source "$(dirname "${BASH_SOURCE[0]}")/keep_files.sh"
keep_files "$BIN" verbena-server verbena-cli

# examine CASE STATUS COMMAND...: runs the doctor (COMMAND ends with its flags); its checks are then
# in $WORK/checks, one a line.
examine() {
  local want=$2 status=0
  CASE=$1
  shift 2
  "$@" --json >"$WORK/json" 2>"$WORK/err" || status=$?
  sed 's/},{"id":/}\n{"id":/g' "$WORK/json" >"$WORK/checks"
  case " $want " in
    *" $status "*) printf 'ok    %s: status %d (at %d s)\n' "$CASE" $status $SECONDS ;;
    *) wrong "status $status, not $want" ;;
  esac
}
doctor() { "$BIN/verbena-cli" doctor --memory="$MEMORY" --timeout=20s "$@"; }
# Without the capability to exceed the limit of locked memory.
doctor_64KiB() {
  (
    ulimit -l 64
    exec setpriv --inh-caps=-ipc_lock --bounding-set=-ipc_lock \
      "$BIN/verbena-cli" doctor --memory="$MEMORY" --timeout=20s "$@"
  )
}

wrong() {
  printf 'FAIL  %s: %s\n' "$CASE" "$*"
  sed 's/^/        /' "$WORK/err" "$WORK/checks"
  FAILED=1
}

# says STATUS ID [SUBJECT [TEXT]]: there is a check like that, whose line contains TEXT.
says() {
  local start="\"id\":\"$2\"," line
  [ -z "${3-}" ] || start+="\"subject\":\"$3\","
  start+="\"status\":\"$1\""
  line=$(grep -F "$start" "$WORK/checks") || {
    wrong "no check $start"
    return
  }
  if [[ $line != *"${4-}"* ]]; then
    wrong "no \"$4\" in: $line"
    return
  fi
  printf 'ok    %s: %s %s\n' "$CASE" "$1" "$2 ${3-}"
}
# Like says, for checks without a subject.
says_of_all() { says "$1" "$2" '' "${3-}"; }

# serve ADDRESS: a server there, in the background; SERVER is its process.
serve() {
  rm -f "$WORK/port"
  "$BIN/verbena-server" --listen="$1:7400" --fabric=verbs --memory="$MEMORY" --workers=1 \
    --port_file="$WORK/port" 2>"$WORK/server" &
  SERVER=$!
  until [ -s "$WORK/port" ]; do
    if ! kill -0 $SERVER 2>/dev/null; then
      cat "$WORK/server"
      exit 1
    fi
    sleep 0.1
  done
}
stop() {
  kill -TERM $SERVER
  wait $SERVER || true
}

state() { cat "/sys/class/infiniband/$1/ports/1/state"; }
# wait_for_state DEVICE TEXT
wait_for_state() {
  local end=$((SECONDS + 20))
  until [[ $(state "$1") = *"$2"* ]]; do
    [ $SECONDS -lt $end ] || { wrong "$1 stays $(state "$1")" && return; }
    sleep 0.1
  done
}

examine 'good health' '0 1' doctor --fabric=verbs
if grep -qF '"status":"FAIL"' "$WORK/checks"; then wrong 'there is a failure'; fi
# What may be amiss in a guest: it has no huge pages, and devices have been used before.
if grep -F '"status":"WARN"' "$WORK/checks" | grep -vE '"id":"(huge_pages|counters)"'; then
  wrong 'a warning that nobody expects'
fi
says_of_all OK packages 'ibverbs-providers'
says_of_all OK modules 'rdma_ucm'
says OK device rxe0 'RoCE, software'
says OK device siw0 'iWARP, software'
says OK link rxe0/1 'interface d0'
says OK link siw0/1 'interface e0'
says OK gid rxe0/1 "$RXE"
says OK gid rxe0/1 'fd77::1'
says OK mtu rxe0/1 '"active_mtu_bytes":1024'
says OK mtu siw0/1 '"interface_mtu_bytes":1500'
says OK limits rxe0 '"max_srq"'
says OK limits siw0 '"max_qp_rd_atom"'
says_of_all OK memory_lock unlimited
says_of_all OK software_device vsoft0

for address in $RXE $SIW; do
  device=rxe0
  [ "$address" = $RXE ] || device=siw0
  serve "$address"
  # auto: the route leads over an RDMA device.
  examine "server on $address" '0 1' doctor --server="$address:7400"
  says_of_all OK server_route " over $device/1"
  says_of_all OK server_connect 'fabric verbs'
  says_of_all OK server_mtu '1024 bytes at both ends'
  says_of_all OK server_send '"median_us":'
  says_of_all OK server_read '2.0 READs each'
  says_of_all OK server_read '"min_us":'
  if [ $device = siw0 ]; then
    examine 'server, ulimit -l 64' 2 doctor_64KiB --server="$address:7400"
    says_of_all FAIL server_connect 'ulimit -l unlimited'
  fi
  stop
done
examine 'nobody listens' 2 doctor --server=$RXE:7400
says_of_all FAIL server_connect "verbena-server --listen=$RXE:7400"
examine 'an address without a device' 2 doctor --server=127.0.0.1:7400 --fabric=verbs --timeout=2s
says FAIL "server_$(grep -q server_connect "$WORK/checks" && echo connect || echo route)"

examine 'ulimit -l 64' 2 doctor_64KiB
says_of_all FAIL memory_lock '64KiB'
says_of_all FAIL memory_lock '`ulimit -l unlimited`'
says_of_all FAIL memory_lock '--ulimit memlock=-1'
says_of_all FAIL memory_lock 'LimitMEMLOCK=infinity'

# Two devices at the server: the route's counts, with the MTU that it has now.
serve 0.0.0.0
ip link set d0 mtu 4200
examine 'server, MTU set anew' '0 1' doctor --server=$RXE:7400
says_of_all OK server_mtu '4096 bytes at both ends'
examine 'server, the other device' '0 1' doctor --server=$SIW:7400
says_of_all OK server_mtu '1024 bytes at both ends'
stop
ip link set d0 mtu 1500

MEMORY=64GiB examine 'a region that no guest holds' 2 doctor
says_of_all FAIL memory '64GiB'
says_of_all WARN huge_pages 'see the check of memory'

ip link set d0 mtu 1000
ip link set e0 mtu 1000
examine 'small MTU' 1 doctor
says WARN mtu rxe0/1 '"active_mtu_bytes":512'
says WARN mtu rxe0/1 'ip link set d0 mtu'
says WARN mtu siw0/1 'ip link set e0 mtu 1500'
ip link set d0 mtu 4096
ip link set e0 mtu 1500
examine 'MTU 4096 leaves room for 2048' 1 doctor
says WARN mtu rxe0/1 '"active_mtu_bytes":2048'
ip link set d0 mtu 4200
examine 'MTU 4200' '0 1' doctor
says OK mtu rxe0/1 '"active_mtu_bytes":4096'
ip link set d0 mtu 1500

provider=$(echo /usr/lib/*/libibverbs/librxe-rdmav*.so)
mv "$provider" "$WORK/"
examine 'provider library missing' 2 doctor
says FAIL provider rxe0 'librxe-rdmav*.so'
says OK device siw0
mv "$WORK/${provider##*/}" "$provider"
mv /etc/libibverbs.d/siw.driver "$WORK/"
examine 'provider file missing' 2 doctor
says FAIL provider siw0 'there is no /etc/libibverbs.d/siw.driver'
says FAIL provider siw0 'apt-get install --reinstall ibverbs-providers'
says OK device rxe0
mv "$WORK/siw.driver" /etc/libibverbs.d/

mv /dev/infiniband/rdma_cm "$WORK/"
examine 'no rdma_cm file' 2 doctor
says FAIL device_files rxe0 '/dev/infiniband/rdma_cm is missing'
mv "$WORK/rdma_cm" /dev/infiniband/
mkdir "$WORK/uverbs"
mv /dev/infiniband/uverbs* "$WORK/uverbs/"
examine 'no uverbs files' 2 doctor
says FAIL device_files rxe0 '/dev/infiniband/uverbs'
says FAIL device_files siw0 'is missing'
if grep -F '"id":"provider"' "$WORK/checks"; then wrong 'the provider is blamed'; fi
mv "$WORK/uverbs/"* /dev/infiniband/
chmod 600 /dev/infiniband/*
# A user's capabilities, in root's clothes: only the permissions of others count.
examine 'no permission' 2 setpriv --reuid=65534 --regid=65534 --clear-groups \
  "$BIN/verbena-cli" doctor --memory="$MEMORY"
says FAIL device_files siw0 'no permission to open /dev/infiniband/uverbs'
chmod 666 /dev/infiniband/*

ip link set d0 down
wait_for_state rxe0 DOWN
examine 'no link on one port' 1 doctor
says WARN link rxe0/1 'ip link set d0 up'
says OK link siw0/1
ip link set e0 down
wait_for_state siw0 DOWN
examine 'no link at all' 2 doctor
says FAIL link rxe0/1 'DOWN, physically Disabled'
says FAIL link siw0/1 'ip link set e0 up'
ip link set d0 up
wait_for_state rxe0 ACTIVE
examine 'link up again' '0 1' doctor
says OK link rxe0/1
says OK gid rxe0/1 "$RXE"

ip address del $RXE/24 dev d0
ip -6 address flush dev d0 scope global
examine 'no address' 1 doctor
says WARN address rxe0/1 'ip address add ADDRESS/PREFIX dev d0'

rdma link delete rxe0
rdma link delete siw0
examine 'devices unplugged' 1 doctor
says_of_all WARN devices 'rdma link add rxe0 type rxe netdev'
examine 'devices unplugged, verbs wanted' 2 doctor --fabric=verbs
says_of_all FAIL devices 'no RDMA device'

exit $FAILED
