#!/usr/bin/env bash
# Checks the Spin model of the storage engine's orders (storage.pml) and that it catches mutants.
set -euo pipefail

usage() {
  cat <<'USAGE'
Usage: run.sh [--full] [--only=NAME] [--keep=FOLDER] [--help]

Verifies each configuration of the model exhaustively, then runs each mutant (one rule of the design
broken) until a violation is found. Needs spin and a C compiler (CC, by default cc). Less than
a minute of one processor and 300 MiB.

  --full         larger configurations too (up to 26 million states): four minutes and 1.6 GiB
  --only=NAME    one configuration or mutant
  --keep=FOLDER  work there and keep what is made, e.g. to look at a trail:
                 cd FOLDER/NAME && ./pan -r

Exit status: 0 if all configurations hold and all mutants are caught, 1 if not or if something that
it needs is missing, 2 for a wrong option.
USAGE
}

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
FULL=0
ONLY=
KEEP=
for option in "$@"; do
  case $option in
    --full) FULL=1 ;;
    --only=?*) ONLY=${option#*=} ;;
    --keep=?*) KEEP=${option#*=} ;;
    --help | -h)
      usage
      exit 0
      ;;
    *)
      usage >&2
      printf '\nrun.sh: unknown option %s\n' "$option" >&2
      exit 2
      ;;
  esac
done

# name: macros. Those of both keys in one bucket and no split, moves, or chains, if nothing else is
# said; storage.pml has the defaults.
CONFIGS=(
  'items: -DOPS=3 -DMOVES'
  'items_same_fingerprint: -DOPS=3 -DMOVES -DSAME_FINGERPRINT'
  'items_single_words: -DOPS=2 -DMOVES -DSAME_FINGERPRINT -DSINGLE_WORDS'
  'blocks_of_other_classes: -DOPS=2 -DOVERLAYS=1 -DSAME_FINGERPRINT'
  'large_moves: -DOPS=2 -DLARGE_MOVES=1'
  'two_segments: -DNSEG=2 -DHASH2=0 -DAPART -DTWO_WRITERS -DOPS=2 -DMOVES'
  'two_splits: -DSPLITS=2 -DOPS=2 -DMOVES'
  'two_splits_same_fingerprint: -DSPLITS=2 -DOPS=2 -DSAME_FINGERPRINT'
  'two_splits_of_others: -DSPLITS=2 -DOPS=2 -DREAD_KEY=2'
  'chains: -DNS=1 -DNSP=0 -DNO=2 -DOPS=2 -DFOREIGN=1'
  'chains_split: -DNS=1 -DNSP=0 -DNO=2 -DOPS=2 -DSPLITS=1'
)
# Rules that are broken without harm (server.pml says why): these too have to hold.
CONFIGS+=(
  'harmless_answer: -DOPS=3 -DHARMLESS_ANSWER -DSAME_FINGERPRINT'
  'harmless_free: -DNB=2 -DNSEG=2 -DHASH2=0 -DAPART -DTWO_WRITERS -DOPS=2 -DSAME_FINGERPRINT -DHARMLESS_FREE'
  'harmless_no_zero: -DOPS=2 -DSINGLE_WORDS -DHARMLESS_NO_ZERO'
  'harmless_headers_late: -DOPS=2 -DSPLITS=1 -DMOVES -DMUTANT_NEW_HEADERS_LATE'
)
FULL_CONFIGS=(
  'full_items: -DOPS=4 -DMOVES'
  'full_items_same_fingerprint: -DOPS=4 -DMOVES -DSAME_FINGERPRINT'
  'full_items_single_words: -DOPS=3 -DMOVES -DSAME_FINGERPRINT -DSINGLE_WORDS'
  'full_blocks_of_other_classes: -DOPS=2 -DOVERLAYS=1 -DSAME_FINGERPRINT -DSINGLE_WORDS'
  'full_large_moves: -DOPS=3 -DLARGE_MOVES=1'
  'full_two_splits: -DSPLITS=2 -DOPS=3 -DMOVES'
  'full_two_splits_of_others: -DSPLITS=2 -DOPS=3 -DMOVES -DREAD_KEY=2'
  'full_two_writers_split: -DSPLITS=1 -DOPS=2 -DTWO_WRITERS -DHASH2=0'
  'full_chains: -DNS=1 -DNSP=0 -DNO=2 -DOPS=3 -DFOREIGN=1'
  'full_chains_split: -DNS=1 -DNSP=1 -DNO=2 -DOPS=3 -DSPLITS=1'
)
# The mutant's macro is MUTANT_ and the name.
MUTANTS=(
  'INSERT_CHECK_FIRST: -DOPS=3'
  'UPDATE_KILLS_LATE: -DOPS=3'
  'DELETE_SLOT_FIRST: -DOPS=3'
  'PLAIN_STORES: -DOPS=3'
  'INSERT_ANSWERED_EARLY: -DOPS=2'
  'IN_PLACE_ANSWERED_EARLY: -DOPS=2'
  'UPDATE_ANSWERED_EARLY: -DOPS=2'
  'DELETE_ANSWERED_EARLY: -DOPS=2'
  'SLOT_MOVES: -DOPS=2'
  'UPDATE_FREES_EARLY: -DNSEG=2 -DHASH2=0 -DAPART -DTWO_WRITERS -DOPS=2'
  'DELETE_FREES_EARLY: -DNSEG=2 -DHASH2=0 -DAPART -DTWO_WRITERS -DOPS=2'
  'MOVE_FREES_EARLY: -DNSEG=2 -DHASH2=0 -DAPART -DTWO_WRITERS -DOPS=2 -DMOVES'
  'MOVE_UNCHECKED: -DOPS=2 -DLARGE_MOVES=1'
  'REMOVE_BEFORE_HEADERS: -DOPS=2 -DSPLITS=1'
  'DIRECTORY_FIRST: -DOPS=2 -DSPLITS=1'
  'UNLOCK_BEFORE_HEADERS: -DOPS=2 -DSPLITS=1 -DONLY_READERS'
  'UNLOCK_BEFORE_REMOVE: -DNB=1 -DOPS=4 -DSPLITS=1 -DHASH2=0 -DSAME_FINGERPRINT -DREAD_KEY=2'
  'SPLIT_LOCKS_LATE: -DOPS=2 -DSPLITS=1 -DONLY_READERS'
  'NEW_SEGMENT_UNLOCKED: -DOPS=2 -DSPLITS=1 -DONLY_READERS'
  'NEW_HEADERS_LATE: -DNS=1 -DNSP=0 -DNO=2 -DOPS=2 -DSPLITS=1 -DONLY_READERS'
  'VERSIONS_NOT_HANDED_ON: -DNB=1 -DOPS=3 -DSPLITS=1'
  'SERVER_GET_UNLOCKED: -DOPS=2 -DSINGLE_WORDS -DONLY_READERS'
  'UNLINK_MIDDLE: -DNS=1 -DNSP=0 -DNO=2 -DOPS=3'
  'NO_HEADER_AGAIN: -DOPS=2 -DSPLITS=1'
  'PARALLEL_HEADER: -DOPS=2 -DSPLITS=1'
  'ZERO_IS_ABSENT: -DOPS=2'
  'OTHER_KEY_IS_ABSENT: -DOPS=4 -DSAME_FINGERPRINT'
  'CHECK_WITHOUT_KEY: -DOPS=4 -DSAME_FINGERPRINT'
  'CHECK_WITHOUT_VERSION: -DOPS=3'
  'CHECK_WITHOUT_OFFSET: -DOPS=3 -DOVERLAYS=1'
)

die() {
  printf 'run.sh: %s\n' "$*" >&2
  exit 1
}
command -v spin >/dev/null || die "spin not found: install Debian's package spin"
CC=${CC:-cc}
command -v "$CC" >/dev/null || die "the C compiler $CC not found: install Debian's package gcc, or set CC"

if [ -n "$KEEP" ]; then
  mkdir -p "$KEEP"
  WORK=$(cd "$KEEP" && pwd)
else
  WORK=$(mktemp -d)
  trap 'rm -rf "$WORK"' EXIT
fi

# explore NAME MEGABYTES HASH_BITS COMPILER_FLAG MACRO...: leaves pan's report in NAME/report. COLLAPSE
# keeps whole states, only smaller: unlike BITSTATE or hash compaction it misses none.
explore() {
  local name=$1 megabytes=$2 bits=$3 optimize=$4
  shift 4
  mkdir -p "$WORK/$name"
  (
    cd "$WORK/$name"
    rm -f ./*.trail
    spin "$@" -a "$HERE/storage.pml" >spin.log 2>&1
    "$CC" "$optimize" -w -DSAFETY -DCOLLAPSE -DMEMLIM="$megabytes" -o pan pan.c >cc.log 2>&1
    ./pan -m200000 -w"$bits" >report 2>&1
  ) || {
    tail -n 20 "$WORK/$name"/{spin.log,cc.log,report} >&2 || true
    die "$name: spin, the compiler or the verifier failed"
  }
}

# field NAME SED_PATTERN: of a report.
field() { sed -nE "s/$2/\\1/p" "$WORK/$1/report" | sed -n 1p; }

describe() {
  local time
  time=$(field "$1" '.*elapsed time ([0-9.]+) seconds.*')
  printf '%9s states  %6s s  %5.0f MiB' "$(field "$1" '^ *([0-9.e+]+) states, stored.*')" \
    "${time:-0}" "$(field "$1" '^ *([0-9.]+)[[:space:]]+total actual memory usage.*')"
}

# The whole state space, no error in it, and nothing left out: no depth or memory that ran out (the
# verifier goes on after the one and ends without an error after the other), no lossy search.
holds() {
  local report=$WORK/$1/report
  grep -q 'errors: 0$' "$report" && grep -q '^Full statespace search' "$report" &&
    grep -q 'states, stored' "$report" && ! grep -q 'Search not completed' "$report" &&
    ! grep -E '^(error|pan):' "$report" | grep -vE '^pan: (elapsed time|rate) ' >/dev/null
}

# meaning ASSERTION: what it says that a mutant did.
meaning() {
  case $1 in
    *absent_state*) printf 'a key that was there all the time is absent' ;;
    *floor*) printf 'an older state after a newer one' ;;
    *begun*) printf 'a state before its time' ;;
    *seen_version*) printf 'an item that never was' ;;
    *'chk['*) printf 'an item at rest does not verify' ;;
    *) printf '%s' "$1" ;;
  esac
}

wanted() { [ -z "$ONLY" ] || [ "$ONLY" = "$1" ]; }

runs=0
failed=()
# verify MEGABYTES HASH_BITS COMPILER_FLAG CONFIG...
verify() {
  local megabytes=$1 bits=$2 optimize=$3 config name
  local -a macros
  shift 3
  for config in "$@"; do
    name=${config%%:*}
    wanted "$name" || continue
    read -ra macros <<<"${config#*: }"
    explore "$name" "$megabytes" "$bits" "$optimize" "${macros[@]}"
    runs=$((runs + 1))
    if holds "$name"; then
      printf 'holds   %-30s %s\n' "$name" "$(describe "$name")"
    else
      failed+=("$name does not hold, or its search was not complete")
      printf 'FAILED  %-30s %s\n' "$name" "$(describe "$name")"
      cat "$WORK/$name/report"
      [ ! -e "$WORK/$name/storage.pml.trail" ] || (cd "$WORK/$name" && ./pan -r | tail -n 200)
    fi
  done
}

caught=0
catch_mutants() {
  local mutant name why
  local -a macros
  for mutant in "${MUTANTS[@]}"; do
    name=${mutant%%:*}
    wanted "$name" || continue
    read -ra macros <<<"${mutant#*: }"
    explore "$name" 1900 21 -O0 "-DMUTANT_$name" "${macros[@]}"
    runs=$((runs + 1))
    why=$(field "$name" '^pan:1: (assertion violated .*) \(at depth.*')
    if [ -n "$why" ] && [ -e "$WORK/$name/storage.pml.trail" ]; then
      caught=$((caught + 1))
      printf 'caught  %-30s %s: %s\n' "$name" "$(describe "$name")" \
        "$(meaning "$why")"
    else
      failed+=("mutant $name was not caught")
      printf 'MISSED  %-30s %s\n' "$name" "$(describe "$name")"
      cat "$WORK/$name/report"
    fi
  done
}

printf 'Configurations of the model, each searched exhaustively:\n'
verify 1900 22 -O0 "${CONFIGS[@]}"
[ $FULL -eq 0 ] || verify 6000 26 -O2 "${FULL_CONFIGS[@]}"
printf 'Mutants, each searched until a violation is found:\n'
catch_mutants
[ $runs -gt 0 ] || die "--only=$ONLY: no such configuration or mutant"
if [ ${#failed[@]} -gt 0 ]; then
  printf 'run.sh: %s\n' "${failed[@]}" >&2
  exit 1
fi
times >"$WORK/times" # not in a pipe: it is this shell's children that count
printf '%d runs passed; %d mutants caught. Processor time (user, system): %s\n' "$runs" "$caught" \
  "$(tail -n 1 "$WORK/times")"
