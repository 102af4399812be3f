#!/bin/sh
# Constant, INVSQRT and EXPDECAY client rates with five optimizers on EMNIST digits.
#
# usage: sh results/schedules_digits/run.sh DIR    See research/studies.sh.
. research/studies.sh

Digits="--flagfile=scripts/configs/emnist_digits.flags --task_option=model=2nn --rounds_per_checkpoint=300 --data_dir=$DIR"
for schedule in constant inv_sqrt 'exp_decay --client_schedule_option=every=100'; do
  rates=--grid=client_learning_rate=0.031623,0.1,0.31623
  sweep ${schedule%% *}/all --grid=algorithm=fed_avg,fed_avgm,fed_adagrad,fed_adam,fed_yogi $rates \
    --grid=seed=1,2,3 -- $Digits --client_schedule=$schedule
  sweep ${schedule%% *}/fed_adagrad $rates --grid=seed=1,2,3 -- $Digits --client_schedule=$schedule \
    --algorithm=fed_adagrad --server_learning_rate=0.031623
done
report . schedules_digits --form=crossed --rows=client_schedule --columns=algorithm
