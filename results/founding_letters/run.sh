#!/bin/sh
# "AdaBest", table 2, EMNIST-L: participation of 1 and 10 % on the first ten EMNIST letters, beside the published rows.
#
# usage: sh results/founding_letters/run.sh DIR [few] [some]    See research/studies.sh.
#
# DIR holds emnist_letters.npz. A run of `few`, 10 of 1,000 clients a round, takes half a minute on a core; one of `some`, 10 of
# 100, takes four. SEEDS, 0 by default, are those of `some`. The paper's third participation, 100 of 100 clients for 2,000
# rounds, would take an hour a run.
. research/studies.sh

cell() { # FOLDER CLIENTS ROUNDS ALGORITHMS BETAS SEEDS
  folder=$1
  algorithms=--grid=algorithm=$4
  betas=--grid=beta=$5
  seeds=--grid=seed=$6
  alphas=--grid=task_option=alpha=0.03,alpha=0.3,alpha=inf
  set -- --flagfile=scripts/configs/participation_letters.flags --task_option=num_clients="$2" --clients_per_round=10 \
    --rounds="$3" --rounds_per_checkpoint="$3" --data_dir="$DIR"
  # The code of FedDyn, which AdaBest's follows, clips gradients at 10.
  sweep "$folder" "$seeds" $alphas "$algorithms" "$betas" -- "$@" --clip_norm=10
  sweep "${folder}_not_clipped" "$seeds" $alphas --grid=algorithm=scaffold -- "$@"
}
# SCAFFOLD and SCAFFOLD/m are the same here, because all clients take equally many steps; `few` has both.
few() { cell few 1100 1000 fed_avg,fed_dyn,scaffold,scaffold_m,ada_best 0.2,0.4,0.6 0,1,2; }
some() { cell some 110 1200 fed_avg,fed_dyn,scaffold,ada_best 0.96 "${SEEDS:-0}"; }

parts few some
for kind in '' _not_clipped; do
  report few$kind founding_letters$kind "$RUNS/some$kind" --form=crossed --rows=participation,task_option \
    --columns=algorithm --metric=test_accuracy --formats=csv
done
program experiments.beside_ada_best --results="$RESULTS/founding_letters"
