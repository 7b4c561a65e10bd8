#!/usr/bin/env bash
# Called by prepare.sh: make_kernel.sh PACKAGE VERSION FOLDER MODULE...
#
# Unpacks Debian's kernel package PACKAGE in exactly VERSION, builds siw for it (Debian's kernel has
# none) and leaves in FOLDER: vmlinuz, modules/*.ko (the MODULEs, what they depend on, siw last) and
# modules.list, their names in the order of loading. Works in the current folder, which the caller
# removes. Nothing is installed.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/common.sh"

package=$1 version=$2 made=$3
shift 3
release=${package#linux-image-} # 6.1.0-57-amd64
flavourless=${release%-*}       # 6.1.0-57
series=${release%%-*}           # 6.1.0
series=${series%.*}             # 6.1

packages=("$package" "linux-headers-$release" "linux-headers-$flavourless-common"
  "linux-kbuild-$series" "linux-source-$series")
wanted=("${packages[@]/%/=$version}")
# The lists may be older than the archive, which then no longer has the package.
apt-get download "${wanted[@]}" || { as_root apt-get update && apt-get download "${wanted[@]}"; }
for file in ./*.deb; do
  dpkg -x "$file" unpacked
  rm "$file"
done

headers=$PWD/unpacked/usr/src/linux-headers-$release
# It includes the common part under the name that it has when installed.
sed -i "s|/usr/src/|$PWD/unpacked/usr/src/|" "$headers/Makefile"
siw=linux-source-$series/drivers/infiniband/sw/siw
tar -xf "unpacked/usr/src/linux-source-$series.tar.xz" --wildcards "$siw/*"
make -C "$headers" M="$PWD/$siw" CONFIG_RDMA_SIW=m modules -j"$(nproc)"

mkdir -p "$made/modules"
cp unpacked/boot/vmlinuz-* "$made/vmlinuz"
PATH=$PATH:/usr/sbin:/sbin
depmod -b unpacked "$release"
for module in "$@"; do
  modprobe -d "$PWD/unpacked" -S "$release" --show-depends "$module" >>depends
done
# Lines "insmod PATH"; lines "builtin NAME" need nothing.
awk '$1 == "insmod" && !seen[$2]++ { print $2 }' depends | while read -r file; do
  name=$(basename "${file%.xz}")
  case $file in
    *.xz) xz -dc "$file" >"$made/modules/$name" ;;
    *) cp "$file" "$made/modules/$name" ;;
  esac
  printf '%s\n' "$name" >>"$made/modules.list"
done
strip -g "$siw/siw.ko" -o "$made/modules/siw.ko"
printf 'siw.ko\n' >>"$made/modules.list"
