#!/bin/sh
# SCAFFOLD/m with gradients clipped at 10, where it diverges without.
#
# usage: sh results/founding_clip/run.sh DIR    See research/studies.sh.
. research/studies.sh

# FedDyn's published code clips the gradient at 10.
for cell in '1100 10 1000' '110 10 1200' '110 100 200'; do
  set -- $cell
  sweep "$1-$2" --grid=seed=0,1,2 --grid=task_option=alpha=0.03,alpha=0.3,alpha=inf --grid=clip_norm=10 -- \
    --flagfile=scripts/configs/participation_letters.flags --algorithm=scaffold_m --task_option=letters=26 \
    --task_option=num_clients=$1 --clients_per_round=$2 --rounds=$3 --rounds_per_checkpoint=$3 --data_dir="$DIR"
done
report . founding_clip --form=crossed --rows=participation,task_option --columns=algorithm --metric=test_accuracy \
  --formats=md --title='SCAFFOLD/m with gradients clipped at 10'
