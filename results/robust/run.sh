#!/bin/sh
# Robust rule by attack by heterogeneity, and what a rule costs without an attack.
#
# usage: sh results/robust/run.sh DIR    See research/studies.sh.
. research/studies.sh

small=
if [ -n "${SMOKE:-}" ]; then small='--smoke'; fi
mkdir -p "$RESULTS"
program experiments.robust --data_dir="$DIR" --results="$RESULTS/robust" $small
