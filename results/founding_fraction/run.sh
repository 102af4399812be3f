#!/bin/sh
# "Communication-Efficient Learning", table 1: rounds to 97 % on MNIST's 2NN by the share of the clients.
#
# usage: sh results/founding_fraction/run.sh DIR    See research/studies.sh.
. research/studies.sh

sweep fraction --grid=clients_per_round=1,10,20,50,100 --grid=task_option=split=iid,split=shards -- --task=mnist_2nn \
  --algorithm=fed_avg --batch_size=10 --client_learning_rate=0.1 --rounds=400 --rounds_per_evaluation=1 \
  --rounds_per_checkpoint=100 --target=0.97 --stop_at_target --data_dir="$DIR"
report fraction founding_fraction --target=0.97 --columns=rounds,reached,seconds --formats=md \
  --title='Rounds to 97 % by the clients of a round, of 100'
