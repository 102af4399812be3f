#!/bin/sh
# AdaBest's beta with five server optimizers on digits.
#
# usage: sh results/ada_best_beta/run.sh    See research/studies.sh.
. research/studies.sh

sweep beta --metric=inference_accuracy --grid=seed=0,1,2 --grid=server_optimizer=sgd,sgdm,adagrad,adam,yogi \
  --grid=beta=0,0.2,0.5,0.8,0.96 -- --algorithm=ada_best --task=digits --rounds_per_evaluation=10
report beta by_server_optimizer --metric=inference_accuracy --label_by=server_optimizer,beta --formats=md
