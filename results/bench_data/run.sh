#!/bin/sh
# Rows of the bench on seven problems with real data, and the page of thirteen methods on all thirteen problems.
#
# usage: sh results/bench_data/run.sh DIR    See research/studies.sh. It does the runs whose rows are missing: an hour and a
# quarter on a free core.
#
# DIR holds the files of FLamby's two problems, MNIST, EMNIST letters, Fashion-MNIST and UCI's Adult (adult.data and
# adult.test). The rows of the six problems that need no files are those of results/bench.
. research/studies.sh

# FedAvg, the server optimizers, and corrections of several kinds. More methods would only widen the critical difference.
methods=fed_avg,fed_avgm,fed_adagrad,fed_adam,fed_yogi,fed_prox,scaffold,fed_dyn,ada_best,fed_exp,fed_cm,fed_dc,fed_acg

if [ -n "${SMOKE:-}" ]; then
  $PY scripts/bench.py --algorithm=fed_avg --problems=fed_heart --data_dir="$DIR" --output_dir="$RESULTS"
else
  problems=fed_heart,fed_tcga_brca,mnist,letters,letters_26,fashion,adult
  $PY scripts/bench.py --algorithm=$methods --problems=$problems --data_dir="$DIR" --output_dir="$RESULTS"
  $PY scripts/bench.py --algorithm=all --report_only --data_dir="$DIR" --output_dir="$RESULTS"
fi
