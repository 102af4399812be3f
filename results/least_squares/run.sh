#!/bin/sh
# Where each algorithm ends on federated least squares beside closed forms; predicted and measured paths of FedAvg; rates of the theory.
#
# usage: sh results/least_squares/run.sh    See research/studies.sh.
. research/studies.sh

small=
if [ -n "${SMOKE:-}" ]; then small=--rounds=2; fi
mkdir -p "$RESULTS"
program experiments.least_squares --results="$RESULTS" $small
