#!/usr/bin/env bash
# suite_test.sh BIN_DIR subset|full FABRIC...: the integration tests on kernel RDMA. FABRIC is rxe,
# siw (both in one guest), or lossy (rxe between two guests with loss and delay, alone). Exit status
# 77: the lab cannot run here.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
BIN=$1 SIZE=$2
shift 2
guest=$HERE/suite_guest.sh
timeout=900
[ "$SIZE" = subset ] || timeout=5000
if [ "$*" = lossy ]; then
  exec "$HERE/lab.sh" pair --timeout=$timeout --loss=2% --delay=3ms \
    "$guest" agent "$BIN" -- "$guest" tests "$BIN" "$SIZE" lossy
fi
exec "$HERE/lab.sh" run --timeout=$timeout "$guest" tests "$BIN" "$SIZE" "$@"
