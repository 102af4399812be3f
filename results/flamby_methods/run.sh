#!/bin/sh
# Twenty-three methods with equal search budgets on FLamby's two problems.
#
# usage: sh results/flamby_methods/run.sh DIR    See research/studies.sh.
. research/studies.sh

# The rows of which_optimizer are taken over, where they are there; the others are trained.
seeds=1,2,3,4,5 trials=12
if [ -n "${SMOKE:-}" ]; then seeds=1 trials=2; fi
mkdir -p "$RESULTS"
program which_optimizer --problems=fed_heart,fed_tcga_brca --seeds=$seeds --trials=$trials \
  --methods=fed_avg,fed_avgm,fed_adagrad,fed_adam,fed_yogi,fed_prox,scaffold,fed_dyn,ada_best,fed_nova,fed_cm,fed_exp,mime_lite,delta_sgd,fed_sam,fed_ada2,scaffold_m,mime,fed_gamma,mo_fed_sam,fed_speed,diloco,fed_lalr \
  --data_dir="$DIR" --results="$RESULTS/flamby_methods"
