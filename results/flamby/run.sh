#!/bin/sh
# FLamby's 158 published values for heart disease and breast cancer, beside ours.
#
# usage: sh results/flamby/run.sh DIR    See research/studies.sh.
. research/studies.sh

seeds=42,43,44,45,46
if [ -n "${SMOKE:-}" ]; then seeds=42; fi
program experiments.flamby --data_dir="$DIR/flamby" --results="$RESULTS/flamby" --seeds=$seeds
