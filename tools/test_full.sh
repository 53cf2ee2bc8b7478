#!/usr/bin/env bash
# What is too long for `make test`: every combination of the collectives on threads and processes, more than 2^31
# bytes, proofs for up to 1024 ranks, every layout of a transformer, a million small collectives, a thousand killed
# ranks, hundreds of training runs killed while they write checkpoints. Arguments: parts to run; none runs all. Each
# part says how long it took.
set -euo pipefail
cd "$(dirname "$0")/.."
export SINEW_TEST_FULL=1

part_proofs() { build/tests/test_sched --gtest_brief=1 --gtest_filter='Registry.*SampledWorldTo1024'; }
part_threads() { build/tests/test_comm --gtest_brief=1 --gtest_filter='*EveryCombination*:*TwoToThe31*'; }
part_processes() {
  local ranks
  for ranks in 1 2 3 4 8; do
    tools/mpirun.sh -n "$ranks" build/tests/test_comm_mpi --gtest_brief=1 \
      --gtest_filter='*EveryCombination*:*TwoToThe31*'
  done
}
part_layouts() { build/tests/test_model --gtest_brief=1 --gtest_filter='*EveryCombination*:LayoutErrors.*'; }
part_soak() { SINEW_SOAK_CALLS=${SINEW_SOAK_CALLS:-1000000} build/tests/test_comm --gtest_brief=1 --gtest_filter='Soak.Small*'; }
part_checkpoints() { build/tests/test_model --gtest_brief=1 --gtest_filter='*Kill*'; }
part_kills() { SINEW_SOAK_KILLS=${SINEW_SOAK_KILLS:-1000} build/tests/test_comm --gtest_brief=1 --gtest_filter='Soak.Kills*'; }

parts=("$@")
((${#parts[@]})) || parts=(kills checkpoints proofs soak threads processes layouts)
for part in "${parts[@]}"; do
  declare -F "part_$part" >/dev/null ||
    { echo "test_full.sh: no part '$part'; legal are kills, checkpoints, proofs, soak, threads, processes, layouts" >&2; exit 2; }
  echo "test-full: $part began at $(date +%T)"
  before=$SECONDS
  "part_$part"
  echo "test-full: $part took $((SECONDS - before)) s"
done
echo "test-full: all parts took $SECONDS s"
