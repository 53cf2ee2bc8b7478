#!/usr/bin/env bash
# gpu_test.sh [test|bench]: everything that a machine with one or more GPUs can check (test, the default) or measure
# (bench), without MPI: ranks that share or own GPUs are started by our own launcher. What is most worth knowing comes
# first; a step that hangs is ended, a step that fails ends no other. All of it is bounded by BUDGET_MIN minutes (30) from
# the start of this script, building included: what there was no time for is named. Results are written as they come to
# bench/results/gpu_test.txt and gpu_bench.txt. Says what is missing where there is no GPU. PROGRAMS=FOLDER takes the
# programs that tools/gpu_pack.sh put there, for a machine that cannot build them.
set -uo pipefail
cd "$(dirname "$0")/.."
mode=${1:-test}
jobs=$(nproc)
budget_s=$((${BUDGET_MIN:-30} * 60))
if [[ $mode != test && $mode != bench ]]; then
  echo "gpu_test.sh: '$mode' is not a mode; legal values: test, bench" >&2
  exit 2
fi

programs=${PROGRAMS:-}
missing=()
export PATH=$PATH:/usr/local/cuda/bin
if [[ -n $programs ]]; then
  for program in sinew test_gpu_hardware bench_gpu; do
    [[ -x $programs/$program ]] || missing+=("$program in PROGRAMS=$programs (tools/gpu_pack.sh puts it there)")
  done
else
  command -v nvcc >/dev/null || missing+=("nvcc 12.8 or newer (put it on PATH)")
  command -v cmake >/dev/null && command -v ninja >/dev/null ||
    missing+=("cmake and ninja (make setup installs what a build needs, from tools/packages.txt)")
fi
nvidia-smi -L 2>/dev/null | grep -q '^GPU' || missing+=("a GPU with its driver (nvidia-smi -L lists none)")
if ((${#missing[@]} > 0)); then
  printf 'gpu-%s: nothing is run; missing: ' "$mode"
  printf '%s; ' "${missing[@]}"
  echo "the host twin's tests are part of make test"
  exit 0
fi
gpus=$(nvidia-smi -L | grep -c '^GPU')

# Code for the GPUs that are here, where one architecture is theirs: a third of the compilation.
case $(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | sort -u | tr '\n' ' ') in
  8.?" ") architectures=80 ;;
  "9.0 ") architectures=90a ;;
  "10.0 ") architectures=100a ;;
  *) architectures="80;90a;100a;90-virtual" ;;
esac
mkdir -p build bench/results
report=bench/results/gpu_$mode.txt
# Ranks that share a GPU queue kernels that wait for one another: each stream needs a queue of its own, and code must
# not be loaded while kernels wait.
export CUDA_MODULE_LOADING=EAGER CUDA_DEVICE_MAX_CONNECTIONS=32

failed=0
not_run=0
log=build/gpu_step.log
# step LIMIT_S SHOWN NAME COMMAND...: SHOWN is `quiet` (its output only when it fails) or `shown`.
step() {
  local limit=$1 shown=$2 name=$3 left=$((budget_s - SECONDS)) begin=$SECONDS status
  shift 3
  if ((left < 10)); then
    echo "not run  $name: the $((budget_s / 60)) minutes are over (BUDGET_MIN=... gives more)"
    not_run=$((not_run + 1))
    return
  fi
  [[ $shown == shown ]] && echo "-- $name"
  # Ranks are children of launch.sh, which ends them when it is told to end.
  timeout --kill-after=10 $((limit < left ? limit : left)) "$@" >"$log" 2>&1
  status=$?
  [[ $shown == shown ]] && cat "$log"
  if ((status == 0)); then
    echo "passed   $name ($((SECONDS - begin)) s)"
    return
  fi
  local how="exit code $status"
  ((status == 124 || status == 137)) && how="ended after $((SECONDS - begin)) s"
  echo "FAILED   $name ($how)"
  [[ $shown == quiet ]] && tail -n 20 "$log" | sed 's/^/         /'
  failed=$((failed + 1))
}

head_lines() {
  local commit
  commit=$(cat "$programs/commit" 2>/dev/null || git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
  echo "commit $commit"
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
  nvcc --version 2>/dev/null | tail -2 | head -1
}

build_all() {
  [[ -n $programs ]] && return
  step 120 quiet "configure for sm_${architectures//;/, sm_}" \
    cmake --preset cuda -DSINEW_CUDA_ARCHITECTURES="$architectures"
  step 1200 quiet "build of $*" cmake --build --preset cuda -j "$jobs" --target "$@"
}

sinew=${programs:-build/cuda}/sinew
tests=${programs:-build/cuda/tests/gpu}/test_gpu_hardware
bench=${programs:-build/cuda/bench}/bench_gpu
[[ -n $programs ]] && export LD_LIBRARY_PATH=$programs/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# Where cuBLASLt came with PyTorch and not with the toolkit.
packaged=$(python3 -c 'import glob, sys
found = [f for p in sys.path for f in glob.glob(p + "/nvidia/*/lib/libcublasLt.so.*")]
print(found[0].rpartition("/")[0] if found else "")' 2>/dev/null)
[[ -n $packaged ]] && export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$packaged
data=build/gpu_text.txt
for i in {1..400}; do echo "line $((i * 37 % 101)) of a text to train on"; done >$data
train=(train --model tools/demo_model.json --dtype bf16 --seq 64 --batch 8 --steps 20 --data $data --eval-windows 4
  --device cuda)
gpt2=(train --device cuda --model gpt2-124m --dtype bf16 --seq 1024 --steps 20 --data $data --eval-windows 1)

# Kernels of processes that share a GPU take turns of milliseconds, unless NVIDIA's MPS runs them at once.
start_mps() {
  command -v nvidia-cuda-mps-control >/dev/null || return 1
  mps=$(mktemp -d) || return 1
  export CUDA_MPS_PIPE_DIRECTORY=$mps CUDA_MPS_LOG_DIRECTORY=$mps
  if timeout 20 nvidia-cuda-mps-control -d >/dev/null 2>&1; then
    trap 'echo quit | timeout 20 nvidia-cuda-mps-control >/dev/null 2>&1; rm -rf "$mps"' EXIT
    return 0
  fi
  unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
  rm -rf "$mps"
  return 1
}

# The rate of a run of GPT-2 124M in $log: 6 N + 6 L C T operations for a token.
say_utilisation() {
  local peak=0
  case $(nvidia-smi --query-gpu=name --format=csv,noheader | head -1) in
    *H100\ PCIe*) peak=756 ;;
    *H100* | *H200* | *GH200*) peak=989 ;;
    *A100*) peak=312 ;;
    *B200*) peak=2250 ;;
  esac
  awk -v peak=$peak '/^median step/ {
      for (i = 1; i <= NF; ++i) if ($i ~ /^tokens\/s/) rate = $(i - 1)
      tflops = rate * (6 * 124.4e6 + 6 * 12 * 768 * 1024) * 1e-12
      printf "gpt2-124m: %.1f TFLOP/s by 6N + 6LCT", tflops
      if (peak > 0) printf ", %.3f of %d dense bf16", tflops / peak, peak
      print ""
    }' "$log"
}

run_bench() {
  head_lines
  build_all bench_gpu sinew
  step 420 shown "kernels and all-reduce within one process" $bench
  step 120 shown "GPT-2 124M, steps queued" tools/launch.sh -n 1 $sinew "${gpt2[@]}" --batch 8
  say_utilisation
  step 120 shown "GPT-2 124M, step as a graph" tools/launch.sh -n 1 $sinew "${gpt2[@]}" --batch 8 --graph
  say_utilisation
  step 420 shown "PyTorch on the same GPU" python3 bench/gpu/torch_gpu.py
  local ranks=$((gpus > 1 ? gpus < 8 ? gpus : 8 : 2))
  if ((gpus == 1)) && ! start_mps; then
    echo "no MPS here: kernels of ranks that share the GPU take turns, so that the times that follow say nothing"
  fi
  for channels in 8 32; do
    step 120 shown "all_reduce of $ranks processes on $gpus GPUs, $channels channels" tools/launch.sh -n $ranks $sinew \
      coll --device cuda --op all_reduce --algo auto --bytes 8:64M:x8,256M --channels $channels --check
  done
  if ((gpus > 1)); then
    step 180 shown "GPT-2 124M, data parallel on $ranks GPUs" tools/launch.sh -n $ranks $sinew "${gpt2[@]}" \
      --batch $((8 * ranks)) --zero 1
  fi
  echo "$failed failed, $not_run not run"
}

# The tests of those suites but for the ones in $forks, each suite by itself: one that hangs or spoils the device leaves
# the others.
run_suites() {
  local limit=$1 suite
  shift
  for suite in "$@"; do
    step "$limit" quiet "$suite" $tests --gtest_brief=1 --gtest_filter="$suite.*:-$(tr '\n' ':' <<<"$forks")"
  done
}

collectives() {  # ranks
  step 120 quiet "collectives of $1 ranks" tools/launch.sh -n "$1" $sinew coll --device cuda --op all --algo all \
    --bytes 0,8,4K,1M --dtype f32,bf16 --check --budget-ms 1
}

run_checks() {
  head_lines
  build_all test_gpu_hardware sinew
  step 60 quiet "doctor" $sinew doctor
  # Tests whose ranks are processes fork before CUDA is touched, so each of them has a process of its own.
  local all suites forks test
  all=$($tests --gtest_list_tests | awk '/^[^ ]/ {suite = $1; next} {print suite $1}')
  suites=$(cut -d. -f1 <<<"$all" | awk '!seen[$0]++')
  forks=$(grep -E 'InProcesses|OtherProcesses|DeadPeer' <<<"$all")
  # One rank, kernels first; then ranks as they are used, as processes; then ranks as threads, whose kernels share the
  # queues of one process.
  run_suites 120 $(grep '^Gpu' <<<"$suites") Accelerator
  step 120 quiet "training, 1 rank" tools/launch.sh -n 1 $sinew "${train[@]}"
  step 120 quiet "training, 1 rank, steps as a graph" tools/launch.sh -n 1 $sinew "${train[@]}" --graph
  collectives 2
  collectives 1
  for test in $forks; do step 60 quiet "$test" $tests --gtest_brief=1 --gtest_filter="$test"; done
  step 120 quiet "training, tensor ranks" tools/launch.sh -n 2 $sinew "${train[@]}" --tp 2
  step 120 quiet "training, pipeline" tools/launch.sh -n 2 $sinew "${train[@]}" --pp 2
  step 120 quiet "training, ZeRO 3" tools/launch.sh -n 2 $sinew "${train[@]}" --zero 3
  step 120 quiet "training, context ranks, steps as a graph" tools/launch.sh -n 2 $sinew "${train[@]}" --cp 2 --graph
  run_suites 60 $(grep -vE '^(Gpu|Accelerator)' <<<"$suites")
  ((gpus >= 4)) || start_mps || echo "no MPS here: kernels of the four ranks that follow take turns"
  collectives 4
  if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck synccheck; do
      step 300 quiet "compute-sanitizer $tool" compute-sanitizer --tool $tool --error-exitcode 1 $tests --gtest_brief=1 \
        --gtest_filter='Gpu*'
    done
  else
    echo "skipped  compute-sanitizer: it is not installed"
  fi
  echo "$failed failed, $not_run not run"
}

if [[ $mode == bench ]]; then run_bench; else run_checks; fi 2>&1 | tee "$report"
grep -q '^0 failed, 0 not run$' "$report"
