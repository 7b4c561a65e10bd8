#!/usr/bin/env bash
# faults_test.sh BIN_DIR: devices that cannot be used, go, and come back while verbena-server serves.
# Exit status 77: the lab cannot run here.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
exec "$HERE/lab.sh" run --timeout=240 "$HERE/faults_guest.sh" "$1"
