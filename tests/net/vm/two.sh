#!/usr/bin/env bash
# two.sh PROGRAM: runs PROGRAM, built from tests/net/hosts, under mpirun on two virtual machines, which share nothing
# but a cable: each has a kernel, memory, processes and one RDMA adapter in software of its own. mpirun runs on the first
# and ends as the ranks of both do: what it says is the result of all. Prints the reason and succeeds where there can be
# no such machines (machine.sh); otherwise fails when a test does.
set -euo pipefail
source "$(dirname "$0")/machine.sh"
program=$(realpath "$1")
log=$(mktemp)
out=$(mktemp -d)
second=
clean() {
  [[ -z $second ]] || kill "$second" 2>/dev/null || true
  rm -rf "$log" "$out"
}
trap clean EXIT
make_machine_parts "$log"
write_start "$out" "bash '$vm_here/two_guest.sh' '$program'"
cable() {  # cable SERVER NUMBER
  printf '%s\n' -netdev "stream,id=cable,server=$1,addr.type=unix,addr.path=$out/cable" \
    -device "virtio-net-pci,netdev=cable,mac=52:54:00:00:00:0$2,host_mtu=4200,romfile="
}
# Two processors each: two ranks that look for messages leave a single one no time for the kernel's side of the adapter.
start_s=$SECONDS
mapfile -t end < <(cable on 1)
run_machine "$out" host1 2 2048 "${end[@]}" &
first=$!
for ((look = 0; look < 100; ++look)); do
  [[ -S $out/cable ]] && break
  sleep 0.1
done
mapfile -t end < <(cable off 2)
run_machine "$out" host2 2 2048 "${end[@]}" > "$log" 2>&1 &
second=$!
wait "$first"
echo "test-rdma: $((SECONDS - start_s)) s in two virtual machines"
touch "$out/done"
wait "$second" || true
second=
if [[ ! -s $out/statushost1 || "$(cat "$out/statushost1")" != 0 ]]; then
  grep -v sysrq "$log" | tail -n 5 | sed 's/^/the second machine: /'
  [[ -s $out/statushost1 ]] ||
    { echo "test-rdma: the first machine ended without a result (limit $vm_limit_s s)" >&2; exit 1; }
fi
exit "$(cat "$out/statushost1")"
