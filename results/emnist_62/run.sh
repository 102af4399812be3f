#!/bin/sh
# Five server optimizers with the CNN on EMNIST's 62 classes, the 300 writers of LEAF's FEMNIST.
#
# usage: sh results/emnist_62/run.sh DIR    See research/studies.sh.
#
# DIR holds emnist_all.sqlite, LEAF's FEMNIST in the format of TFF's file. SEEDS is 1 by default, ROUNDS 1500, as in "Adaptive
# Federated Optimization"; with more ROUNDS the same command goes on. A round takes about 0.6 s on two free cores.
. research/studies.sh

sweep writers --grid=seed="${SEEDS:-1}" --grid=algorithm=fed_avg,fed_avgm,fed_adagrad,fed_adam,fed_yogi -- \
  --flagfile=scripts/configs/emnist_62.flags --rounds="${ROUNDS:-1500}" --rounds_per_evaluation=20 \
  --rounds_per_checkpoint=20 --data_dir="$DIR"
report writers emnist_62 --window=100
