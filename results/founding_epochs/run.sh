#!/bin/sh
# "Adaptive Federated Optimization": EXPDECAY by the number of local epochs E, on digits.
#
# usage: sh results/founding_epochs/run.sh    See research/studies.sh.
. research/studies.sh

for schedule in constant 'exp_decay --client_schedule_option=every=50'; do
  sweep ${schedule%% *} --grid=seed=0,1,2 --grid=algorithm=fed_avg,fed_adagrad,fed_adam,fed_yogi \
    --grid=client_epochs=1,5,20 --grid=client_learning_rate=0.01,0.031623,0.1 -- --task=digits --rounds=150 \
    --rounds_per_evaluation=5 --rounds_per_checkpoint=150 --client_schedule=$schedule
done
report . founding_epochs --window=100 --form=crossed --rows=client_epochs,client_schedule --columns=algorithm \
  --formats=md --title='Local epochs and a decreasing client rate'
