#!/bin/sh
# "AdaBest", figure 3: clients of equal and of unlike sizes, few and many of them.
#
# usage: sh results/founding_balance/run.sh    See research/studies.sh.
. research/studies.sh

# FedDyn's published code clips gradients at 10.
AdaBest='--flagfile=scripts/configs/drift_digits.flags --rounds_per_checkpoint=1000 --clip_norm=10'
for clients in 110 1100; do
  beta=0.96
  if [ $clients = 1100 ]; then beta=0.6; fi # Best of 0.2, 0.4, 0.6 at 1 % in results/founding_letters.
  for spread in 0 0.3; do
    sweep "$clients-$spread" --grid=seed=0,1,2 --grid=algorithm=fed_avg,scaffold_m,fed_dyn,ada_best -- \
      $AdaBest --beta=$beta --task_option=num_clients=$clients --task_option=unbalance=$spread
  done
done
report . founding_balance --form=crossed --rows=task_option --columns=algorithm --metric=test_accuracy \
  --formats=md --title='Clients of equal and of unlike sizes'
