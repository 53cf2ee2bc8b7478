#!/usr/bin/env bash
# Everything that a machine with a GPU can check, without MPI: the device tests on hardware, ranks that share or own
# GPUs over our own launcher, training against the processor, and compute-sanitizer where it is installed. The results
# are kept in bench/results/gpu_test.txt. Says what is missing where there is no GPU. Arguments: test (default) or bench.
set -uo pipefail
cd "$(dirname "$0")/.."
mode=${1:-test}
jobs=$(nproc)

missing=()
export PATH=$PATH:/usr/local/cuda/bin
command -v nvcc >/dev/null || missing+=("nvcc 12.8 or newer (put it on PATH)")
nvidia-smi -L 2>/dev/null | grep -q '^GPU' || missing+=("a GPU with its driver (nvidia-smi -L lists none)")
if ((${#missing[@]} > 0)); then
  printf 'gpu-%s: nothing is run; missing: ' "$mode"
  printf '%s; ' "${missing[@]}"
  echo "the host twin's tests are part of make test"
  exit 0
fi

# Code for the GPUs that are here, where one architecture is theirs: a third of the compilation.
case $(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | sort -u | tr '\n' ' ') in
  8.?" ") architectures=80 ;;
  "9.0 ") architectures=90a ;;
  "10.0 ") architectures=100a ;;
  *) architectures="80;90a;100a" ;;
esac
mkdir -p build
cmake --preset cuda -DSINEW_CUDA_ARCHITECTURES="$architectures" >build/gpu_configure.log 2>&1 ||
  { tail -5 build/gpu_configure.log; exit 1; }
cmake --build --preset cuda -j "$jobs" --target sinew test_gpu_hardware bench_gpu || exit 1
sinew=build/cuda/sinew
mkdir -p bench/results
# Ranks that share a GPU queue kernels that wait for one another: each stream needs a queue of its own, and code must
# not be loaded while kernels wait.
export CUDA_MODULE_LOADING=EAGER CUDA_DEVICE_MAX_CONNECTIONS=32

failed=0
check() {  # NAME COMMAND...
  local name=$1
  shift
  if timeout 600 "$@" >build/gpu_check.log 2>&1; then
    echo "passed  $name"
  else
    echo "FAILED  $name ($?)"
    tail -n 20 build/gpu_check.log | sed 's/^/        /'
    failed=$((failed + 1))
  fi
}

head_lines() {
  echo "commit $(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)"
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
  nvcc --version | tail -2 | head -1
}

data=build/gpu_text.txt
for i in {1..400}; do echo "line $((i * 37 % 101)) of a text to train on"; done >$data
train=(train --model tools/demo_model.json --dtype bf16 --seq 64 --batch 8 --steps 20 --data $data --eval-windows 4)

if [[ $mode == bench ]]; then
  {
    head_lines
    build/cuda/bench/bench_gpu
    tools/launch.sh -n 2 $sinew coll --device cuda --op all_reduce --algo auto --bytes 8:64M:x8 --check
    tools/launch.sh -n 1 $sinew train --device cuda --model gpt2-124m --dtype bf16 --seq 1024 --batch 8 --steps 20 \
      --data $data --eval-windows 1
  } 2>&1 | tee bench/results/gpu_bench.txt
  exit "${PIPESTATUS[0]}"
fi

run_checks() {
  head_lines
  check "doctor" $sinew doctor
  # Tests whose ranks are processes fork before CUDA is touched, so each has a process of its own.
  forks=$(build/cuda/tests/gpu/test_gpu_hardware --gtest_list_tests | awk '/^[^ ]/ {s = $1} /Process|DeadPeer/ {print s $1}')
  check "kernels, collectives and training of tests/gpu on hardware" build/cuda/tests/gpu/test_gpu_hardware \
    --gtest_brief=1 --gtest_filter="*:-$(tr '\n' ':' <<<"$forks")"
  for test in $forks; do
    check "$test" build/cuda/tests/gpu/test_gpu_hardware --gtest_brief=1 --gtest_filter="$test"
  done
  for ranks in 1 2 4; do
    check "collectives of $ranks ranks" tools/launch.sh -n $ranks $sinew coll --device cuda --op all --algo all \
      --bytes 0,8,4K,1M --dtype f32,bf16 --check --budget-ms 1
  done
  check "training, 1 rank" tools/launch.sh -n 1 $sinew "${train[@]}" --device cuda
  check "training, tensor ranks" tools/launch.sh -n 2 $sinew "${train[@]}" --device cuda --tp 2
  check "training, pipeline" tools/launch.sh -n 2 $sinew "${train[@]}" --device cuda --pp 2
  check "training, ZeRO 3" tools/launch.sh -n 2 $sinew "${train[@]}" --device cuda --zero 3
  if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck synccheck; do
      check "compute-sanitizer $tool" compute-sanitizer --tool $tool --error-exitcode 1 \
        build/cuda/tests/gpu/test_gpu_hardware --gtest_brief=1 --gtest_filter='Gpu*'
    done
  else
    echo "skipped compute-sanitizer: it is not installed"
  fi
  echo "$failed failed"
}
run_checks 2>&1 | tee bench/results/gpu_test.txt
grep -q '^0 failed$' bench/results/gpu_test.txt
