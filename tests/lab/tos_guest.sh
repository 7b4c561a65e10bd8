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

# look SERVER FLAG...: does the work while the packets of RoCE v2 are written to a file, as soon as they
# are seen.
look() {
  tcpdump -i "$NETDEV" -n -U --immediate-mode -Z root -w "$WORK/packets" 'udp port 4791' \
    2>"$WORK/tcpdump" &
  TCPDUMP=$!
  until_true 20 'tcpdump does not start' grep -q 'listening on' "$WORK/tcpdump"
  work "$@"
}
stop_looking() {
  kill -INT $TCPDUMP
  wait $TCPDUMP || fail "tcpdump: $(cat "$WORK/tcpdump")"
}

# both_have FILTER LINE WORD: such packets were sent to two queue pairs. A packet's is in bytes 5 to 7
# of its base transport header; in a dump that is the second byte of that word of that line, and the
# next word.
both_have() {
  local queue_pairs
  queue_pairs=$(tcpdump -n -x -r "$WORK/packets" "$1" 2>/dev/null |
    awk -v line="$2" -v word="$3" '$1 == line { print substr($word, 3) $(word + 1) }' | sort -u)
  [ "$(wc -w <<<"$queue_pairs")" -ge 2 ]
}

# carry WHAT FROM TOS: both connections of `work` have this type of service in that direction. (One
# whose end has been lost goes on for a while beside them, with its own; so not all packets count.)
# Packets of reliable connections have an opcode (the first byte after the UDP header) below 0x20;
# the connection manager's have 0x64.
carry() {
  local wrong="$1: not both connections have packets from $2 with type of service $3"
  case $2 in
    *:*) # the traffic class lies across the first two bytes
      until_true 10 "$wrong" both_have \
        "src host $2 and ip6[48] < 0x20 and ip6[0:2] & 0x0ff0 = $(($3 << 4))" 0x0030: 4
      ;;
    *)
      until_true 10 "$wrong" both_have "src host $2 and udp[8] < 0x20 and ip[1] = $3" 0x0020: 2
      ;;
  esac
  printf 'ok    %s: type of service %d in packets from %s\n' "$1" "$3" "$2"
}

NETDEV=$(basename /sys/bus/virtio/drivers/virtio_net/virtio*/net/*)
head -c 50000 /dev/urandom >"$WORK/value"
until_true 60 'the servers do not start' cli $SERVER4:$WITH ping >"$WORK/ping" 2>&1
until_true 60 'the servers do not start' cli $SERVER4:$WITHOUT ping >"$WORK/ping" 2>&1

look $SERVER4:$WITH --tos=72
carry 'each side its own' $CLIENT4 72
carry 'each side its own' $SERVER4 104
stop_looking
look "[$SERVER6]:$WITH"
carry 'the server alone, IPv6' $CLIENT6 0
carry 'the server alone, IPv6' $SERVER6 104
stop_looking
look $SERVER4:$WITHOUT --tos=72
carry 'the client alone' $CLIENT4 72
carry 'the client alone' $SERVER4 72
stop_looking
