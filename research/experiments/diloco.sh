#!/bin/sh
# Pseudo-gradients on a laptop (DiLoCo): trains what is missing, and writes results/diloco_NAME.*.
#
# usage: sh research/experiments/diloco.sh DIR [NAME ...]
#
# DIR holds shakespeare.sqlite. A transformer of 1.3 million parameters reads 512,000 tokens of Shakespeare in each
# run. One setting varies at a time around the base: AdamW at 4 workers, which keep its state, 50 local steps of two
# sequences of 80 tokens, Nesterov momentum (rate 0.7, momentum 0.9) on the server. The same command again goes on
# with what is not complete.
set -eu
DIR=$1
shift
PY=${PY:-.venv/bin/python}
RUNS=${RUNS:-runs/diloco}
JOBS=${JOBS:-1}
SEEDS='--grid=seed=1,2,3'
# AdamW as in the paper. The rates of the others are the best of `rates`.
AdamW='--client_optimizer=adamw --client_optimizer_option=beta2=0.95 --client_optimizer_option=decay=0.1'
AdamW="$AdamW --client_learning_rate=0.001"
Sgd='--client_optimizer=sgd --client_learning_rate=0.3'
Muon='--client_optimizer=muon --client_learning_rate=0.01'
Keep='--client_optimizer_state=keep'
Nesterov='--server_optimizer=nesterov --server_learning_rate=0.7'

cell() { # NAME SWEEP'S-FLAGS -- WORKERS STEPS TRAIN'S-FLAGS
  folder=$RUNS/$1 grids=
  shift
  while [ "$1" != -- ]; do grids="$grids $1" && shift; done
  workers=$2 steps=$3
  shift 3
  $PY scripts/sweep.py --output_dir="$folder" --jobs="$JOBS" $grids -- --task=shakespeare_transformer \
    --data_dir="$DIR" --task_option=workers=$workers --clients_per_round=$workers --local_steps=$steps \
    --continue_batches --batch_size=2 --clip_norm=1 --algorithm=fed_avg --rounds=$((3200 / workers / steps)) \
    --rounds_per_evaluation=$((800 / workers / steps)) --rounds_per_checkpoint=1000 "$@"
}

report() { # NAME COLUMN TITLE
  $PY scripts/report.py "$RUNS/base" "$RUNS/$1" --form=crossed --rows=$2 --columns=algorithm --metric=validation_loss \
    --output="results/diloco_$1" --formats=md --title="$3"
}

# Client rates, and rates of the adaptive servers, for a seed that does not count.
rates() {
  for one in sgd:0.1,0.3,1 adamw:0.0003,0.001,0.003 muon:0.003,0.01,0.03; do
    cell rates/client --grid=seed=100 --grid=client_optimizer=${one%:*} --grid=client_learning_rate=${one#*:} -- \
      4 50 $Nesterov
  done
  cell rates/server --grid=seed=100 --grid=server_optimizer=adam,yogi --grid=server_learning_rate=0.003,0.01,0.03 -- \
    4 50 $AdamW $Keep
}

base() {
  cell base $SEEDS -- 4 50 $AdamW $Keep $Nesterov
}

inner() {
  cell inner/sgd $SEEDS -- 4 50 $Sgd $Nesterov
  cell inner/muon $SEEDS -- 4 50 $Muon $Keep $Nesterov
  report inner client_optimizer 'Optimizer of the workers'
}

state() {
  cell state $SEEDS --grid=client_optimizer_state=reset,average -- 4 50 $AdamW $Nesterov
  report state client_optimizer_state "The state of the workers' AdamW between rounds"
}

outer() {
  cell outer/sgd $SEEDS -- 4 50 $AdamW $Keep --server_optimizer=sgd --server_learning_rate=1
  for server in adam yogi; do
    cell outer/$server $SEEDS -- 4 50 $AdamW $Keep --server_optimizer=$server --server_learning_rate=0.01
  done
  report outer server_optimizer 'Optimizer of the server'
}

steps() {
  for steps in 10 200; do
    cell steps/$steps $SEEDS -- 4 $steps $AdamW $Keep $Nesterov
  done
  report steps local_steps 'Local steps between two rounds'
}

workers() {
  for workers in 2 8; do
    cell workers/$workers $SEEDS -- $workers 50 $AdamW $Keep $Nesterov
  done
  report workers clients_per_round 'Workers'
}

for name in ${*:-base inner state outer steps workers}; do
  $name
done
