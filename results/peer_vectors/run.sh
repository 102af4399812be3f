#!/bin/sh
# Which library computes which algorithm: TFF, Flower, pfl-research and FedJAX against the test vectors.
#
# usage: sh results/peer_vectors/run.sh    See research/studies.sh.
. research/studies.sh

# First: sh scripts/env/setup_peers.sh pfl flower fedjax
if [ -n "${SMOKE:-}" ]; then # Of TFF alone, which needs no other environment.
  mkdir -p "$RESULTS"
  $PY research/peers/vector_rounds.py tff vectors/least_squares.json > "$RESULTS/tff.txt"
else
  program peer_vectors
fi
