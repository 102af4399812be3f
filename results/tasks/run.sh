#!/bin/sh
# Sixteen tasks for 20 rounds with FedYogi and FedAvg: losses, seconds and memory.
#
# usage: sh results/tasks/run.sh DIR    See research/studies.sh.
. research/studies.sh

# CIFAR's ResNet-18 trains for 160 rounds: it begins to learn late on some twenty images a client.
rounds_of() {
  case $1 in cifar10|cifar100) echo 160 ;; *) echo 20 ;; esac
}

for task in digits emnist_cr emnist_ae shakespeare stackoverflow_nwp stackoverflow_lr cifar100 cifar10 \
  emnist_letters cifar10_cnn cifar100_cnn digits_skewed mnist_skewed mnist_2nn mnist_cnn least_squares; do
  more=
  if [ $task = stackoverflow_nwp ]; then more='--clients_per_round=10 --max_examples_per_client=100'; fi
  sweep $task --grid=algorithm=fed_yogi,fed_avg -- --task=$task --rounds="$(rounds_of $task)" \
    --rounds_per_evaluation=20 --data_dir="$DIR" $more
done
report . tasks --form=tasks --formats=md
