#!/bin/sh
# A model for each client on Fashion-MNIST and CIFAR-100, beside PFLlib's leaderboard.
#
# usage: sh results/personal_models/run.sh DIR [fashion] [cifar100]    See research/studies.sh.
#
# DIR has the four files of Fashion-MNIST, such as train-images-idx3-ubyte.gz, and cifar100.npz. ROUNDS, 200 by default, is the
# number of rounds of each method; PFLlib has 2000. With more the same command goes on. pfllib*.csv are of PFLlib's own program:
# sh scripts/env/setup_peers.sh pfllib && python -m research.experiments.beside_pfllib --data_dir=DIR --methods=FedAvg --rounds=10
. research/studies.sh

small="--rounds=${ROUNDS:-200}"
if [ -n "${SMOKE:-}" ]; then small='--smoke'; fi
mkdir -p "$RESULTS"

fashion() {
  program experiments.personal_models --data_dir="$DIR" --results="$RESULTS/personal_models" --runs="$RUNS" $small
}

cifar100() {
  program experiments.personal_models --task=cifar100_pfllib --data_dir="$DIR" --results="$RESULTS/cifar100" \
    --runs="$RUNS/cifar100" $small
}

parts fashion cifar100
