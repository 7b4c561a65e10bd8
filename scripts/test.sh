#!/usr/bin/env bash
# Installs what Verbena's tests need, builds three ways and runs every test.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'USAGE'
Usage: scripts/test.sh [--full] [--label=NAME] [--preset=NAME]... [--jobs=N] [--help]

Installs the Debian packages that are missing (root, or a user with sudo), checks format and
headers, builds the presets release, asan-ubsan and tsan, and runs the tests of each; those with the
label lab run on kernel RDMA drivers in virtual machines (tests/lab/lab.sh --help). ctest's summary
comes last, with what was skipped and why. Safe to run twice; nothing outside the source tree but
Debian packages, ccache's cache and the lab's (~/.cache/verbena-lab) is changed.

  --full          the long proofs, the whole integration suite in virtual machines (else a part of
                  it), and the preset dev with clang
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
fi

cd "$ROOT"
packages=("${BUILD_PACKAGES[@]}" gcc spin clang-format shellcheck libc6-dbg redis-server memcached)
[ $FULL -eq 0 ] || packages+=(clang)
install_packages "${packages[@]}"

CMAKE_EXTRA=(-DVERBENA_WERROR=ON "-DVERBENA_FULL_TESTS=$FULL")
for preset in "${PRESETS[@]}"; do
  targets=(all)
  [ $CHECKS -eq 0 ] || [ "$preset" != release ] || targets+=(check-headers)
  if [ "$preset" = dev ] && [ $FULL -eq 1 ]; then
    CMAKE_EXTRA+=(-DCMAKE_CXX_COMPILER=clang++ -DCMAKE_C_COMPILER=clang)
  fi
  build "$preset" "${targets[@]}"
done

if [ $CHECKS -eq 1 ]; then
  say "checking format, scripts and the direction of includes"
  scripts/check_source.sh
fi

# One ctest run over all presets, so that one summary tells everything.
mkdir -p build/all
{
  for preset in "${PRESETS[@]}"; do printf 'subdirs("%s/build/%s")\n' "$ROOT" "$preset"; done
} >build/all/CTestTestfile.cmake
select=()
if [ -n "$LABEL" ]; then
  select=(-L "^$LABEL\$")
fi
# Once per machine and kernel: packages, the guest's kernel. What keeps the lab from running shows
# among the skipped tests.
if [[ $LABEL =~ ^(lab)?$ && " ${PRESETS[*]} " = *' release '* ]]; then
  tests/lab/lab.sh prepare || true
fi
say "running the tests (${LABEL:-all labels}; presets: ${PRESETS[*]})"
log=$(log_file ctest)
status=0
ctest --test-dir build/all --output-on-failure --no-tests=error -j "$JOBS" \
  "${select[@]}" 2>&1 | tee "$log" || status=1

# GoogleTest's skips inside programs that passed, with their reasons.
ctest_log=build/all/Testing/Temporary/LastTest.log
skipped=$(grep -c '^\[  SKIPPED \] .* (' "$ctest_log" || true)
if [ "$skipped" -gt 0 ]; then
  say "$skipped test cases were skipped:"
  grep -B 2 '^\[  SKIPPED \] .* (' "$ctest_log" | grep -v '^\[ RUN\|^--' | sort | uniq -c || true
else
  say "no test case was skipped"
fi
grep -h '^lab.sh: skipped: ' "$ctest_log" | sort | uniq -c || true
sed -n '/tests passed, .* tests failed out of/,$p' "$log"
exit $status
