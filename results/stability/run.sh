#!/bin/sh
# Norm, loss and accuracy of AdaBest, FedDyn and SCAFFOLD with 2 of 60 clients a round, 2,000 rounds; whether FedDyn overfits.
#
# usage: sh results/stability/run.sh [constant] [decaying]    See research/studies.sh.
#
# `constant` has a constant client rate, `decaying` the paper's, which becomes 0.998 times as large each round. The paper's
# own setting on CIFAR-100, hours a run, is scripts/configs/figure_1.flags.
. research/studies.sh

trained() { # FOLDER TRAIN'S-FLAGS
  folder=$1
  shift
  for name in scaffold fed_dyn ada_best; do
    sweep $folder/$name --grid=seed=0,1,2 -- --flagfile=scripts/configs/stability_$name.flags "$@"
  done
}

constant() {
  trained constant
  report constant stability --label_by=algorithm --metric=theta_norm,validation_loss,validation_accuracy \
    --log_scale=validation_loss --title='2 of 60 clients a round, 2000 rounds, constant rate'
  report constant founding_overfitting --label_by=algorithm --metric=train_accuracy,validation_accuracy \
    --title='2 of 60 clients a round, 2000 rounds'
}

decaying() {
  trained decaying --client_schedule=round_decay --client_schedule_option=factor=0.998
  report decaying decaying --label_by=algorithm --metric=theta_norm,validation_loss,validation_accuracy \
    --log_scale=validation_loss --title='2 of 60 clients a round, 2000 rounds, rate x 0.998 a round'
}

parts constant decaying
