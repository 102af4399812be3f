#!/bin/sh
# The paper's experiments with text, with other weights of the clients and with what may differ in the authors' code:
# trains what is missing, and writes results/shakespeare_NAME.* and results/stackoverflow_weights.md.
#
# usage: sh research/experiments/text.sh DIR [NAME ...]
#
# DIR holds shakespeare.sqlite and Stack Overflow's files. SEED is 1 by default; give each seed another RUNS, and rename what
# it writes. A run of Shakespeare takes an hour of one core. The same command continues runs that are not complete.
RUNS=${RUNS:-runs/text}
SEED=${SEED:-1}
. "$(dirname "$0")/sweeps.sh"
ALL='fed_adagrad fed_adam fed_yogi fed_avgm fed_avg'

# The clients' weights in the mean.
uniform() { compare uniform "$ALL" --client_weighting=uniform; }
examples() { compare examples 'fed_adagrad fed_avg' --client_weighting=examples; }
cap_64() { compare cap_64 'fed_adagrad fed_avg' --max_examples_per_client=64; }

# Adam as Keras has it, and Yogi likewise: v begins at 0 and its bias is corrected.
keras() { compare keras 'fed_adam fed_yogi' --beta2=0.999 --bias_correction --initial_v=0; }

# The clients that the authors' code draws in each round, by TFF's sampler and its default seed.
authors_cohorts() {
  TRAIN=train_with_their_cohorts
  compare authors_cohorts fed_avgm
  TRAIN=train
}

# A short run: few clients and rounds. The committed table is of three smaller Stack Exchange sites in Stack Overflow's format.
stackoverflow_weights() {
  sweep "stackoverflow_weights-$SEED" --grid=client_weighting=tokens,uniform --grid=algorithm=fed_avgm,fed_avg -- \
    --task=stackoverflow_nwp --task_option=lstm=compiled --clients_per_round=10 --rounds=60 \
    --rounds_per_evaluation=10 --seed="$SEED" --data_dir="$DIR"
  report "stackoverflow_weights-$SEED" stackoverflow_weights --form=crossed --rows=client_weighting --columns=algorithm \
    --window=20 --formats=md --title='Accuracy by the weights of the clients'
}

compare() { # NAME ALGORITHMS FLAGS
  name=$1 algorithms=$2
  shift 2
  for algorithm in $algorithms; do
    for rounds in '--rounds=1100 --rounds_per_evaluation=100' '--rounds=1200 --rounds_per_evaluation=10'; do
      case $rounds in
        *1100*) if grep -qs '^1100,' "$RUNS/$name/$algorithm-$SEED/metrics.csv"; then continue; fi ;;
      esac
      $TRAIN --flagfile=scripts/configs/shakespeare.flags --task_option=lstm=compiled --algorithm="$algorithm" \
        --seed="$SEED" --data_dir="$DIR" --output_dir="$RUNS/$name/$algorithm-$SEED" $rounds "$@"
    done
  done
  report "$name" "shakespeare_$name" --window=100
}

train() { $PY scripts/train.py "$@"; }
TRAIN=train

train_with_their_cohorts() {
  PYTHONPATH=. $PY - "$@" <<'END'
import sys

import numpy as np
import tensorflow_federated as tff

from scripts import train
from tff_adaptive.training import cohorts

draw = tff.simulation.build_uniform_sampling_fn(range(715), random_seed=1)
cohorts.sample = lambda seed, round_number, num_clients, size: np.asarray(draw(round_number - 1, size))
sys.exit(train.main(['train.py', *sys.argv[1:]]))
END
}

for name in ${*:-uniform examples cap_64 keras authors_cohorts stackoverflow_weights}; do
  $name
done
