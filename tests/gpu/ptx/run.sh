#!/usr/bin/env bash
# run.sh JOBS: builds the PTX of every kernel and the program that interprets it, and runs its tests. Says why nothing is
# run where there is no nvcc.
set -uo pipefail
cd "$(dirname "$0")/../../.."
if ! PATH=$PATH:/usr/local/cuda/bin:${CUDA_HOME:-/nonexistent}/bin command -v nvcc >/dev/null; then
  echo "PTX tests: skipped, they need nvcc 12.8 or newer (on PATH, in CUDA_HOME/bin or /usr/local/cuda/bin)"
  exit 0
fi
cmake --build build -j "$1" --target test_ptx || exit 1
ctest --test-dir build -C ptx -L ptx -j "$1" --output-on-failure
