#!/bin/sh
# AdaBest's Table 2 on 6,862 letters, all 26, of other sources: participation of 1, 10 and 100 %.
#
# usage: sh results/participation/run.sh DIR    See research/studies.sh.
. research/studies.sh

for cell in '1100 10 1000 0.2,0.4,0.6' '110 10 1200 0.6,0.96' '110 100 200 0.96,0.98'; do
  set -- $cell
  sweep "$1-$2" --grid=seed=0,1,2 --grid=task_option=alpha=0.03,alpha=0.3,alpha=inf \
    --grid=algorithm=fed_avg,scaffold_m,fed_dyn,ada_best --grid=beta="$4" -- \
    --flagfile=scripts/configs/participation_letters.flags --task_option=letters=26 --task_option=num_clients="$1" \
    --clients_per_round="$2" --rounds="$3" --rounds_per_checkpoint="$3" --data_dir="$DIR"
done
report . participation --form=crossed --rows=participation,task_option --columns=algorithm --metric=test_accuracy \
  --formats=md,csv
