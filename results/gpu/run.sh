#!/bin/sh
# Results, speed and memory on one H100 beside the CPU.
#
# usage: sh results/gpu/run.sh    See research/studies.sh.
. research/studies.sh

# On a machine with a GPU, after make env-gpu. SMOKE=1 tries it on the CPU.
mkdir -p "$RESULTS"
if [ -n "${SMOKE:-}" ]; then
  program gpu_check --device=cpu --workload=W2 --clients=1 --rounds=1 --output="$RESULTS/gpu"
else
  program gpu_check --output="$RESULTS/gpu"
  program benchmark --device=gpu --workloads=W4,W1,W2,W3 --variants=ours_graph --json="$RESULTS/benchmark_gpu.json"
fi
