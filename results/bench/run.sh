#!/bin/sh
# The rows of the bench: each built-in method on six small problems, searched and trained by the protocol of docs/guide/bench.md.
#
# usage: sh results/bench/run.sh    See research/studies.sh. It does the runs whose rows are missing: an hour on a free core.
. research/studies.sh

if [ -n "${SMOKE:-}" ]; then
  $PY scripts/bench.py --algorithm=fed_avg --problems=least_squares --output_dir="$RESULTS"
else
  $PY scripts/bench.py --algorithm=all --output_dir="$RESULTS"
fi
