#!/bin/sh
# Writes requirements.lock anew from requirements.in and requirements.overrides,
# requirements-gpu.lock, the CUDA libraries, from requirements-gpu.in, and requirements-ray.lock, what the
# image of a cluster has besides, from requirements-ray.in; all with hashes.
#
# Uses the uv on PATH; without one, a uv installed into a folder that is removed at the end.
# Options are handed on to uv: 'sh scripts/env/lock.sh --upgrade' takes the newest versions allowed.
set -eu
cd "$(dirname "$0")/../.."

uv=uv
if ! command -v uv >/dev/null 2>&1; then
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  .venv/bin/python -m venv "$folder"
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check uv
  uv=$folder/bin/uv
fi
compile() {
  "$uv" pip compile --quiet --generate-hashes --no-emit-index-url --custom-compile-command 'make lock' "$@"
}
everywhere='--universal --python-version 3.10'
compile $everywhere --override requirements.overrides requirements.in -o requirements.lock "$@"
compile $everywhere requirements-gpu.in -o requirements-gpu.lock "$@"
# The image has one Python; what both locks have is the same version in both.
compile --python-version 3.11 --python-platform x86_64-manylinux_2_28 --override requirements.overrides \
  --constraint requirements.lock requirements-ray.in -o requirements-ray.lock
