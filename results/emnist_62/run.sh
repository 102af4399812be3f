#!/bin/sh
# FedYogi with the CNN on 62 classes of other handwriting in the format of EMNIST, 300 rounds.
#
# usage: sh results/emnist_62/run.sh DIR    See research/studies.sh.
. research/studies.sh

train --flagfile=scripts/configs/emnist_62.flags --data_dir="$DIR" --output_dir="$RUNS/fed_yogi"
report . emnist_62 --window=100
