#!/usr/bin/env bash
# mtu_guest.sh BIN_DIR: runs in the client's guest of a pair, beside suite_guest.sh and with a server
# of tos_guest.sh at the other end: what the doctor says of two ends whose MTUs differ. It leaves the
# interface with the small MTU, and without IPv6, which needs a larger one.
set -euo pipefail
BIN=$1
SERVER=192.168.77.1:7398
WORK=$(mktemp -d)

# check_mtu STATUS TEXT
check_mtu() {
  # (Other checks may warn: a guest has no huge pages, and packets are lost.)
  "$BIN/verbena-cli" doctor --fabric=verbs --memory=0 --server=$SERVER --timeout=30s --json \
    >"$WORK/json" || [ $? -eq 1 ] || { cat "$WORK/json" && exit 1; }
  sed 's/},{"id":/}\n{"id":/g' "$WORK/json" >"$WORK/checks"
  if ! grep -F '"id":"server_mtu","status":"'"$1"'"' "$WORK/checks" | grep -F "$2"; then
    printf 'FAIL  no server_mtu %s "%s" in:\n' "$1" "$2"
    cat "$WORK/checks"
    exit 1
  fi
}

check_mtu OK '1024 bytes at both ends'
ip link set "$(basename /sys/bus/virtio/drivers/virtio_net/virtio*/net/*)" mtu 1000
check_mtu WARN '512 bytes here and 1024 at the server'
