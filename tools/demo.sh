#!/usr/bin/env bash
# The tour, under five minutes on two cores: a schedule explained and proved, collectives beside MPI, a transformer
# trained on the King James Bible with tensor, pipeline and data parallelism, and a sample of what it learnt.
# What it measures stays in runs/demo. Fails when a result is wrong or the loss is not reached.
set -euo pipefail
cd "$(dirname "$0")/.."
sinew=build/sinew
run=tools/mpirun.sh
out=runs/demo
goal=1.9  # nats per byte
rm -rf "$out"
mkdir -p "$out"

say() { printf '\n== %s\n\n' "$*"; }

say "1. A collective is data: ring all-reduce for 4 ranks, drawn from the schedule that runs"
$sinew explain --op all_reduce --algo ring --world 4

say "2. The same data is proved: every all-reduce for 1 to 64 ranks"
$sinew verify --op all_reduce --world 1:64

say "3. And executed: predicted beside measured, MPI in the same run, every result checked"
$run -n 2 $sinew coll --op all_reduce --bytes 8:4M:x16 --check --baseline mpi --budget-ms 50 --json "$out/coll_2.jsonl"
$run -n 4 $sinew coll --op all_reduce --bytes 8:4M:x64 --algo all --check --budget-ms 30 --json "$out/coll_4.jsonl"

say "4. A transformer trains on 4 ranks: tensor 2 x pipeline 2"
$run -n 4 $sinew train --data data/kjv.txt --model tools/demo_model.json --tp 2 --pp 2 --batch 16 --microbatches 4 \
  --steps 700 --lr 3e-3 --warmup 50 --eval-windows 64 --threads 1 --out "$out/train" | tee "$out/train.txt"

say "5. The same checkpoint goes on with data parallelism: tensor 2 x data 2, optimizer states partitioned"
$run -n 4 $sinew train --data data/kjv.txt --model tools/demo_model.json --tp 2 --dp 2 --zero 1 --batch 16 \
  --steps 740 --lr 3e-4 --eval-windows 64 --threads 1 --resume "$out/train" --out "$out/data_parallel" |
  tee "$out/data_parallel.txt"

say "6. What it learnt"
$sinew sample --checkpoint "$out/data_parallel" --prompt "In the beginning" --tokens 400 --temperature 0.7 |
  tee "$out/sample.txt"

loss=$(sed -n 's/.*"validation_loss": *\([0-9.]*\).*/\1/p' "$out/train/summary.json" | tail -1)
loss=$(printf '%.4f' "${loss:?no validation loss in $out/train/summary.json}")
say "validation loss of the training in part 4 (tensor 2 x pipeline 2): $loss nats per byte (goal: below $goal), in $SECONDS s"
awk -v loss="$loss" -v goal="$goal" 'BEGIN { exit !(loss < goal) }' || { echo "demo: the loss is above the goal" >&2; exit 1; }
