#!/bin/sh
# Makes .venv with the locked dependencies and this package; does nothing where that is done.
#
#   sh scripts/env/setup_env.sh          PYTHON=/path/to/python3.10 sh scripts/env/setup_env.sh
#   sh scripts/env/setup_env.sh --gpu    the CUDA libraries of requirements-gpu.lock too
#
# .venv/installed holds what it was made from; .venv/installing exists while it is being made, so
# that an interrupted installation is known and redone from the beginning.
set -eu
cd "$(dirname "$0")/../.."

say() { printf 'set-up: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
pip() { .venv/bin/python -m pip --quiet --quiet --disable-pip-version-check --no-input "$@"; }

case "${1:-}" in
  '' | --gpu) option=${1:-} ;;
  *) fail "unknown option '$1': --gpu, or none." ;;
esac

# The CUDA libraries, if they are asked for; .venv/installed-gpu says which are there.
install_cuda() {
  cuda=$(cksum <requirements-gpu.lock)
  if [ "$option" != --gpu ] || [ "$(cat .venv/installed-gpu 2>/dev/null)" = "$cuda" ]; then
    return
  fi
  say 'installing the CUDA libraries into .venv (1.6 GB to fetch, 3 GB of disk; only this once).'
  pip install --require-hashes --no-deps -r requirements-gpu.lock ||
    fail 'pip could not install the CUDA libraries: see the lines above; check the network' \
      'connection and that 5 GB of disk are free, and run this again.'
  printf '%s\n' "$cuda" >.venv/installed-gpu
}

# One set-up at a time, where two commands are started at once.
if command -v flock >/dev/null 2>&1; then
  exec 9<scripts/env/setup_env.sh
  flock 9
fi

made_from="$(pwd) $(cat requirements.lock setup.py pyproject.toml tff_adaptive/_version.py | cksum)"
if [ ! -e .venv/installing ] && [ "$(cat .venv/installed 2>/dev/null)" = "$made_from" ] &&
  .venv/bin/python -c '' 2>/dev/null; then
  install_cuda
  exit 0
fi

[ "$(uname -sm)" = 'Linux x86_64' ] ||
  fail "TensorFlow Federated 0.87.0 is published for Linux on x86-64 only and this is" \
    "$(uname -sm): use a Linux x86-64 machine, container or virtual machine."

# Runs a Python to see what it is: shims of version managers exist that cannot be run.
version_of() {
  "$1" -c 'import platform, sys
print(platform.python_implementation(), platform.python_version())' 2>/dev/null
}

is_usable() {
  case "$(version_of "$1")" in
    'CPython 3.10.'* | 'CPython 3.11.'*) ;;
    *) return 1 ;;
  esac
  "$1" -c 'import sys; sys.exit(sys.maxsize < 2**32)' 2>/dev/null
}

has_venv() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

if [ -e .venv/installing ]; then
  say 'the last installation was interrupted: beginning again.'
  rm -rf .venv
fi

if [ -d .venv ]; then
  is_usable .venv/bin/python ||
    fail "the Python of .venv is missing or is not CPython 3.10 or 3.11" \
      "($(version_of .venv/bin/python || echo 'it does not run')): remove it with" \
      "'rm -rf .venv' and run this again."
else
  python=''
  without_venv=''
  seen=''
  if [ -n "${PYTHON:-}" ]; then
    is_usable "$PYTHON" ||
      fail "PYTHON=$PYTHON is not CPython 3.10 or 3.11" \
        "($(version_of "$PYTHON" || echo 'it does not run')): name another one, or none."
    set -- "$PYTHON"
  else
    set -- python3.11 python3.10 python3 python
    for place in "${PYENV_ROOT:-$HOME/.pyenv}/versions" /opt/python /usr/local /opt; do
      for minor in 11 10; do
        for found in "$place"/3."$minor".*/bin/python "$place"/cp3"$minor"-cp3"$minor"/bin/python \
          "$place"/bin/python3."$minor" "$place"/python3."$minor"/bin/python3."$minor"; do
          if [ -x "$found" ]; then set -- "$@" "$found"; fi
        done
      done
    done
  fi
  for candidate in "$@"; do
    version=$(version_of "$candidate") || continue
    seen="$seen${seen:+, }$candidate is $version"
    is_usable "$candidate" || continue
    if has_venv "$candidate"; then
      python=$candidate
      break
    fi
    without_venv=${without_venv:-$candidate}
  done

  if [ -z "$python" ] && [ -z "${PYTHON:-}" ] && command -v uv >/dev/null 2>&1; then
    say 'no CPython 3.10 or 3.11 that can make virtual environments: fetching one with uv.'
    export UV_PYTHON_PREFERENCE=only-managed
    uv python install 3.11 && python=$(uv python find 3.11) ||
      fail 'uv could not fetch CPython 3.11: see the lines above, or install CPython 3.10 or 3.11.'
  fi

  if [ -n "$python" ]; then
    say "making .venv with $python ($(version_of "$python"))."
    mkdir .venv
    : >.venv/installing
    "$python" -m venv .venv || fail "$python could not make .venv: see the lines above."
  elif [ -n "$without_venv" ]; then
    minor=$(version_of "$without_venv" | sed 's/.* \(3\.[0-9]*\).*/\1/')
    fail "$without_venv is CPython $minor but lacks the module ensurepip, which makes virtual" \
      "environments: install it ('apt-get install python$minor-venv' on Debian and Ubuntu)" \
      "and run this again."
  else
    fail "CPython 3.10 or 3.11 is needed and none was found (${seen:-no Python at all}):" \
      "install one ('apt-get install python3.11 python3.11-venv', 'dnf install" \
      "python3.11', 'pyenv install 3.11'), or uv, which fetches one, and run this again."
  fi
fi

: >.venv/installing
rm -f .venv/installed
say 'installing the locked packages into .venv (2.9 GB, two to three minutes; only this once).'
pip install --require-hashes --no-deps -r requirements.lock --no-compile ||
  fail 'pip could not install the locked packages: see the lines above; check the network' \
    'connection and that 6 GB of disk are free, and run this again.'
# pip would compile with one processor; this uses all. Some packages contain files that Python 3
# cannot compile; nothing imports them, so their errors are ignored.
.venv/bin/python -m compileall -q -j 0 .venv/lib >/dev/null 2>&1 || true
pip install --no-deps --no-build-isolation --config-settings editable_mode=compat -e . ||
  fail 'pip could not install this package: see the lines above.'
printf '%s\n' "$made_from" >.venv/installed
rm -f .venv/installing
install_cuda
say 'done.'
