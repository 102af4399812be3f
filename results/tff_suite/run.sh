#!/bin/sh
# TFF's own tests in the graph engine, beside TFF's own runtime.
#
# usage: sh results/tff_suite/run.sh DIR    See research/studies.sh.
. research/studies.sh

# DIR/federated is a checkout of tensorflow/federated at v0.87.0.
program tff_suite --source="$DIR/federated"
