# shellcheck shell=bash disable=SC2034
# Sourced by lab.sh: makes what a guest boots from, once per version of Debian's kernel package.
#
# The cache has one folder per version of the kernel, made by make_kernel.sh, and in it
# initrd-<hash>, where the hash is of all that went into the initrd. Everything is made beside its
# final place and renamed into it, under a lock, so that runs side by side and interrupted runs
# never see anything half made.

LAB_CACHE=${VERBENA_LAB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/verbena-lab}

# What the lab needs on the host besides what building Verbena needs.
LAB_PACKAGES=(
  qemu-system-x86 busybox-static cpio kmod iproute2 gcc make xz-utils
  rdma-core ibverbs-providers ibverbs-utils rdmacm-utils perftest tcpdump
)

# Kernel modules of the guest besides siw, in the order of loading. rxe needs the hash crc32, siw
# crc32c, but they look for them by name while running, so modprobe cannot know it.
LAB_MODULES=(
  virtio_pci virtio_console 9pnet_virtio 9p overlay virtio_net veth sch_netem
  crc32_generic crc32c_generic libcrc32c iw_cm ib_uverbs rdma_ucm rdma_rxe
)

# skip REASON: the lab cannot run on this machine.
skip() {
  printf 'lab.sh: skipped: %s\n' "$*" >&2
  exit 77
}

# prepare: sets LAB_KERNEL and LAB_INITRD, and makes them if the cache has them not.
prepare() {
  local arch lock package version dir
  arch=$(dpkg --print-architecture 2>/dev/null || true)
  [ "$arch" = amd64 ] || skip "this machine is ${arch:-not Debian}, the lab needs Debian on amd64"
  if ! mkdir -p "$LAB_CACHE" 2>/dev/null || [ ! -w "$LAB_CACHE" ]; then
    skip "cannot write the cache folder $LAB_CACHE (set VERBENA_LAB_CACHE)"
  fi
  exec {lock}>"$LAB_CACHE/lock"
  flock "$lock"

  (install_packages "${LAB_PACKAGES[@]}") | sed '/: all [0-9]* installed$/d' >&2 ||
    skip 'QEMU and the RDMA tools cannot be installed'
  read -r package version <<<"$(kernel_package)"
  if [ -z "$version" ]; then
    (as_root apt-get update -qq >&2) || true
    read -r package version <<<"$(kernel_package)"
  fi
  if [ -n "$version" ]; then
    dir=$LAB_CACHE/${package#linux-image-}_$version
    [ -d "$dir" ] || make_kernel "$package" "$version" "$dir"
  else
    # Without package lists a kernel made earlier still serves.
    dir=$(kernels | sort -V | tail -n 1)
    [ -n "$dir" ] || skip 'apt does not know linux-image-amd64, and no kernel is in the cache'
    say "lab: apt does not know linux-image-amd64, taking $(basename "$dir") from the cache" >&2
  fi
  LAB_KERNEL=$dir/vmlinuz
  LAB_INITRD=$dir/initrd-$(cat "$LAB_DIR/guest_init.sh" /bin/busybox | sha256sum | cut -c 1-16)
  [ -f "$LAB_INITRD" ] || make_initrd "$dir"
  touch "$dir"
  kernels -mtime +30 -exec rm -rf {} +
  exec {lock}>&-
}

# kernels [FIND-EXPRESSION...]: the kernels in the cache.
kernels() {
  find "$LAB_CACHE" -mindepth 1 -maxdepth 1 -type d -name '[0-9]*_*' "$@"
}

# kernel_package: prints name and version of the package that linux-image-amd64 stands for. Where apt
# keeps no cache of its own, asking it takes about a second: its answer is kept until its lists change.
kernel_package() {
  local known=$LAB_CACHE/kernel_package
  if ! [ -s "$known" ] || ! [ "$known" -nt /var/lib/apt/lists ]; then
    apt-cache --no-all-versions show linux-image-amd64 2>/dev/null |
      sed -n '0,/^Depends:/s/^Depends: \(linux-image-[^ ,]*\) (= \([^)]*\)).*/\1 \2/p' >"$known.new"
    mv "$known.new" "$known"
  fi
  cat "$known"
}

# make_kernel PACKAGE VERSION DIR: see make_kernel.sh.
make_kernel() {
  local log=$LAB_CACHE/make_kernel.log scratch start=$SECONDS
  say "lab: fetching $1 $2 and building siw for it, once (log: $log)" >&2
  rm -rf "$LAB_CACHE"/.making.* # of interrupted runs: the lock is held
  scratch=$(mktemp -d "$LAB_CACHE/.making.XXXXXX")
  if ! (cd "$scratch" && "$LAB_DIR/make_kernel.sh" "$1" "$2" "$scratch/made" \
    "${LAB_MODULES[@]}") >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    rm -rf "$scratch"
    skip "the guest's kernel cannot be made, see $log"
  fi
  mv "$scratch/made" "$3"
  rm -rf "$scratch"
  say "lab: made in $((SECONDS - start)) s" >&2
}

# make_initrd DIR: packs DIR's modules, busybox and guest_init.sh into LAB_INITRD.
make_initrd() {
  local dir=$1 root
  root=$(mktemp -d "$LAB_CACHE/.making.XXXXXX")
  mkdir -p "$root"/tree/{bin,proc,sys,dev}
  cp /bin/busybox "$root/tree/bin/"
  cp -r "$dir/modules" "$dir/modules.list" "$root/tree/"
  install -m 755 "$LAB_DIR/guest_init.sh" "$root/tree/init"
  # Not compressed: unpacking costs an emulated processor more than loading.
  (cd "$root/tree" && find . | cpio --quiet -o -H newc) >"$root/initrd"
  rm -f "$dir"/initrd-*
  mv "$root/initrd" "$LAB_INITRD"
  rm -rf "$root"
}
