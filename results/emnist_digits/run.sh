#!/bin/sh
# Five server optimizers with the CNN on EMNIST digits of 300 writers, 300 rounds, and centralised training.
#
# usage: sh results/emnist_digits/run.sh DIR    See research/studies.sh.
. research/studies.sh

optimizers() {
  for algorithm in fed_avg fed_avgm fed_adagrad fed_adam fed_yogi; do
    train --flagfile=scripts/configs/emnist_digits.flags --algorithm=$algorithm --data_dir="$DIR" \
      --output_dir="$RUNS/$algorithm"
  done
  report . emnist_digits --window=100
}

parts optimizers
