#!/usr/bin/env bash
# deploy_test.sh SOURCE SERVER: what people use who set Verbena up.
#   1. The sample unit of systemd says nothing that systemd does not know, and starts the server with
#      flags that it has (systemd's part only where systemd-analyze is installed).
#   2. demo.sh in a tree that cannot be built in says so, and installs nothing.
set -euo pipefail
SOURCE=$1 SERVER=$2
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

fail() {
  printf 'deploy_test: %s\n' "$*" >&2
  exit 1
}

unit=$SOURCE/docs/verbena-server.service
command=$(sed -n 's/^ExecStart=//p' "$unit")
read -r program flags <<<"$command"
[ "${program##*/}" = verbena-server ] || fail "the unit starts $program"
grep -qx 'LimitMEMLOCK=infinity' "$unit" || fail 'the unit limits locked memory'
if grep -q '^PrivateDevices=yes' "$unit"; then fail 'the unit hides /dev/infiniband'; fi
if [ -n "$(command -v systemd-analyze)" ]; then
  sed "s|^ExecStart=$program|ExecStart=$SERVER|" "$unit" >"$WORK/verbena-server.service"
  said=$(systemd-analyze verify "$WORK/verbena-server.service" 2>&1 | grep -F "$WORK" || true)
  [ -z "$said" ] || fail "systemd-analyze verify: $said"
else
  printf 'no systemd-analyze here: the unit is not verified\n'
fi
# The server takes the unit's flags: with one more that is wrong, that one is named.
flags=${flags//\/etc\/verbena.flags/$WORK/verbena.flags}
printf '%s\n' '--listen=127.0.0.1:0' >"$WORK/verbena.flags"
status=0
# shellcheck disable=SC2086 # several flags
said=$("$SERVER" $flags --workers=0 2>&1) || status=$?
[ $status -eq 2 ] || fail "status $status of the unit's flags: $said"
[[ $said == *--workers=0* ]] || fail "the unit's flags are not taken: $said"

# A file where the folder of the build would be keeps root out, too.
mkdir "$WORK/tree"
cp -r "$SOURCE/scripts" "$WORK/tree/scripts"
: >"$WORK/tree/build"
status=0
said=$("$WORK/tree/scripts/demo.sh" 2>&1) || status=$?
[ $status -eq 1 ] || fail "status $status of demo.sh in a tree that cannot be written: $said"
[[ $said == *"cannot write to $WORK/tree/build"*'Nothing has been installed'* ]] ||
  fail "demo.sh in a tree that cannot be written says: $said"
[[ $said != *packages* ]] || fail "demo.sh looked for packages first: $said"
printf 'deploy_test: all is well\n'
