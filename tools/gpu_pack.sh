#!/usr/bin/env bash
# gpu_pack.sh FOLDER: what `make gpu-test` and `make gpu-bench` run, built here for a GPU that is elsewhere: programs
# without their symbols, and the shared libraries that a machine with a compiler may lack (lib/). There it is
# `PROGRAMS=FOLDER make gpu-test`. ARCHITECTURES (90a) names whose code is built; the machine's C and C++ libraries must
# be no older than these here.
set -euo pipefail
if (($# != 1)); then
  echo "gpu_pack.sh: usage: gpu_pack.sh FOLDER" >&2
  exit 2
fi
mkdir -p "$1/lib"
folder=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
cmake --preset cuda -DSINEW_CUDA_ARCHITECTURES="${ARCHITECTURES:-90a}" >/dev/null
cmake --build --preset cuda -j "${JOBS:-$(nproc)}" --target sinew bench_gpu test_gpu_hardware
programs=(build/cuda/sinew build/cuda/bench/bench_gpu build/cuda/tests/gpu/test_gpu_hardware)
for program in "${programs[@]}"; do strip -o "$folder/$(basename "$program")" "$program"; done
# The C and C++ libraries are the machine's own.
ldd "${programs[@]}" | awk '$2 == "=>" {print $3}' | sort -u |
  grep -vE '/(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s)\.so' | xargs -r -I{} cp -L {} "$folder/lib/"
git rev-parse --short=12 HEAD >"$folder/commit"
du -sh "$folder"
