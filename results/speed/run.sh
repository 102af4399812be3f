#!/bin/sh
# Seconds a round in this project, stock TFF and a hand-written loop.
#
# usage: sh results/speed/run.sh    See research/studies.sh.
. research/studies.sh

# Half an hour with nothing beside it.
own() {
  program benchmark --workloads=W4,W1,W2 --rounds=$rounds --json="$RESULTS/own.json"
  program benchmark --workloads=W3 --rounds=$rounds --json="$RESULTS/own_lstm.json"
  program benchmark --workloads=W3 --variants=ours_graph,ours_graph+lstm,hand --rounds=$rounds \
    --json="$RESULTS/compiled_lstm.json"
  program benchmark --workloads=W1s --rounds=$rounds --json="$RESULTS/large_cohorts.json"
}

rounds=10
if [ -n "${SMOKE:-}" ]; then rounds=1; fi
mkdir -p "$RESULTS"
parts own
