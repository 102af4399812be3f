#!/bin/sh
# "AdaBest", figure 7: beta by participation.
#
# usage: sh results/founding_beta/run.sh    See research/studies.sh.
. research/studies.sh

# FedDyn's published code clips gradients at 10.
AdaBest='--flagfile=scripts/configs/drift_digits.flags --rounds_per_checkpoint=1000 --clip_norm=10'
sweep beta --grid=seed=0,1,2 --grid=clients_per_round=2,5,10,50 --grid=beta=0.4,0.8,0.9,0.96,1 -- \
  $AdaBest --algorithm=ada_best
report beta founding_beta --form=crossed --rows=clients_per_round --columns=beta --metric=test_accuracy \
  --title='beta by participation, of 100 clients'
