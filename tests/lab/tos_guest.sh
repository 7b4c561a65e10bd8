#!/usr/bin/env bash
# Runs in two guests beside suite_guest.sh: the type of service that packets really carry.
#   tos_guest.sh serve BIN_DIR   two servers, with and without --tos, until SIGTERM
#   tos_guest.sh look BIN_DIR    from the other guest: captures packets while it works with them
set -euo pipefail
ROLE=$1 BIN=$2
SERVER4=192.168.77.1 SERVER6=fd77::1 CLIENT4=192.168.77.2 CLIENT6=fd77::2
WITH=7397 WITHOUT=7398 # ports
WORK=$(mktemp -d)

if [ "$ROLE" = serve ]; then
  server=("$BIN/verbena-server" --fabric=verbs --memory=64MiB --workers=1 --log_level=debug)
  "${server[@]}" --listen="[::]:$WITH" --tos=104 &
  exec "${server[@]}" --listen="[::]:$WITHOUT"
fi

fail() {
  printf 'FAIL  %s\n' "$*"
  exit 1
}
# shellcheck source=tests/lab/until_true.sh
source "$(dirname "${BASH_SOURCE[0]}")/until_true.sh"

# A lost packet of the connection manager costs it 4 s.
cli() {
  local at=$1
  shift
  "$BIN/verbena-cli" --fabric=verbs --server="$at" --timeout=30s "$@"
}

# work SERVER FLAG...: with values that the server READs from the client, and the client from it.
work() {
  cli "$@" put tos <"$WORK/value" || fail "put at $1"
  cli "$@" get tos | cmp - "$WORK/value" || fail "get at $1"
}

# capture COMMAND...: runs it while the packets of RoCE v2 are written to a file.
capture() {
  tcpdump -i "$NETDEV" -n -U -Z root -w "$WORK/packets" 'udp port 4791' 2>"$WORK/tcpdump" &
  local tcpdump=$!
  until_true 20 'tcpdump does not start' grep -q 'listening on' "$WORK/tcpdump"
  "$@"
  kill -INT $tcpdump
  wait $tcpdump || fail "tcpdump: $(cat "$WORK/tcpdump")"
}

# count FILTER: captured packets. Those of reliable connections have an opcode (the first byte after
# the UDP header) below 0x20; the connection manager's have 0x64.
count() { tcpdump -n -r "$WORK/packets" "$1" 2>/dev/null | wc -l; }

# carry WHAT FROM TOS: all packets of connections from that address have this type of service.
carry() {
  local what=$1 all these
  case $2 in
    *:*) # the traffic class lies across the first two bytes
      all=$(count "src host $2 and ip6[48] < 0x20")
      these=$(count "src host $2 and ip6[48] < 0x20 and ip6[0:2] & 0x0ff0 = $(($3 << 4))")
      ;;
    *)
      all=$(count "src host $2 and udp[8] < 0x20")
      these=$(count "src host $2 and udp[8] < 0x20 and ip[1] = $3")
      ;;
  esac
  if [ "$all" -lt 10 ] || [ "$all" -ne "$these" ]; then
    fail "$what: $these of $all packets from $2 have type of service $3"
  fi
  printf 'ok    %s: type of service %d in %d packets from %s\n' "$what" "$3" "$all" "$2"
}

NETDEV=$(basename /sys/bus/virtio/drivers/virtio_net/virtio*/net/*)
head -c 50000 /dev/urandom >"$WORK/value"
until_true 60 'the servers do not start' cli $SERVER4:$WITH ping >"$WORK/ping" 2>&1
until_true 60 'the servers do not start' cli $SERVER4:$WITHOUT ping >"$WORK/ping" 2>&1

capture work $SERVER4:$WITH --tos=72
carry 'each side its own' $CLIENT4 72
carry 'each side its own' $SERVER4 104
capture work "[$SERVER6]:$WITH"
carry 'the server alone, IPv6' $CLIENT6 0
carry 'the server alone, IPv6' $SERVER6 104
capture work $SERVER4:$WITHOUT --tos=72
carry 'the client alone' $CLIENT4 72
carry 'the client alone' $SERVER4 72
