# shellcheck shell=bash
# Waiting in guests for what has no event. Source it; the caller defines fail.

# until_true SECONDS WHAT COMMAND...: repeats the command until it succeeds.
until_true() {
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    [ $SECONDS -lt $end ] || fail "$what"
    sleep 0.2
  done
}
