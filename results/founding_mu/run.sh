#!/bin/sh
# "AdaBest", figure 6: mu of AdaBest and FedDyn with IID clients, accuracy and norm.
#
# usage: sh results/founding_mu/run.sh    See research/studies.sh.
. research/studies.sh

# FedDyn's published code clips gradients at 10.
AdaBest='--flagfile=scripts/configs/drift_digits.flags --rounds_per_checkpoint=1000 --clip_norm=10'
sweep mu --grid=seed=0,1,2 --grid=algorithm=ada_best,fed_dyn --grid=mu=0.0025,0.005,0.01,0.02,0.04,0.08,0.16 -- \
  $AdaBest --task_option=alpha=inf
report mu founding_mu --form=crossed --rows=algorithm --columns=mu --metric=test_accuracy --title='mu'
report mu founding_mu_norm --form=crossed --rows=algorithm --columns=mu --metric=theta_norm --formats=md \
  --title='Norm of the model by mu'
