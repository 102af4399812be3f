#!/bin/sh
# Makes an environment in .peers/ for each toolkit that research/peer_vectors.py compares with.
# They cannot share the project's own: each pins other versions of what it builds on.
#
# usage: sh scripts/env/setup_peers.sh [pfl] [flower] [fedjax]   (all without a name)
set -eu
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3.11}

make_one() {
  echo "peers: making .peers/$1 ..."
  "$python" -m venv ".peers/$1"
  shift_name=$1
  shift
  ".peers/$shift_name/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
}

mkdir -p .peers
[ "$#" -gt 0 ] || set -- pfl flower fedjax
for peer in "$@"; do
  case "$peer" in
    pfl) make_one pfl torch==2.13.0 pfl==0.6.0 ;;
    flower) make_one flower flwr==1.41.0 ;;
    fedjax) make_one fedjax fedjax==0.0.17 jax==0.10.2 ;;
    *)
      echo "setup_peers.sh: no peer '$peer': pfl, flower, fedjax" >&2
      exit 2
      ;;
  esac
done
