#!/usr/bin/env bash
# Installs a build and uses what was installed as another project would.
set -euo pipefail

usage() {
  cat <<'USAGE'
Usage: install_test.sh --source=DIR --build=DIR --work=DIR --cmake=PATH --generator=NAME --cc=PATH
                       --cxx=PATH --launcher=PATH --nm=PATH --readelf=PATH --soname=NAME
                       --version=X.Y.Z

Installs the build (which must be complete) below the work folder, whose old content is removed, and
there
  1. looks at what was installed, at the links of the documents, and at the symbols of
     libverbena.so;
  2. builds a CMake project that takes both forms by find_package, in C++ and C, and each header
     alone;
  3. sees what a version, a component or a language that does not fit is told, and builds a CMake
     project in C alone;
  4. builds the installed examples as their CMakeLists.txt says;
  5. compiles programs with what pkg-config tells, with the shared library where it finds nothing
     but absl;
  6. configures a project that adds the source tree, and sees which targets it gets;
  7. moves the installed tree and builds against it once more;
  8. runs the programs against the installed verbena-server, one of which unloads the library.

Exit status: 0 if all went well, 1 if not, 2 for a wrong option.
USAGE
}

fail() {
  printf 'install_test: %s\n' "$*" >&2
  exit 1
}
step() { printf '[%3d s] %s\n' "$SECONDS" "$*"; }

declare -A option=()
for argument in "$@"; do
  case $argument in
    --help)
      usage
      exit 0
      ;;
    --*=*)
      name=${argument%%=*}
      option[${name#--}]=${argument#*=}
      ;;
    *)
      usage >&2
      exit 2
      ;;
  esac
done
for name in source build work cmake generator cc cxx nm readelf soname version; do
  [ -n "${option[$name]:-}" ] || {
    usage >&2
    printf '\ninstall_test.sh: --%s is missing\n' "$name" >&2
    exit 2
  }
done
work=${option[work]}
prefix=$work/prefix
cmake=${option[cmake]}
rm -rf "$work"
mkdir -p "$work"

# quietly LOG COMMAND...: shows the output only if the command fails.
quietly() {
  local log=$work/$1.log
  shift
  "$@" >"$log" 2>&1 || {
    cat "$log" >&2
    fail "failed: $*"
  }
}

# configure NAME SOURCE OPTION...: with the compilers of the build.
configure() {
  local name=$1 source=$2
  shift 2
  quietly "$name-configure" "$cmake" -G "${option[generator]}" -S "$source" -B "$work/$name" \
    -DCMAKE_BUILD_TYPE=Release "-DCMAKE_C_COMPILER=${option[cc]}" \
    "-DCMAKE_CXX_COMPILER=${option[cxx]}" "-DCMAKE_C_COMPILER_LAUNCHER=${option[launcher]:-}" \
    "-DCMAKE_CXX_COMPILER_LAUNCHER=${option[launcher]:-}" "$@"
}
compile() { quietly "$1-build" "$cmake" --build "$work/$1"; }

# What there is to be found, wherever the system puts libraries.
check_files() {
  local file
  for file in include/verbena/{connection,verbena,version,options}.h \
    bin/verbena-{server,cli} share/doc/verbena/README.md share/doc/verbena/docs/client.md \
    share/doc/verbena/docs/verbena-server.service \
    share/doc/verbena/client/examples/{hello.cc,hello.c,CMakeLists.txt}; do
    [ -f "$prefix/$file" ] || fail "not installed: $file"
  done
  library=$(find "$prefix" -name libverbena.so -printf '%h\n')
  [ -n "$library" ] || fail "not installed: libverbena.so"
  for file in libverbena.a "libverbena.so.${option[version]}" "${option[soname]}" \
    pkgconfig/verbena{,-static}.pc \
    cmake/verbena/verbena-{config,config-version,static-targets,shared-targets}.cmake; do
    [ -f "$library/$file" ] || fail "not installed: $file in $library"
  done
  if find "$prefix" -name '*.h' -not -path "$prefix/include/verbena/*" | grep .; then
    fail "headers above are installed besides the public ones"
  fi
  if grep -rnE '#include [<"](common|client|server|spdlog|infiniband|rdma|xxhash)' "$prefix/include"; then
    fail "public headers include what is above"
  fi
  # Nothing that was installed may depend on where it was built.
  if grep -rlF -e "${option[build]}" -e "${option[source]}" "$prefix/include" "$library/cmake" \
    "$library/pkgconfig"; then
    fail "the files above name the build's or the source's folder"
  fi
}

# The document without its blocks of code.
without_code() { awk '/^\x60\x60\x60/ { code = !code; next } !code'; }

# Each relative link of the installed documents leads to something that was installed.
check_links() {
  local folder=$prefix/share/doc/verbena document link links=0
  while IFS= read -r -d '' document; do
    while IFS= read -r link; do
      case $link in
        *://* | mailto:* | '#'*) continue ;;
      esac
      links=$((links + 1))
      [ -e "$(dirname "$document")/${link%%#*}" ] ||
        fail "${document#"$prefix/"} has a link to $link, which is not installed"
    done < <(without_code <"$document" | tr '\n' ' ' | grep -oE '\]\([^()]+\)' | sed -E 's/^\]\(//; s/\)$//' || true)
  done < <(find "$folder" -name '*.md' -print0)
  [ "$links" -gt 0 ] || fail "no links in the documents below $folder"
}

# The shared library offers the C API and the exported classes, under its version, and nothing else.
check_symbols() {
  local so=$library/libverbena.so exported inner
  "${option[readelf]}" -d "$so" | grep 'FLAGS_1.*NODELETE' >/dev/null ||
    fail "libverbena.so may be unloaded while its threads run"
  "${option[readelf]}" -d "$so" | grep "SONAME.*\[${option[soname]}\]" >/dev/null ||
    fail "the soname is not ${option[soname]}"
  exported=$("${option[nm]}" -D --defined-only -C "$so" | sed -E 's/^[0-9a-f]+ //')
  inner=$(grep -vE '^A VERBENA_[0-9.]+$|^[TWVRBD] ((typeinfo( name)?|vtable) for )?verbena(::|_)' \
    <<<"$exported" || true)
  [ -z "$inner" ] || fail "libverbena.so offers more than its own:
$inner"
  inner=$(grep -E '^[A-Z] ([a-z ]+ for )?verbena::(client|verbs|softverbs|wire|layout|c_api)::|^[^(]*::Impl::' \
    <<<"$exported" || true)
  [ -z "$inner" ] || fail "libverbena.so offers what is internal:
$inner"
  grep -q 'verbena::Connection::Connect' <<<"$exported" || fail "Connection::Connect is not offered"
  # Each function of the C API, as the header declares them.
  local function
  for function in $(grep -ohE '\bverbena_[a-z_]+\(' "$prefix/include/verbena/verbena.h" |
    tr -d '(' | sort -u); do
    grep -qE "^T $function(@|\$)" <<<"$exported" || fail "$function is not offered"
  done
}

# by_hand NAME PACKAGE COMPILER SOURCE OPTION...: with pkg-config's words, in two steps. pkg-config
# does not quote all that a path may contain, so it is asked through a link with a plain name.
by_hand() {
  local name=$1 package=$2 compiler=$3 source=$4
  shift 4
  # shellcheck disable=SC2046  # words of options
  quietly "$name-compile" "$compiler" "$@" -c "$source" -o "$work/$name.o" \
    $(pkg-config --cflags "$package")
  # shellcheck disable=SC2046
  quietly "$name-link" "$compiler" "$work/$name.o" -o "$work/$name" $(pkg-config --libs "$package")
}

step "installing"
quietly install "$cmake" --install "${option[build]}" --prefix "$prefix"
check_files
check_links
examples=$prefix/share/doc/verbena/client/examples
step "symbols of libverbena.so"
check_symbols

step "a CMake project, static and shared"
configure consumer "${option[source]}/tests/packaging/consumer" "-DCMAKE_PREFIX_PATH=$prefix" \
  "-DEXAMPLES=$examples" "-DVERBENA_EXPECTED_VERSION=${option[version]%.*}"
compile consumer
"${option[readelf]}" -d "$work/consumer/hello-shared" | grep "NEEDED.*\[${option[soname]}\]" >/dev/null ||
  fail "hello-shared does not need ${option[soname]}"
if "${option[readelf]}" -d "$work/consumer/hello-static" | grep 'NEEDED.*libverbena'; then
  fail "hello-static needs libverbena.so"
fi
step "a version that does not fit"
if "$cmake" -G "${option[generator]}" -S "${option[source]}/tests/packaging/consumer" \
  -B "$work/misfit" "-DCMAKE_PREFIX_PATH=$prefix" "-DEXAMPLES=$examples" \
  "-DCMAKE_C_COMPILER=${option[cc]}" "-DCMAKE_CXX_COMPILER=${option[cxx]}" \
  -DVERBENA_EXPECTED_VERSION=99.0 >"$work/misfit.log" 2>&1; then
  fail "find_package(verbena 99.0) found this one"
fi
grep -q 'version: *'"${option[version]}" "$work/misfit.log" || {
  cat "$work/misfit.log" >&2
  fail "find_package(verbena 99.0) failed for another reason"
}

step "a component that does not exist"
# component WHICH: a project that asks for it, its words in $work/component.log.
component() {
  rm -rf "$work/component"
  mkdir "$work/component"
  cat >"$work/component/CMakeLists.txt" <<PROJECT
cmake_minimum_required(VERSION 3.25)
project(Component LANGUAGES C CXX)
find_package(verbena REQUIRED $1)
if(NOT TARGET verbena::client_shared)
  message(FATAL_ERROR "no shared library")
endif()
PROJECT
  "$cmake" -G "${option[generator]}" -S "$work/component" -B "$work/component/build" \
    "-DCMAKE_PREFIX_PATH=$prefix" "-DCMAKE_C_COMPILER=${option[cc]}" \
    "-DCMAKE_CXX_COMPILER=${option[cxx]}" >"$work/component.log" 2>&1
}
if component "COMPONENTS shared nonsense"; then
  fail "find_package(verbena COMPONENTS nonsense) found it"
fi
tr -s '\n ' '  ' <"$work/component.log" |
  grep -q 'no component "nonsense": verbena has the components static and shared' || {
  cat "$work/component.log" >&2
  fail "find_package(verbena COMPONENTS nonsense) does not say what there is"
}
component "COMPONENTS shared OPTIONAL_COMPONENTS nonsense" || {
  cat "$work/component.log" >&2
  fail "an optional component that does not exist is an error"
}

step "a CMake project in C alone"
quietly c-only-configure "$cmake" -G "${option[generator]}" \
  -S "${option[source]}/tests/packaging/c_only" -B "$work/c-only" -DCMAKE_BUILD_TYPE=Release \
  "-DCMAKE_C_COMPILER=${option[cc]}" "-DCMAKE_PREFIX_PATH=$prefix" "-DEXAMPLES=$examples"
compile c-only

step "headers in an older C++ and in C"
for header in "$prefix"/include/verbena/*.h; do
  name=${header##*/}
  case $name in
    export.h | verbena.h | version.h) continue ;;
  esac
  for language in c++:c++17 c:c11; do
    if "${option[cxx]}" -x "${language%:*}" "-std=${language#*:}" "-I$prefix/include" \
      -fsyntax-only "$header" >"$work/older.log" 2>&1; then
      fail "verbena/$name compiles as ${language#*:}"
    fi
    # The first thing that is said.
    first=$(grep -m 1 error "$work/older.log" || true)
    [[ $first =~ need\ C\+\+20|included\ in\ C ]] || {
      cat "$work/older.log" >&2
      fail "verbena/$name as ${language#*:} does not say first why it fails"
    }
  done
done
"${option[cxx]}" -x c++ -std=c++11 "-I$prefix/include" -fsyntax-only \
  "$prefix/include/verbena/verbena.h" || fail "verbena/verbena.h does not compile as C++11"

step "a project that adds the source"
configure embedded "${option[source]}/tests/packaging/embedded" \
  "-DVERBENA_SOURCE=${option[source]}"

step "pkg-config"
plain=$(mktemp -d)
trap 'rm -rf "$plain"' EXIT
ln -s "$library" "$plain/lib"
export PKG_CONFIG_PATH=$plain/lib/pkgconfig
[ "$(pkg-config --modversion verbena)" = "${option[version]}" ] ||
  fail "pkg-config tells another version than ${option[version]}"
# The shared library needs the development files of absl only: nothing else is to be found here.
mkdir "$plain/absl"
ln -s "$(pkg-config --variable=pcfiledir absl_status)"/absl_*.pc "$plain/absl"
(
  export PKG_CONFIG_LIBDIR=$plain/absl
  if pkg-config --exists libibverbs; then fail "pkg-config finds more than absl"; fi
  by_hand verbena-absl verbena "${option[cxx]}" "$examples/hello.cc" -std=c++20
  if pkg-config --cflags verbena-static >"$work/absl.log" 2>&1; then
    fail "verbena-static needs no libibverbs, as pkg-config says"
  fi
)
for package in verbena verbena-static; do
  by_hand "$package-cc" $package "${option[cxx]}" "$examples/hello.cc" -std=c++20
  by_hand "$package-c" $package "${option[cc]}" "$examples/hello.c" -std=c11 -Wpedantic -Werror
done

step "the installed examples, from a tree that was moved"
mv "$prefix" "$work/moved"
prefix=$work/moved
library=$work/moved${library#"$work/prefix"}
configure examples "$prefix/share/doc/verbena/client/examples" "-DCMAKE_PREFIX_PATH=$prefix" \
  -DBUILD_SHARED_LIBS=ON
compile examples

step "running them"
mkfifo "$work/said"
"$prefix/bin/verbena-server" --listen=127.0.0.1:0 --memory=64MiB --workers=1 --fabric=soft \
  >"$work/said" 2>&1 &
server=$!
trap 'rm -rf "$plain"; kill "$server" 2>/dev/null || true' EXIT
exec {said}<"$work/said"
address=
while [ -z "$address" ] && IFS= read -r -t 60 line <&"$said"; do
  printf '%s\n' "$line" >>"$work/server.log"
  [[ ! $line =~ \ ready\ ([0-9.]+:[0-9]+)$ ]] || address=${BASH_REMATCH[1]}
done
[ -n "$address" ] || {
  cat "$work/server.log" >&2
  fail "the installed server does not get ready"
}
# The programs that were linked before the move look for the library where it was, if anywhere.
export LD_LIBRARY_PATH=$library
for program in consumer/hello-{static,shared} consumer/hello-c-{static,shared} \
  c-only/{c-only-static,c-only-shared,unload} verbena{,-static}-{cc,c} examples/{hello,counter,batch,zero_copy,coroutine}-cc examples/hello-c; do
  "$work/$program" "$address" >"$work/run.log" 2>&1 || {
    cat "$work/run.log" >&2
    fail "$program failed"
  }
done
[ "$("$prefix/bin/verbena-cli" --server="$address" get greeting)" = "hello, fabric" ] ||
  fail "verbena-cli does not get what the programs have put"
kill -TERM "$server"
status=0
wait "$server" || status=$?
trap 'rm -rf "$plain"' EXIT
[ $status -eq 0 ] || fail "the server ended with status $status"
step "all is well"
