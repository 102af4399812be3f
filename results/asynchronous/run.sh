#!/bin/sh
# Virtual seconds to a target accuracy: servers that wait for clients, and servers with a buffer.
#
# usage: sh results/asynchronous/run.sh DIR    See research/studies.sh.
. research/studies.sh

small=
if [ -n "${SMOKE:-}" ]; then small='--seeds=0 --sigmas=1 --shares=1 --updates=100'; fi
mkdir -p "$RESULTS"
program experiments.asynchronous --data_dir="$DIR" --results="$RESULTS/asynchronous" $small
