#!/bin/sh
# Accuracy by client and server rate of five optimizers on EMNIST digits: 200 runs.
#
# usage: sh results/rates_digits/run.sh DIR    See research/studies.sh.
. research/studies.sh

# As words, so that SMOKE=1 can shorten them.
Grid=$(grep '^--grid' scripts/configs/rates_digits.flags)
sweep rates $Grid -- --flagfile=scripts/configs/emnist_digits.flags \
  --task_option=model=2nn --rounds=100 --rounds_per_evaluation=10 --rounds_per_checkpoint=100 --data_dir="$DIR"
report rates rates_digits --form=rates
