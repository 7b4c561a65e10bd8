# shellcheck shell=bash disable=SC2034
# Shared by demo.sh and test.sh: what Verbena needs from Debian, and how to get it. Source it.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# What it takes to build and run.
BUILD_PACKAGES=(
  g++ cmake ninja-build pkg-config ccache
  libibverbs-dev librdmacm-dev ibverbs-providers
  libabsl-dev libspdlog-dev libgflags-dev libxxhash-dev nlohmann-json3-dev
  libgtest-dev libgmock-dev libbenchmark-dev
)

say() { printf '==> %s\n' "$*"; }
die() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# install_packages PACKAGE...: installs those that are missing, as root or through sudo.
install_packages() {
  local missing=() package
  for package in "$@"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
      missing+=("$package")
  done
  if [ ${#missing[@]} -eq 0 ]; then
    say "packages: all $# installed"
    return
  fi
  say "packages: installing ${missing[*]}"
  as_root apt-get update -qq || die "apt-get update failed: is the machine's package source reachable?"
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >"$(log_file apt)" 2>&1 ||
    die "apt-get install failed, see $(log_file apt)"
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "needs root or sudo to run: $*"
  fi
}

log_file() {
  mkdir -p "$ROOT/build"
  printf '%s/build/%s.log' "$ROOT" "$1"
}

# needs_writable_tree PRESET: ends, and says why, where nothing can be built below ROOT/build. Before
# anything is installed for it.
needs_writable_tree() {
  local folder
  for folder in "$ROOT/build" "$ROOT/build/$1"; do
    if ! mkdir -p "$folder" 2>/dev/null || [ ! -w "$folder" ]; then
      die "cannot write to $folder, where the build goes (another user's, or a read-only file system?):" \
        "copy the source to a folder of yours, and run ${0##*/} there. Nothing has been installed."
    fi
  done
}

# follow LOG: writes standard input to LOG and shows how far ninja is ("[12/157] Building..."): in one
# line on a terminal, else each minute.
follow() {
  local line step shown=0 now
  while IFS= read -r line; do
    printf '%s\n' "$line"
    [[ $line =~ ^\[([0-9]+/[0-9]+)\] ]] || continue
    step=${BASH_REMATCH[1]} now=$SECONDS
    if [ -t 2 ]; then
      printf '\r    %s' "$step" >&2
    elif [ $((now - shown)) -ge 60 ]; then
      printf '    %s\n' "$step" >&2
      shown=$now
    fi
  done >"$1"
  [ ! -t 2 ] || printf '\r\033[K' >&2
}

# build PRESET TARGET...: configures and builds with all cores, behind what else runs here; shows how
# far it is, and what failed.
build() {
  local preset=$1 log
  shift
  log=$(log_file "build-$preset")
  say "building preset $preset (log: ${log#"$ROOT"/})"
  (
    cd "$ROOT"
    cmake --preset "$preset" -DCMAKE_CXX_COMPILER_LAUNCHER=ccache "${CMAKE_EXTRA[@]}" &&
      nice cmake --build --preset "$preset" --target "$@"
  ) 2>&1 | follow "$log" || {
    tail -n 60 "$log" >&2
    die "building preset $preset failed, see $log"
  }
}

# More options for cmake --preset.
CMAKE_EXTRA=()

# The same compilation is found in the cache from any folder that holds the source.
export CCACHE_BASEDIR=$ROOT CCACHE_NOHASHDIR=1
