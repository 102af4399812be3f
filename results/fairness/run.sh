#!/bin/sh
# Accuracy of the worst clients: q-FedAvg and AFL beside FedAvg, on Adult's two clients and on 300 writers of FEMNIST.
#
# usage: sh results/fairness/run.sh DIR    See research/studies.sh. Twenty minutes on a free core.
. research/studies.sh

small=
if [ -n "${SMOKE:-}" ]; then small=--smoke; fi
mkdir -p "$RESULTS"
program experiments.fairness --data_dir="$DIR" --results="$RESULTS/fairness" $small
