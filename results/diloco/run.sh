#!/bin/sh
# Pseudo-gradients on a laptop (DiLoCo): one choice at a time.
#
# usage: sh results/diloco/run.sh DIR [PART ...]    See research/studies.sh.
#
# DIR holds shakespeare.sqlite. A transformer of 1.3 million parameters reads 2,048,000 positions of Shakespeare, padding
# included, in each run. One setting varies at a time around the base: AdamW at 4 workers, which keep its state, 50 local
# steps of eight sequences of 80 positions, Nesterov momentum (rate 0.7, momentum 0.9) on the server.
#
# The rates below have the least validation loss of `rates`.
. research/studies.sh

SEEDS='--grid=seed=1,2,3'
Keep='--client_optimizer_state=keep'
# Decays as in the paper.
AdamW='--client_optimizer=adamw --client_optimizer_option=beta2=0.95 --client_optimizer_option=decay=0.1'
AdamW_rate='--client_learning_rate=0.001'
Sgd='--client_optimizer=sgd --client_learning_rate=0.3'
Muon='--client_optimizer=muon --client_learning_rate=0.003'
Nesterov='--algorithm=fed_avg --server_optimizer=nesterov --server_learning_rate=0.7'
Adaptive_rate='--server_learning_rate=0.03'

settings() { # WORKERS STEPS TRAIN'S-FLAGS: the flags of a run of 3,200 steps in all
  workers=$1 steps=$2
  shift 2
  echo --task=shakespeare_transformer --data_dir="$DIR" --task_option=workers=$workers --clients_per_round=$workers \
    --local_steps=$steps --continue_batches --batch_size=8 --clip_norm=1 \
    --rounds=$((3200 / workers / steps)) --rounds_per_evaluation=$((800 / workers / steps)) \
    --rounds_per_checkpoint=1000 "$@"
}

# Client rates, and rates of the adaptive servers, with half the steps and a seed that does not count.
rates() {
  sweep rates/adamw --grid=seed=100 --grid=client_learning_rate=0.0003,0.001,0.003 -- \
    $(settings 4 50 $AdamW $Keep $Nesterov) --rounds=8
  sweep rates/sgd --grid=seed=100 --grid=client_learning_rate=0.1,0.3,1 -- $(settings 4 50 $Nesterov) --rounds=8
  sweep rates/muon --grid=seed=100 --grid=client_learning_rate=0.001,0.003,0.01 -- \
    $(settings 4 50 --client_optimizer=muon $Keep $Nesterov) --rounds=8
  sweep rates/server --grid=seed=100 --grid=algorithm=fed_adam,fed_yogi --grid=server_learning_rate=0.003,0.01,0.03,0.1 -- \
    $(settings 4 50 $AdamW $AdamW_rate $Keep) --rounds=8
  report rates diloco_rates --label_by=client_optimizer,client_learning_rate,algorithm,server_learning_rate \
    --metric=validation_loss,validation_accuracy --formats=md --title='Rates, eight rounds, seed 100'
}

base() {
  sweep base $SEEDS -- $(settings 4 50 $AdamW $AdamW_rate $Keep $Nesterov)
}

inner() {
  sweep inner/sgd $SEEDS -- $(settings 4 50 $Sgd $Nesterov)
  sweep inner/muon $SEEDS -- $(settings 4 50 $Muon $Keep $Nesterov)
}

state() {
  sweep state $SEEDS --grid=client_optimizer_state=reset,average -- $(settings 4 50 $AdamW $AdamW_rate $Nesterov)
}

outer() {
  sweep outer/sgd $SEEDS -- $(settings 4 50 $AdamW $AdamW_rate $Keep --algorithm=fed_avg)
  sweep outer/adaptive $SEEDS --grid=algorithm=fed_adam,fed_yogi -- \
    $(settings 4 50 $AdamW $AdamW_rate $Keep $Adaptive_rate)
}

steps() {
  for steps in 10 200; do
    sweep steps/$steps $SEEDS -- $(settings 4 $steps $AdamW $AdamW_rate $Keep $Nesterov)
  done
}

workers() {
  for workers in 2 8; do
    sweep workers/$workers $SEEDS -- $(settings $workers 50 $AdamW $AdamW_rate $Keep $Nesterov)
  done
}

# All settings in one table, and by round.
summary() {
  report base diloco "$RUNS/inner" "$RUNS/state" "$RUNS/outer" "$RUNS/steps" "$RUNS/workers" \
    --label_by=client_optimizer,client_optimizer_state,server_optimizer,local_steps,clients_per_round \
    --metric=validation_loss,validation_accuracy --formats=md,csv --title='Pseudo-gradients: one choice at a time'
}

parts base inner state outer steps workers summary
