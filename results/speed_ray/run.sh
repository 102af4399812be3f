#!/bin/sh
# Seconds a round with two Ray workers, beside one process.
#
# usage: sh results/speed_ray/run.sh    See research/studies.sh.
. research/studies.sh

rounds=30
if [ -n "${SMOKE:-}" ]; then rounds=1; fi
mkdir -p "$RESULTS"
program benchmark --workloads=W4,W1,W1s --variants=ours_graph,ours_subrounds,ours_ray2 --rounds=$rounds \
  --json="$RESULTS/benchmark_ray.json"
