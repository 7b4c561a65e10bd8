#!/bin/busybox sh
# shellcheck shell=dash
# /init of the guest's initrd: loads the modules, puts a writable layer over the host's root, and
# starts the guest's own script in it.
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t devtmpfs dev /dev
while read -r module; do
  # An instruction of processors that the guest's is none of; crc32c_generic does the same.
  [ "$module" != crc32c-intel.ko ] || continue
  $b insmod "/modules/$module" || $b echo "lab: insmod $module failed" >/dev/kmsg
done </modules.list

options=trans=virtio,version=9p2000.L,msize=512000
$b mkdir -p /host /upper /newroot
$b mount -t 9p -o "$options,ro,cache=loose" host /host
$b mount -t tmpfs -o mode=755 tmpfs /upper
$b mkdir /upper/data /upper/work
$b mount -t overlay -o lowerdir=/host,upperdir=/upper/data,workdir=/upper/work overlay /newroot
for directory in proc sys dev; do $b mount --move /$directory /newroot/$directory; done
$b mount -t tmpfs -o mode=755 tmpfs /newroot/run
$b mkdir /newroot/run/lab
# Without a cache: the host puts files into it while the guest runs.
$b mount -t 9p -o "$options,ro,cache=none" lab /newroot/run/lab
exec $b switch_root /newroot /bin/bash /run/lab/guest.sh
