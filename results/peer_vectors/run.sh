#!/bin/sh
# Which library computes which algorithm: TFF, Flower, pfl-research and FedJAX against the test vectors.
#
# usage: sh results/peer_vectors/run.sh    See research/studies.sh.
. research/studies.sh

# First: sh scripts/env/setup_peers.sh pfl flower fedjax
program peer_vectors
