#!/bin/sh
# The Shakespeare benchmark of "Adaptive Federated Optimization", whole: five server optimizers, and what the clients'
# weights and other differences from the authors' code change.
#
# usage: sh results/shakespeare/run.sh DIR [PART ...]    See research/studies.sh.
#
# DIR holds shakespeare.sqlite. A run takes an hour of one core with other work beside it. SEEDS has the seeds of `tokens` and
# `uniform`; the other parts have seed 1.
. research/studies.sh

SEEDS=${SEEDS:-1 2 3}
ALL='fed_adagrad fed_adam fed_yogi fed_avgm fed_avg'

# The clients' weights in the mean: tokens, as the authors' code has them, which is the task's default, or equal weights.
tokens() { compare tokens "$ALL" "$SEEDS"; }
uniform() { compare uniform "$ALL" "$SEEDS" --client_weighting=uniform; }
examples() { compare examples 'fed_adagrad fed_avg' 1 --client_weighting=examples; }
cap_64() { compare cap_64 'fed_adagrad fed_avg' 1 --max_examples_per_client=64; }

# Adam as Keras has it, and Yogi likewise: v begins at 0 and its bias is corrected.
keras() { compare keras 'fed_adam fed_yogi' 1 --beta2=0.999 --bias_correction --initial_v=0; }

# The loss without padded positions.
padding() { compare padding fed_avgm 2 --task_option=padding=tff; }

# The time of a whole run, with an evaluation on all test data every 50 rounds.
end_to_end() {
  train --flagfile=scripts/configs/shakespeare.flags --task_option=lstm=compiled --algorithm=fed_avg --seed=2 \
    --rounds_per_evaluation=50 --data_dir="$DIR" --output_dir="$RUNS/end_to_end"
  report end_to_end end_to_end
}

compare() { # NAME ALGORITHMS SEEDS FLAGS
  name=$1 algorithms=$2 seeds=$3
  shift 3
  for seed in $seeds; do
    for algorithm in $algorithms; do
      for rounds in '--rounds=1100 --rounds_per_evaluation=100' '--rounds=1200 --rounds_per_evaluation=10'; do
        case $rounds in
          *1100*) if grep -qs '^1100,' "$RUNS/$name/$algorithm-$seed/metrics.csv"; then continue; fi ;;
        esac
        train --flagfile=scripts/configs/shakespeare.flags --task_option=lstm=compiled --algorithm="$algorithm" \
          --seed="$seed" --data_dir="$DIR" --output_dir="$RUNS/$name/$algorithm-$seed" $rounds "$@"
      done
    done
  done
  report "$name" "$name" --window=100
}

parts tokens uniform examples cap_64 keras padding end_to_end
