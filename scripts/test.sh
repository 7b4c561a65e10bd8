#!/usr/bin/env bash
# Installs what Verbena's tests need, builds three ways and runs every test.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'USAGE'
Usage: scripts/test.sh [--full] [--label=NAME] [--preset=NAME]... [--jobs=N] [--help]

Installs the Debian packages that are missing (root, or a user with sudo), checks format and
headers, builds the presets release, asan-ubsan and tsan, and runs the tests of each. Those with the
label lab run on kernel RDMA drivers in virtual machines (tests/lab/lab.sh --help): they start once
the preset release is built, and the other presets are built beside them. ctest's summaries come
last, with what was skipped and why. Safe to run twice; nothing outside the source tree but Debian
packages, ccache's cache and the lab's (~/.cache/verbena-lab) is changed.

  --full          the long proofs, the whole integration suite in virtual machines (else a part of
                  it), and the preset dev with clang and 20 s of each fuzzer
  --label=NAME    only tests of one kind: unit, integration, conformance, lab, model, fuzz
  --preset=NAME   only this preset (may be repeated); skips the checks of format and headers
  --jobs=N        tests run side by side (default: the number of processors)

Exit status: 0 if everything passed, 1 if something failed, 2 for a wrong option.
USAGE
}

FULL=0
LABEL=
PRESETS=()
JOBS=$(nproc)
for option in "$@"; do
  case $option in
    --full) FULL=1 ;;
    --label=*) LABEL=${option#*=} ;;
    --preset=*) PRESETS+=("${option#*=}") ;;
    --jobs=*) JOBS=${option#*=} ;;
    --help | -h)
      usage
      exit 0
      ;;
    *)
      usage >&2
      printf '\ntest.sh: unknown option %s\n' "$option" >&2
      exit 2
      ;;
  esac
done
case $LABEL in
  '' | unit | integration | conformance | lab | model | fuzz) ;;
  *)
    printf 'test.sh: no label "%s": choose unit, integration, conformance, lab, model or fuzz\n' \
      "$LABEL" >&2
    exit 2
    ;;
esac
case $JOBS in
  '' | *[!0-9]* | 0)
    printf 'test.sh: --jobs=%s is not a number of 1 or more\n' "$JOBS" >&2
    exit 2
    ;;
esac
for preset in "${PRESETS[@]}"; do
  case $preset in
    dev | release | asan-ubsan | tsan) ;;
    *)
      printf 'test.sh: no preset "%s": choose dev, release, asan-ubsan or tsan\n' "$preset" >&2
      exit 2
      ;;
  esac
done
CHECKS=0
if [ ${#PRESETS[@]} -eq 0 ]; then
  CHECKS=1
  PRESETS=(release asan-ubsan tsan)
  [ $FULL -eq 0 ] || PRESETS+=(dev)
  # The other presets have no such test: an emulated processor is too slow for them.
  [ "$LABEL" != lab ] || PRESETS=(release)
fi

cd "$ROOT"
packages=("${BUILD_PACKAGES[@]}" gcc spin clang-format shellcheck libc6-dbg redis-server memcached)
[ $FULL -eq 0 ] || packages+=(clang)
install_packages "${packages[@]}"
# A browser of some 300 MB, for one test, which says that it was skipped where there is none.
(install_packages chromium netpbm) || say 'no chromium: report_page_test will be skipped'

# run_ctest NAME PRESETS OPTION...: the tests of these presets (words in one argument) that the options
# select, in one run, so that one summary tells everything; on the terminal and in build/ctest-NAME.log.
run_ctest() {
  local folder=build/ctest-$1 log preset
  log=$(log_file "ctest-$1")
  mkdir -p "$folder"
  for preset in $2; do printf 'subdirs("%s/build/%s")\n' "$ROOT" "$preset"; done \
    >"$folder/CTestTestfile.cmake"
  shift 2
  ctest --test-dir "$folder" --output-on-failure --no-tests=error "$@" 2>&1 | tee "$log"
}

# The lab's tests run side by side with each other only, each in machines of one emulated processor:
# those are slow, and their deadlines want a processor for each. Compilers may work beside them, with
# a lower priority, but no other tests.
LAB=0
LAB_PID=
[[ ! $LABEL =~ ^(lab)?$ || " ${PRESETS[*]} " != *' release '* ]] || LAB=1
start_lab() {
  say "the tests with the label lab start (log: build/ctest-lab.log)"
  set -m # with a process group of its own, so that they can be ended with all that they started
  run_ctest lab release -j "$JOBS" -L '^lab$' >/dev/null 2>&1 </dev/null &
  LAB_PID=$!
  set +m
}
# shellcheck disable=SC2317 # called by trap
end_lab() { [ -z "$LAB_PID" ] || kill -TERM -- "-$LAB_PID" 2>/dev/null || true; }
trap end_lab EXIT

# Once per machine and kernel: packages, the guest's kernel. What keeps the lab from running shows
# among the skipped tests.
[ $LAB -eq 0 ] || tests/lab/lab.sh prepare &

CMAKE_EXTRA=(-DVERBENA_WERROR=ON -DVERBENA_UNITY_TESTS=ON "-DVERBENA_FULL_TESTS=$FULL")
for preset in "${PRESETS[@]}"; do
  targets=(all)
  [ $CHECKS -eq 0 ] || [ "$preset" != release ] || targets+=(check-headers)
  if [ "$preset" = dev ] && [ $FULL -eq 1 ]; then
    CMAKE_EXTRA+=(-DCMAKE_CXX_COMPILER=clang++ -DCMAKE_C_COMPILER=clang -DVERBENA_UNITY_TESTS=OFF
      -DVERBENA_FUZZ=ON)
  fi
  build "$preset" "${targets[@]}"
  [ $LAB -eq 0 ] || [ "$preset" != release ] || start_lab
done

if [ $CHECKS -eq 1 ]; then
  say "checking format, scripts and the direction of includes"
  scripts/check_source.sh
fi

status=0
runs=()
if [ $LAB -eq 1 ]; then
  say "waiting for the tests with the label lab"
  wait "$LAB_PID" || status=1
  LAB_PID=
  cat build/ctest-lab.log
  runs+=(lab)
fi
if [ "$LABEL" != lab ] || [ $LAB -eq 0 ]; then
  select=(-LE '^lab$')
  [ -z "$LABEL" ] || select=(-L "^$LABEL\$")
  say "running the tests (${LABEL:-all labels}; presets: ${PRESETS[*]})"
  run_ctest all "${PRESETS[*]}" -j "$JOBS" "${select[@]}" || status=1
  runs+=(all)
fi

# GoogleTest's skips inside programs that passed, with their reasons.
tests=("${runs[@]/#/build/ctest-}")
tests=("${tests[@]/%//Testing/Temporary/LastTest.log}")
skipped=$(cat "${tests[@]}" | grep -c '^\[  SKIPPED \] .* (' || true)
if [ "$skipped" -gt 0 ]; then
  say "$skipped test cases were skipped:"
  cat "${tests[@]}" | grep -B 2 '^\[  SKIPPED \] .* (' | grep -v '^\[ RUN\|^--' | sort | uniq -c || true
else
  say "no test case was skipped"
fi
grep -hE '^(lab.sh|report_page_test): skipped: ' "${tests[@]}" | sort | uniq -c || true
# What failed inside the programs: the lab's outputs are long, and others may show only the last lines.
if [ $status -ne 0 ]; then
  say "what failed inside the test programs:"
  { grep -hE -A 6 ': Failure$|ERROR: .*Sanitizer|WARNING: ThreadSanitizer' "${tests[@]}" | head -n 80; } || true
  grep -hE '^\[  FAILED  \] .*[^:]$| s  status [1-9]' "${tests[@]}" | sort -u || true
fi
for run in "${runs[@]}"; do
  sed -n '/tests passed, .* tests failed out of/,$p' "build/ctest-$run.log"
done
exit $status
