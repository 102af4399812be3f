#!/bin/sh
# Virtual seconds to a target accuracy by rule for cohorts, under traces of speed and availability.
#
# usage: sh results/cohorts/run.sh DIR    See research/studies.sh.
. research/studies.sh

small=
if [ -n "${SMOKE:-}" ]; then small='--smoke'; fi
mkdir -p "$RESULTS"
program experiments.cohorts --data_dir="$DIR" --results="$RESULTS/cohorts" $small
