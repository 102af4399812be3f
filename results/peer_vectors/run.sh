#!/bin/sh
# Which library computes which algorithm: ten libraries against the test vectors.
#
# usage: sh results/peer_vectors/run.sh    See research/studies.sh.
. research/studies.sh

# First: sh scripts/env/setup_peers.sh
if [ -n "${SMOKE:-}" ]; then # Of TFF alone, which needs no other environment.
  mkdir -p "$RESULTS"
  $PY -m research.peers.vector_rounds tff vectors/least_squares.json > "$RESULTS/tff.txt"
else
  program peer_vectors
fi
