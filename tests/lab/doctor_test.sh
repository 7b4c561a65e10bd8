#!/usr/bin/env bash
# doctor_test.sh BIN_DIR: verbena-cli doctor on kernel RDMA, in good health and in bad. Exit status
# 77: the lab cannot run here.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
exec "$HERE/lab.sh" run --timeout=240 "$HERE/doctor_guest.sh" "$1"
