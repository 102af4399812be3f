#!/bin/sh
# Corrections by server optimizers on MNIST, each pair with rates of its own.
#
# usage: sh results/composition/run.sh DIR    See research/studies.sh.
. research/studies.sh

# AdaBest's setting. `rates` shows which rates are best on the held-out clients; `pairs` has those that were.
plain() { # SERVER-OPTIMIZER: the algorithm without a correction.
  case $1 in sgd) echo fed_avg ;; *) echo fed_$1 ;; esac
}

MNIST="--flagfile=scripts/configs/drift_mnist.flags --task_option=alpha=0.03 --data_dir=$DIR"

rates() {
  for server in sgd adagrad adam yogi; do
    server_rates=0.01,0.03,0.1
    if [ $server = sgd ]; then server_rates=0.3,1; fi
    for correction in none fed_prox scaffold fed_dyn ada_best; do
      algorithm=$correction optimizer=--server_optimizer=$server
      if [ $correction = none ]; then algorithm=$(plain $server) optimizer=; fi
      sweep rates/$correction-$server --grid=client_learning_rate=0.03,0.1,0.3 \
        --grid=server_learning_rate=$server_rates -- $MNIST --task_option=validation=clients --rounds=50 \
        --seed=100 --algorithm=$algorithm $optimizer
    done
  done
}

pairs() {
  while read -r correction server client_rate server_rate; do
    algorithm=$correction optimizer=--server_optimizer=$server
    if [ $correction = none ]; then algorithm=$(plain $server) optimizer=; fi
    sweep pairs/$correction-$server --grid=seed=0,1,2 -- $MNIST --task_option=validation=clients --rounds=150 \
      --algorithm=$algorithm $optimizer --client_learning_rate=$client_rate --server_learning_rate=$server_rate
  done <<END
none sgd 0.3 1
none adagrad 0.3 0.03
none adam 0.3 0.01
none yogi 0.3 0.01
fed_prox sgd 0.3 1
fed_prox adagrad 0.3 0.03
fed_prox adam 0.3 0.01
fed_prox yogi 0.3 0.01
scaffold sgd 0.1 1
scaffold adagrad 0.1 0.03
scaffold adam 0.1 0.01
scaffold yogi 0.1 0.01
fed_dyn sgd 0.3 1
fed_dyn adagrad 0.3 0.03
fed_dyn adam 0.3 0.01
fed_dyn yogi 0.3 0.01
ada_best sgd 0.3 0.3
ada_best adagrad 0.3 0.03
ada_best adam 0.1 0.01
ada_best yogi 0.1 0.01
END
  report pairs composition --form=crossed --rows=correction --columns=server_optimizer --metric=test_accuracy \
    --formats=md --title='Corrections by server optimizers'
}

parts rates pairs
