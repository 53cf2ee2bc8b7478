# Virtual machines that see this machine's files. To be sourced by what runs one or two; needs no RDMA hardware and no
# virtualisation by the processor. make_machine_parts prints the reason and ends the caller with success where there
# can be no such machine.
vm_here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
vm_folder=${SINEW_VM_FOLDER:-$vm_here/../../../build/vm}
vm_limit_s=${SINEW_VM_LIMIT_S:-600}

make_machine_parts() {  # make_machine_parts LOG
  local log=$1 package missing=()
  local skip='echo "test-rdma: skipped: $reason"; [[ -s "$log" ]] && tail -n 3 "$log"; exit 0'
  local reason
  for package in qemu-system-x86 busybox-static kmod cpio iproute2; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' || missing+=("$package")
  done
  if ((${#missing[@]} > 0)); then
    reason="not root, and these packages are not installed: ${missing[*]}"
    ((EUID == 0)) || eval "$skip"
    reason="cannot install ${missing[*]}"
    { timeout 120 apt-get -qq update && DEBIAN_FRONTEND=noninteractive timeout 240 apt-get install -y -qq \
      --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 || eval "$skip"
  fi
  reason="no kernel to run"
  timeout 240 "$vm_here/kernel.sh" "$vm_folder" >"$log" 2>&1 || eval "$skip"
  vm_folder=$(realpath "$vm_folder")
}

# The first script of a machine: /vm-out is the folder OUT, where COMMAND leaves its exit status as OUT/statusNAME.
write_start() {  # write_start OUT COMMAND
  cat > "$1/start" <<START
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
ulimit -l unlimited
name=\$(sed -n 's/.*sinew.name=\([a-z0-9]*\).*/\1/p' /proc/cmdline)
echo "\$name" > /proc/sys/kernel/hostname  # without one mpirun starts nothing
ip link set lo up
ln -sfn /proc/self/fd /dev/fd  # what bash's >(command) names, and no service here makes
$2 </dev/null
echo \$? > "/vm-out/status\$name"
sync
echo o > /proc/sysrq-trigger
while :; do sleep 1; done
START
}

run_machine() {  # run_machine OUT NAME CPUS MEMORY_MIB QEMU_OPTION...
  local out=$1 name=$2 cpus=$3 memory=$4 shares
  shift 4
  share() {  # share TAG PATH OPTIONS
    printf '%s\n' -fsdev "local,id=$1,path=$2,security_model=none,$3" -device "virtio-9p-pci,fsdev=$1,mount_tag=$1"
  }
  mapfile -t shares < <(share machine / readonly=on,multidevs=remap
                        share modules "$vm_folder/system" readonly=on
                        share out "$out" writeout=immediate)
  # Emulated: a processor that lends its virtualisation cannot be relied on. One that has AVX2 but no AVX-512.
  timeout --foreground -k 5 "$vm_limit_s" qemu-system-x86_64 -M q35 -accel tcg,thread=multi -cpu max -smp "$cpus" \
    -m "$memory" -nodefaults -no-user-config -display none -no-reboot -serial stdio -monitor none \
    -kernel "$vm_folder/vmlinuz" -initrd "$vm_folder/initrd.gz" \
    -append "console=ttyS0 quiet panic=-1 mitigations=off nokaslr random.trust_cpu=on audit=0 sinew.name=$name" \
    "${shares[@]}" "$@" </dev/null || true
}
