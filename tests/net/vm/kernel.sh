#!/usr/bin/env bash
# kernel.sh DIR: puts a Debian kernel with soft RDMA adapters (rdma_rxe), its modules and a small first file
# system into DIR, without installing anything. Does nothing when they are there.
set -euo pipefail
self=$(realpath "$0")
mkdir -p "$1"
cd "$1"
[[ -s release && initrd.gz -nt "$self" ]] && exit 0

package=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image-[0-9]/ {print $2; exit}')
[[ -n "$package" ]] || { echo "apt knows no linux-image-amd64"; exit 1; }
release=${package#linux-image-}
apt-get -qq -o APT::Sandbox::User=root download "$package"
rm -rf system
mkdir system
# The loader of rdma_rxe asks for crc32 and rdma_ucm for configfs by name, so whole folders are taken.
keep=(./boot/vmlinuz* './lib/modules/*/modules.*')
for folder in drivers/infiniband/core drivers/infiniband/sw drivers/virtio net/9p fs/9p fs/fscache fs/netfs \
              fs/overlayfs fs/configfs net/sched net/ipv4 net/ipv6 net/core crypto lib arch; do
  keep+=("./lib/modules/*/kernel/$folder/*")
done
for driver in veth virtio_net net_failover; do keep+=("./lib/modules/*/kernel/drivers/net/$driver.ko"); done
dpkg-deb --fsys-tarfile "$package"_*.deb | tar -x -C system --wildcards "${keep[@]}"
rm -f "$package"_*.deb
depmod -b system "$release"

rm -rf first
mkdir -p first/{bin,dev,proc,sys,modules,host,memory,root}
cp "$(command -v busybox)" first/bin/busybox
ln -s busybox first/bin/sh
for module in virtio_pci 9pnet_virtio 9p overlay; do
  modprobe -d system -S "$release" --show-depends "$module" | awk '$1 == "insmod" {print $2}'
done | awk '!seen[$0]++' | while read -r file; do
  cp "$file" first/modules/
  basename "$file"
done > order
mv order first/order
# The machine's own files, read-only, under a layer of memory: programs built outside run as they are.
cat > first/init <<'INIT'
#!/bin/sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
while read -r module; do insmod /modules/$module; done < /order
options=trans=virtio,version=9p2000.L,msize=524288
mount -t 9p -o $options,ro,cache=loose machine /host || poweroff -f
mount -t tmpfs memory /memory
mkdir /memory/upper /memory/work
mount -t overlay -o lowerdir=/host,upperdir=/memory/upper,workdir=/memory/work root /root
mount -t proc proc /root/proc
mount -t sysfs sys /root/sys
mount --move /dev /root/dev
mkdir -p /root/dev/shm /root/vm /root/vm-out
mount -t tmpfs shm /root/dev/shm
mount -t tmpfs run /root/run
mount -t 9p -o $options,ro,cache=loose modules /root/vm
mount -t 9p -o $options,cache=none out /root/vm-out
mkdir -p /root/lib/modules
ln -sfn /vm/lib/modules/$(uname -r) /root/lib/modules/$(uname -r)
exec switch_root /root /bin/bash /vm-out/start
INIT
chmod +x first/init
(cd first && find . | cpio -o -H newc --quiet) | gzip -1 > initrd.gz
ln -sfn "system/boot/vmlinuz-$release" vmlinuz
echo "$release" > release
