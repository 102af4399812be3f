#!/bin/sh
# Norm, loss and accuracy of AdaBest, FedDyn and SCAFFOLD with 2 of 60 clients a round, 2,000 rounds; whether FedDyn overfits.
#
# usage: sh results/stability/run.sh    See research/studies.sh.
. research/studies.sh

for name in scaffold fed_dyn ada_best; do
  sweep $name --grid=seed=0,1,2 -- --flagfile=scripts/configs/stability_$name.flags
done
report . stability --label_by=algorithm --metric=theta_norm,validation_loss,validation_accuracy \
  --log_scale=validation_loss --title='2 of 60 clients a round, 2000 rounds, constant rate'
report . overfitting --label_by=algorithm --metric=train_accuracy,validation_accuracy \
  --title='2 of 60 clients a round, 2000 rounds'
