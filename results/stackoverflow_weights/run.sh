#!/bin/sh
# FedAvgM and FedAvg with clients weighted by tokens and equally, on three Stack Exchange sites in the format of Stack Overflow.
#
# usage: sh results/stackoverflow_weights/run.sh DIR    See research/studies.sh.
. research/studies.sh

# A short run: few clients and rounds. The committed table is of 322 users with 33,659 sentences.
sweep weights --grid=client_weighting=tokens,uniform --grid=algorithm=fed_avgm,fed_avg -- \
  --task=stackoverflow_nwp --task_option=lstm=compiled --clients_per_round=10 --rounds=60 \
  --rounds_per_evaluation=10 --seed=1 --data_dir="$DIR"
report weights stackoverflow_weights --form=crossed --rows=client_weighting --columns=algorithm \
  --window=20 --formats=md --title='Accuracy by the weights of the clients'
