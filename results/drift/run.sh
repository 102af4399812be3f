#!/bin/sh
# FedAvg, SCAFFOLD, FedDyn, AdaBest and AdaBest with Yogi on MNIST and digits, three values of alpha.
#
# usage: sh results/drift/run.sh DIR    See research/studies.sh.
. research/studies.sh

for task in mnist digits; do
  data=
  if [ $task = mnist ]; then data=--data_dir=$DIR; fi
  sweep ${task}_sgd --grid=seed=0,1,2 --grid=task_option=alpha=0.03,alpha=0.3,alpha=inf \
    --grid=algorithm=fed_avg,scaffold,fed_dyn,ada_best -- --flagfile=scripts/configs/drift_$task.flags $data
  sweep ${task}_yogi --grid=seed=0,1,2 --grid=task_option=alpha=0.03,alpha=0.3,alpha=inf \
    --grid=algorithm=ada_best -- --server_optimizer=yogi --flagfile=scripts/configs/drift_$task.flags $data
done
report . drift --form=crossed --rows=participation,task,task_option --columns=algorithm --metric=test_accuracy \
  --formats=md
program experiments.drift_curves --runs="$RUNS" --results="$RESULTS/drift"
