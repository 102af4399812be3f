#!/bin/sh
# Sixteen methods on six problems with equal search budgets: values, ranks, sensitivity to the rates.
#
# usage: sh results/which_optimizer/run.sh DIR    See research/studies.sh.
. research/studies.sh

if [ -n "${SMOKE:-}" ]; then
  mkdir -p "$RESULTS"
  program which_optimizer --problems=digits --methods=fed_avg,fed_yogi --buffered= --trials=2 --seeds=1 \
    --results="$RESULTS/which_optimizer"
else
  program which_optimizer --data_dir="$DIR" --results="$RESULTS/which_optimizer"
fi
