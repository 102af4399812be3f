#!/bin/sh
# Accuracy of the worst clients: q-FedAvg and AFL beside FedAvg, on Adult's two clients and on 300 writers of FEMNIST.
#
# usage: sh results/fairness/run.sh DIR    See research/studies.sh. Twenty minutes on a free core.
# fair_flearn.csv is of the program of q-FFL's authors:
# sh scripts/env/setup_peers.sh fair_flearn && python -m research.experiments.beside_fair_flearn --data_dir=DIR
. research/studies.sh

small=
if [ -n "${SMOKE:-}" ]; then small=--smoke; fi
mkdir -p "$RESULTS"
program experiments.fairness --data_dir="$DIR" --results="$RESULTS/fairness" $small
