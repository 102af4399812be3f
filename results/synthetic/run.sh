#!/bin/sh
# FedProx's first figure: stragglers that are dropped or keep their partial work, on synthetic(alpha, beta).
#
# usage: sh results/synthetic/run.sh    See research/studies.sh.
. research/studies.sh

small=
if [ -n "${SMOKE:-}" ]; then small='--rounds=2 --epochs=2'; fi
mkdir -p "$RESULTS"
program experiments.synthetic --results="$RESULTS/synthetic" $small
