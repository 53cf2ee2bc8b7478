#!/usr/bin/env bash
# run.sh PROGRAM [SCRIPT]: runs SCRIPT of this folder, guest.sh, with PROGRAM, built from tests/net, in a virtual
# machine that has two RDMA adapters in software. Needs no RDMA hardware and no virtualisation by the processor.
# Prints the reason and succeeds where there can be no such machine; otherwise fails when a test does.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
program=$(realpath "$1")
script=${2:-guest.sh}
folder=${SINEW_VM_FOLDER:-$here/../../../build/vm}
limit_s=${SINEW_VM_LIMIT_S:-600}
log=$(mktemp)
out=$(mktemp -d)
trap 'rm -rf "$log" "$out"' EXIT
skip() {
  echo "test-rdma: skipped: $1"
  [[ -s "$log" ]] && tail -n 3 "$log"
  exit 0
}

packages=(qemu-system-x86 busybox-static kmod cpio iproute2)
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' || missing+=("$package")
done
if ((${#missing[@]} > 0)); then
  ((EUID == 0)) || skip "not root, and these packages are not installed: ${missing[*]}"
  { timeout 120 apt-get -qq update && DEBIAN_FRONTEND=noninteractive timeout 240 apt-get install -y -qq \
    --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 || skip "cannot install ${missing[*]}"
fi
timeout 240 "$here/kernel.sh" "$folder" >"$log" 2>&1 || skip "no kernel to run"
folder=$(realpath "$folder")

cat > "$out/start" <<START
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
ulimit -l unlimited
echo soft > /proc/sys/kernel/hostname  # without one mpirun starts nothing
ip link set lo up
bash '$here/$script' '$program' </dev/null
echo \$? > /vm-out/status
sync
echo o > /proc/sysrq-trigger
while :; do sleep 1; done
START
share() {  # share TAG PATH OPTIONS
  printf '%s\n' -fsdev "local,id=$1,path=$2,security_model=none,$3" -device "virtio-9p-pci,fsdev=$1,mount_tag=$1"
}
mapfile -t shares < <(share machine / readonly=on,multidevs=remap; share modules "$folder/system" readonly=on
                      share out "$out" writeout=immediate)
start_s=$SECONDS
# Emulated: a processor that lends its virtualisation cannot be relied on. One that has AVX2 but no AVX-512.
timeout --foreground -k 5 "$limit_s" qemu-system-x86_64 -M q35 -accel tcg,thread=multi -cpu max -smp 2 -m 3072 \
  -nodefaults -no-user-config -display none -no-reboot -serial stdio -monitor none \
  -kernel "$folder/vmlinuz" -initrd "$folder/initrd.gz" \
  -append "console=ttyS0 quiet panic=-1 mitigations=off nokaslr random.trust_cpu=on audit=0" \
  "${shares[@]}" </dev/null || true
echo "test-rdma: $((SECONDS - start_s)) s in the virtual machine"
[[ -s "$out/status" ]] || { echo "test-rdma: the virtual machine ended without a result (limit $limit_s s)" >&2; exit 1; }
exit "$(cat "$out/status")"
