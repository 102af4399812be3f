#!/bin/sh
# Accuracy by the bytes that clients send: five algorithms and eight ways to compress, on digits by writer and on letters;
# virtual time by uplink; SparseLoCo beside DiLoCo.
#
# usage: sh results/compression/run.sh DIR    See research/studies.sh. Four hours on a free core.
. research/studies.sh

small=
if [ -n "${SMOKE:-}" ]; then small=--smoke; fi
mkdir -p "$RESULTS"

digits() {
  program experiments.compression --data_dir="$DIR" --problems='EMNIST digits by writer' --stages=bytes \
    --rates=0.1,0.03,0.01 --results="$RESULTS/digits" $small
}

clock() { # Adds to the rows of digits, whose rates it takes.
  program experiments.compression --data_dir="$DIR" --problems='EMNIST digits by writer' --stages=clock \
    --rates=0.1,0.03,0.01 --methods=FedAvg --compressions='none,"top 5 %, EF14",8 bits,"top 5 % + 4 bits, EF14"' \
    --results="$RESULTS/digits" $small
}

letters() {
  program experiments.compression --data_dir="$DIR" --problems='EMNIST letters' --stages=bytes \
    --rates=0.3,0.1 --rounds=60 --results="$RESULTS/letters" $small
}

text() {
  program experiments.compression --data_dir="$DIR" --problems='EMNIST letters' --stages=text \
    --rounds=8 --results="$RESULTS/text" $small
}

parts digits clock letters text
