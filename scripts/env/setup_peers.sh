#!/bin/sh
# Makes an environment for each toolkit that research/benchmark.py can be compared with, in .peers/.
# They cannot share the project's own: each pins other versions of what it builds on.
#
# usage: sh scripts/env/setup_peers.sh [pfl]   (all of them without a name)
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
[ "$#" -gt 0 ] || set -- pfl
for peer in "$@"; do
  case "$peer" in
    pfl) make_one pfl torch==2.13.0 pfl==0.6.0 ;;
    *)
      echo "setup_peers.sh: no peer '$peer': pfl" >&2
      exit 2
      ;;
  esac
done
