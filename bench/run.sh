#!/usr/bin/env bash
# Runs benchmarks and records them in bench/results, one file per part: a first line (or context) with machine,
# commit and command, then the records, each with its repetitions. Arguments: parts to run; none runs all. What a core
# computes (kernels, products, steps) goes to bench/results/ISA, ISA the widest vector set of this machine, so that
# machines of different kinds stand side by side and never overwrite each other's.
# Every part takes some two minutes at most on two cores. Nothing else should run on the machine meanwhile.
set -euo pipefail
cd "$(dirname "$0")/.."
results=bench/results
run=tools/mpirun.sh
mkdir -p "$results" runs

commit=$(git rev-parse --short=12 HEAD)
git diff --quiet HEAD -- '*.cc' '*.h' '*.cu' '*.txt' ':!bench/results' || commit+=-modified
build/sinew topo --json runs/topo.json >/dev/null
machine=$(head -1 runs/topo.json)
isa=$(sed -nE 's/.*"vector_sets": \[[^]]*"([a-z0-9]+)"\].*/\1/p' <<< "$machine")
core_results=$results/${isa:-plain}

# quoted WORD...: as one types it, quotes round words with blanks.
quoted() {
  local word words=()
  for word in "$@"; do
    [[ $word == *" "* ]] && word="\"$word\""
    words+=("$word")
  done
  echo "${words[*]}"
}

# show NAME COMMAND...: runs it and keeps what it printed, under the command that printed it.
show() {
  local name=$1
  shift
  { echo "\$ $(quoted "$@")"; "$@"; } | tee "$results/$name.txt"
}

# record NAME COMMAND...: the command gets --json; the record begins with what it ran on.
record() {
  local name=$1
  shift
  echo "bench: $name: $*"
  show "$name" "$@" --json "runs/$name.jsonl"
  { printf '{"part": "%s", "commit": "%s", "command": "%s", "machine": %s}\n' "$name" "$commit" "$*" "$machine"
    cat "runs/$name.jsonl"; } > "$results/$name.jsonl"
}

# google NAME PROGRAM ARGUMENTS...: Google Benchmark's own JSON, with the commit in its context.
google() {
  local name=$1 program=$2
  shift 2
  echo "bench: $name"
  mkdir -p "$core_results"
  "$program" "$@" --benchmark_min_time=0.2 --benchmark_context=commit="$commit" \
    --benchmark_out="$core_results/$name.json" --benchmark_out_format=json
}

mpich_sinew() {
  [[ -x build/mpich/sinew ]] ||
    { echo "bench: build/mpich/sinew is missing: cmake --preset mpich && cmake --build --preset mpich" >&2; return 1; }
  echo build/mpich/sinew
}

part_collectives_2() {
  record collectives_2 "$run" -n 2 build/sinew coll --op all_reduce --algo auto --bytes 8:32M:x4,64M --check --baseline mpi
}
part_collectives_4() {
  record collectives_4 "$run" -n 4 build/sinew coll --op all_reduce --algo all --bytes 8,64K,4M --check --baseline mpi
}
part_operations_2() {
  record operations_2 "$run" -n 2 build/sinew coll --op all --algo auto --bytes 8,2K,8K,64K,1M,4M,32M --check \
    --baseline mpi
}
# Every operation where ranks share cores.
part_operations_4() {
  record operations_4 "$run" -n 4 build/sinew coll --op all --algo auto --bytes 8,64,512,2K,8K,64K,256K,1M,4M,16M,64M \
    --check --baseline mpi
}
part_operations_8() {
  record operations_8 "$run" -n 8 build/sinew coll --op all --algo auto --bytes 8,64,512,2K,8K,64K,256K,1M,4M,16M,64M \
    --check --baseline mpi
}
part_collectives_8() {
  record collectives_8 "$run" -n 8 build/sinew coll --op all_reduce --algo auto --bytes 8:16M:x8 --check --baseline mpi
}
# The same beside MPICH, by a build with it (README.md); Open MPI's files stay.
part_collectives_mpich_2() {
  local sinew
  sinew=$(mpich_sinew)
  record collectives_mpich_2 "$run" -n 2 "$sinew" coll --op all_reduce --algo auto --bytes 8:32M:x4,64M --check \
    --baseline mpi
}
part_operations_mpich_2() {
  local sinew
  sinew=$(mpich_sinew)
  record operations_mpich_2 "$run" -n 2 "$sinew" coll --op all --algo auto --bytes 8,2K,8K,64K,1M,4M,32M --check \
    --baseline mpi
}
part_collectives_mpich_4() {
  local sinew
  sinew=$(mpich_sinew)
  record collectives_mpich_4 "$run" -n 4 "$sinew" coll --op all_reduce --algo auto --bytes 8,512,32K,2M --check \
    --baseline mpi
}
part_collectives_mpich_8() {
  local sinew
  sinew=$(mpich_sinew)
  record collectives_mpich_8 "$run" -n 8 "$sinew" coll --op all_reduce --algo auto --bytes 8,512,32K,2M --check \
    --baseline mpi
}
# Few sizes: where MPICH's ranks share cores each wait takes milliseconds.
part_operations_mpich_4() {
  local sinew
  sinew=$(mpich_sinew)
  record operations_mpich_4 "$run" -n 4 "$sinew" coll --op all --algo auto --bytes 8,2K,64K,1M,4M --check --baseline mpi
}
part_operations_mpich_8() {
  local sinew
  sinew=$(mpich_sinew)
  record operations_mpich_8 "$run" -n 8 "$sinew" coll --op all --algo auto --bytes 8,2K,64K,1M,4M --check --baseline mpi
}
part_symmetric_2() {
  record symmetric_2 "$run" -n 2 build/sinew coll --op all_reduce --buffers symmetric --bytes 64K:64M:x4 --check \
    --baseline mpi
}
part_symmetric_4() {
  record symmetric_4 "$run" -n 4 build/sinew coll --op all_reduce,reduce_scatter --buffers symmetric \
    --bytes 64K:16M:x4 --check --baseline mpi
}
part_symmetric_8() {
  record symmetric_8 "$run" -n 8 build/sinew coll --op all_reduce,reduce_scatter --buffers symmetric \
    --bytes 64K:16M:x4 --check --baseline mpi
}
# What auto would take if it read this: the table, the times behind it, and the guidelines they break.
part_tune_2() {
  record tune_2 "$run" -n 2 build/sinew tune --bytes 8:4M:x8 --budget-ms 10 --out runs/selection.txt
}
# bf16 added up in f32 and rounded once (two_shot) beside a rounding per hop (ring).
part_bf16_4() {
  record bf16_4 "$run" -n 4 build/sinew coll --op all_reduce --algo ring,two_shot --dtype bf16 --bytes 64K:16M:x4 --check
}
# What it costs that messages carry signatures.
part_signature_2() { record signature_2 "$run" -n 2 build/bench/bench_signature; }
part_p2p() { record p2p "$run" -n 2 build/sinew p2p; }
# The fastest version of every kernel but the products, which have parts of their own; then all other versions.
part_kernels() { google kernels build/bench/bench_kernels '--benchmark_filter=-^(gemm|ladder|attention)'; }
part_attention() { google attention build/bench/bench_kernels '--benchmark_filter=^attention'; }
part_gemm_f32() { google gemm_f32 build/bench/bench_kernels '--benchmark_filter=^gemm/f32/threads1/gpt2'; }
part_gemm_f32_llama() { google gemm_f32_llama build/bench/bench_kernels '--benchmark_filter=^gemm/f32/threads1/llama'; }
part_gemm_bf16() { google gemm_bf16 build/bench/bench_kernels '--benchmark_filter=^gemm/bf16/threads1'; }
part_gemm_2() { google gemm_2 build/bench/bench_kernels '--benchmark_filter=^(gemm/.*/threads2|gemm_batch)'; }
part_ladder() { google ladder build/bench/bench_kernels '--benchmark_filter=^ladder'; }
# Whole training steps, beside PyTorch's and that of one more program (bench/step/peer.h), where BENCH_STEP_ALSO names
# it: BENCH_STEP_ALSO="llm.c=PROGRAM" with PROGRAM on the path.
part_step() {
  mkdir -p "$core_results"
  results=$core_results record step build/bench/bench_step ${BENCH_STEP_ALSO:+--also "$BENCH_STEP_ALSO"}
}
part_layers() { google layers build/bench/bench_layers; }
part_training() {
  rm -rf runs/bench_training
  show training "$run" -n 2 build/sinew train --data data/kjv.txt --model byte-small --tp 2 --batch 8 --steps 40 \
    --eval-windows 8 --out runs/bench_training
  { printf '{"part": "training", "commit": "%s", "machine": %s}\n' "$commit" "$machine"
    tr -d '\n' < runs/bench_training/summary.json; echo; } > "$results/training.jsonl"
}
# What splitting a model costs, beside theory (bench/training/laws.py says how).
part_training_layouts() { record training_layouts bench/training/laws.py layouts; }
part_training_recompute() { record training_recompute bench/training/laws.py recompute; }
part_training_overlap() { record training_overlap bench/training/laws.py overlap; }
# Over a cable between two hosts; memory and checkpoints; a sequence that one rank cannot hold.
part_training_cable() { record training_cable bench/training/laws.py cable; }
part_training_row_chunks() { record training_row_chunks bench/training/laws.py row_chunks; }
part_training_memory() { record training_memory bench/training/laws.py memory; }
part_training_long_context() { record training_long_context bench/training/laws.py long_context; }
part_training_ring() { record training_ring build/bench/bench_ring; }
# What the demo's model says; `make demo` trains it.
part_sample() {
  show sample build/sinew sample --checkpoint runs/demo/data_parallel --prompt "In the beginning" --tokens 100 \
    --temperature 0.7
}

parts=("$@")
((${#parts[@]})) || parts=(collectives_2 collectives_4 collectives_8 symmetric_2 symmetric_4 symmetric_8
                             operations_2 operations_4 operations_8 bf16_4 tune_2 signature_2 p2p
                             kernels attention gemm_f32 gemm_f32_llama gemm_bf16 gemm_2 ladder layers step training
                             training_layouts training_recompute training_overlap training_cable training_row_chunks
                             training_memory training_long_context training_ring sample)
for part in "${parts[@]}"; do
  declare -F "part_$part" >/dev/null || {
    echo "bench: unknown part '$part'; legal are $(compgen -A function part_ | sed 's/^part_//' | paste -sd ' ')" >&2
    exit 2
  }
  "part_$part"
done
