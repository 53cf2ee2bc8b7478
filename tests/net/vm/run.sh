#!/usr/bin/env bash
# run.sh PROGRAM [SCRIPT [ARGUMENT...]]: runs SCRIPT of this folder, guest.sh, with PROGRAM, built from tests/net, in a
# virtual machine that has two RDMA adapters in software. Prints the reason and succeeds where there can be no such
# machine (machine.sh); otherwise fails when a test does.
set -euo pipefail
source "$(dirname "$0")/machine.sh"
program=$(realpath "$1")
script=${2:-guest.sh}
arguments=("${@:3}")
log=$(mktemp)
out=$(mktemp -d)
trap 'rm -rf "$log" "$out"' EXIT
make_machine_parts "$log"
write_start "$out" "bash '$vm_here/$script' '$program' ${arguments[*]}"
start_s=$SECONDS
run_machine "$out" soft 2 3072
echo "test-rdma: $((SECONDS - start_s)) s in the virtual machine"
[[ -s "$out/statussoft" ]] ||
  { echo "test-rdma: the virtual machine ended without a result (limit $vm_limit_s s)" >&2; exit 1; }
exit "$(cat "$out/statussoft")"
