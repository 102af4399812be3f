#!/bin/sh
# Writes the lock files anew, all with hashes:
#   requirements.lock      what `make env` installs, from requirements.in, requirements.overrides and requirements-tff.in
#   requirements-dev.lock  what tests, checks and documentation need besides, from requirements-dev.in
#   requirements-gpu.lock  the CUDA libraries, from requirements-gpu.in
#   requirements-ray.lock  what the image of a cluster has besides, from requirements-ray.in
#
# Uses the uv on PATH; without one, a uv installed into a folder that is removed at the end.
# Options are handed on to uv: 'sh scripts/env/lock.sh --upgrade' takes the newest versions allowed.
set -eu
cd "$(dirname "$0")/../.."
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT

uv=uv
if ! command -v uv >/dev/null 2>&1; then
  .venv/bin/python -m venv "$temporary/venv"
  "$temporary/venv/bin/python" -m pip install --quiet --disable-pip-version-check uv
  uv=$temporary/venv/bin/uv
fi
compile() {
  "$uv" pip compile --quiet --generate-hashes --no-emit-index-url --custom-compile-command 'make lock' "$@"
}
everywhere='--universal --python-version 3.10'
overridden="$everywhere --override requirements.overrides"

# The metadata of these packages refuse today's Pythons, so they are resolved alone, for a Python that they accept.
compile --no-deps --python-version 3.11 requirements-tff.in -o "$temporary/tff.lock"
# uv keeps the versions of an output file that exists; the three packages above would not resolve.
sed '/^tensorflow-\(federated\|privacy\|model-optimization\)==/,/# via/d' requirements.lock >"$temporary/main.lock" || true
compile $overridden requirements.in -o "$temporary/main.lock" "$@"
{ cat "$temporary/main.lock"; grep -v '^#' "$temporary/tff.lock"; } >requirements.lock

compile $overridden --constraint "$temporary/main.lock" requirements-dev.in -o requirements-dev.lock "$@"
compile $everywhere --constraint "$temporary/main.lock" requirements-gpu.in -o requirements-gpu.lock "$@"
# The image has one Python; what both locks have is the same version in both.
compile --python-version 3.12 --python-platform x86_64-manylinux_2_28 --override requirements.overrides \
  --constraint "$temporary/main.lock" requirements-ray.in -o requirements-ray.lock
# uv names the constraints in comments; the temporary file has the versions of requirements.lock.
for lock in requirements-dev.lock requirements-gpu.lock requirements-ray.lock; do
  sed "s|$temporary/main.lock|requirements.lock|" "$lock" >"$temporary/named.lock"
  cp "$temporary/named.lock" "$lock"
done
