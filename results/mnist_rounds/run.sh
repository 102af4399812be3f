#!/bin/sh
# Rounds of FedAvg to 97 % (2NN) and 99 % (CNN) on MNIST by C, E and B, IID and with two label shards a client.
#
# usage: sh results/mnist_rounds/run.sh DIR    See research/studies.sh.
. research/studies.sh

# "Communication-Efficient Learning", tables 1 and 2. A run ends at its target.
Ends='--rounds_per_evaluation=1 --stop_at_target --seed=0'

two_nn() {
  for cell in '10 0.1' '0 0.5'; do # B and the client rate.
    set -- $cell
    sweep mnist_2nn/$1 --grid=task_option=split=iid,split=shards --grid=clients_per_round=10,50 \
      --grid=client_epochs=1,5 -- --task=mnist_2nn --algorithm=fed_avg --batch_size=$1 \
      --client_learning_rate=$2 --rounds=1500 --target=0.97 $Ends --data_dir="$DIR"
  done
  report mnist_2nn mnist_2nn --target=0.97 --columns=rounds,reached --formats=md
}

cnn() {
  for cell in '10 1 300' '10 5 60' '50 1 60'; do # Clients a round, E, and the most rounds.
    set -- $cell
    sweep mnist_cnn/$1-$2 --grid=task_option=split=iid,split=shards -- --task=mnist_cnn --algorithm=fed_avg \
      --clients_per_round=$1 --client_epochs=$2 --batch_size=10 --client_learning_rate=0.1 --rounds=$3 \
      --target=0.99 $Ends --data_dir="$DIR"
  done
  report mnist_cnn mnist_cnn --target=0.99 --columns=rounds,reached --formats=md
}

parts two_nn cnn
