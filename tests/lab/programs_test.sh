#!/usr/bin/env bash
# programs_test.sh FABRIC BIN_DIR: Verbena's programs on kernel RDMA. FABRIC is rxe, siw, or lossy
# (rxe between two guests with loss and delay). Exit status 77: the lab cannot run here.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
FABRIC=$1 BIN=$2
guest=$HERE/programs_guest.sh
case $FABRIC in
  rxe) exec "$HERE/lab.sh" run --timeout=240 "$guest" both "$BIN" 192.168.77.1 ;;
  siw) exec "$HERE/lab.sh" run --timeout=240 "$guest" both "$BIN" 192.168.78.1 ;;
  lossy)
    exec "$HERE/lab.sh" pair --timeout=240 --loss=2% --delay=3ms \
      "$guest" server "$BIN" 192.168.77.1 -- "$guest" client "$BIN" 192.168.77.1
    ;;
  *)
    printf 'programs_test.sh: no fabric "%s": rxe, siw or lossy\n' "$FABRIC" >&2
    exit 2
    ;;
esac
