#!/bin/sh
# FedAvg with the CNN on MNIST, two label shards a client, beside Flower's committed curves, round by round.
#
# usage: sh results/mnist_flower/run.sh DIR    See research/studies.sh.
#
# DIR holds mnist_digits.npz and published/published_curves_flower.json, the accuracies by round of Flower's baseline
# fedavg_mnist as JSON: {"fedavg_mnist": {"C=100_B=10_E=1_R=1000_stag=0.0": {"accuracy": [[0, 0.05], ...]}}}.
. research/studies.sh

for cell in '1 50' '5 10'; do # E and the rounds.
  set -- $cell
  train --task=mnist_cnn --task_option=split=shards --algorithm=fed_avg --clients_per_round=10 --client_epochs=$1 \
    --batch_size=10 --client_learning_rate=0.1 --rounds=$2 --rounds_per_evaluation=1 --rounds_per_checkpoint=5 \
    --seed=0 --data_dir="$DIR" --output_dir="$RUNS/E=$1"
done
program experiments.beside_flower --runs="$RUNS" --published="$DIR/published/published_curves_flower.json" \
  --results="$RESULTS/mnist_flower"
