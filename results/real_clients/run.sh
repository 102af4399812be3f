#!/bin/sh
# Corrections with SGD and Yogi on the server, with clients that fail, are unavailable or miss a deadline.
#
# usage: sh results/real_clients/run.sh DIR    See research/studies.sh.
. research/studies.sh

# The rates of a pair are those with which the accuracy was best in the ideal scenario, with another seed.
Clock='--speed_sigma=1 --downlink=10 --uplink=2 --bandwidth_sigma=0.5 --heldout_clients=0.1 --target=0.9'
Shifts='--availability_option=unit=rounds --availability_option=period=50 --availability_option=share=0.3'

Scenarios='ideal dropout diurnal drop partial'

scenarios() { # TASK ALGORITHM SERVER CLIENT-RATE SERVER-RATE FLAGS
  task=$1
  what="--algorithm=$2 --server_optimizer=$3"
  if [ $2 = fed_avg ] && [ $3 = yogi ]; then what=--algorithm=fed_yogi; fi
  pair="$what --client_learning_rate=$4 --server_learning_rate=$5"
  pair_name=$2-$3
  shift 5
  for scenario in $Scenarios; do
    case $scenario in
      ideal) what= ;;
      dropout) what=--dropout_rate=0.3 ;;
      diurnal) what="--availability=diurnal $Shifts" ;;
      drop) what='--round_deadline=15 --stragglers=drop' ;;
      partial) what='--round_deadline=15 --stragglers=partial' ;;
    esac
    sweep $task/$scenario/$pair_name --grid=seed=0,1,2 -- $pair "$@" $what $Clock
  done
}

tables() { # FOLDER: accuracy by virtual time, a table and a figure for each scenario
  for scenario in $Scenarios; do
    report $1/$scenario $1_$scenario --x=virtual_seconds --label_by=algorithm,server_optimizer
  done
}

emnist() {
  for algorithm in fed_avg fed_prox scaffold fed_dyn ada_best; do
    for server in 'sgd 1' 'yogi 0.003'; do
      set -- $server
      scenarios emnist $algorithm $1 0.03 $2 --flagfile=scripts/configs/emnist_digits.flags \
        --task_option=model=2nn --rounds=150 --rounds_per_client_evaluation=150 --seconds_per_step=1.7 \
        --data_dir="$DIR"
    done
  done
  tables emnist
}

mnist() {
  while read -r algorithm server client_rate server_rate; do
    scenarios mnist $algorithm $server $client_rate $server_rate --flagfile=scripts/configs/drift_mnist.flags \
      --task_option=alpha=0.03 --rounds=100 --rounds_per_client_evaluation=100 --seconds_per_step=0.15 \
      --data_dir="$DIR"
  done <<END
fed_avg sgd 0.3 1
fed_prox sgd 0.3 1
scaffold sgd 0.1 1
fed_dyn sgd 0.1 1
ada_best sgd 0.1 1
fed_avg yogi 0.3 0.01
fed_prox yogi 0.3 0.01
scaffold yogi 0.1 0.01
fed_dyn yogi 0.3 0.003
ada_best yogi 0.3 0.01
END
  tables mnist
}

parts emnist mnist
