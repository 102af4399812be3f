#!/bin/sh
# "AdaBest", figures 4 and 6: 25,000 rounds on ten EMNIST letters, 5 of 100 IID clients a round; accuracy and norm.
#
# usage: sh results/long_letters/run.sh DIR [figure_4] [figure_6]    See research/studies.sh.
#
# DIR holds emnist_letters.npz. A run takes an hour on a core. `figure_4` has mu = 0.02, `figure_6` further values of mu.
. research/studies.sh

Letters="--flagfile=scripts/configs/participation_letters.flags --task_option=num_clients=110 --task_option=alpha=inf
  --clients_per_round=5 --rounds=25000 --rounds_per_evaluation=250 --rounds_per_checkpoint=500 --clip_norm=10 --data_dir=$DIR"

figure_4() {
  for algorithm in fed_dyn ada_best; do
    sweep figure_4/$algorithm --grid=seed=0 -- $Letters --algorithm=$algorithm --mu=0.02
  done
  report figure_4 figure_4 --label_by=algorithm --metric=validation_accuracy,theta_norm --formats=md,png,csv
}

figure_6() { # With the runs of figure 4.
  for algorithm in fed_dyn ada_best; do
    sweep figure_6/$algorithm --grid=mu=0.04,0.08,0.16 --grid=seed=0 -- $Letters --algorithm=$algorithm
    report figure_6/$algorithm figure_6_$algorithm "$RUNS/figure_4/$algorithm" --label_by=mu \
      --metric=validation_accuracy,theta_norm --formats=md,png,csv
  done
}

parts figure_4 figure_6
