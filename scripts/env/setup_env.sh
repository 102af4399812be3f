#!/bin/sh
# Makes .venv with the locked dependencies and this package; does nothing where that is done.
#
#   sh scripts/env/setup_env.sh          PYTHON=/path/to/python3.11 sh scripts/env/setup_env.sh
#   sh scripts/env/setup_env.sh --dev    the tools of tests and documentation too (requirements-dev.lock)
#   sh scripts/env/setup_env.sh --gpu    TensorFlow's build with CUDA too (requirements-gpu.lock)
#
# This script finds a Python and makes the virtual environment; tff_adaptive/environment/install.py installs.
# .venv/installed holds what it was made from; .venv/installing exists while it is being made, so
# that an interrupted installation is known and redone from the beginning.
set -eu
cd "$(dirname "$0")/../.."

say() { printf 'set-up: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

option=${1:-}
case "$option" in
  '' | --dev | --gpu) addition=${option#--} ;;
  *) fail "unknown option '$option': --dev, --gpu, or none." ;;
esac

# Installs what the option asks for; .venv/installed-dev and -gpu say which are there.
install_addition() {
  if [ -z "$addition" ]; then
    return
  fi
  lock=$(cksum <"requirements-$addition.lock")
  if [ "$(cat ".venv/installed-$addition" 2>/dev/null)" = "$lock" ]; then
    return
  fi
  case "$addition" in
    dev) say 'installing the tools of tests and documentation into .venv (0.5 GB; only this once).' ;;
    gpu) say "installing TensorFlow's build with CUDA into .venv (3 GB to fetch, 6 GB of disk; only this once)." ;;
  esac
  # The other build of TensorFlow is removed first: an environment that has neither is made anew.
  if [ "$addition" = gpu ]; then
    : >.venv/installing
  fi
  .venv/bin/python tff_adaptive/environment/install.py "--add=$addition" || exit 1
  printf '%s\n' "$lock" >".venv/installed-$addition"
  rm -f .venv/installing
}

if [ -L .venv ]; then
  fail ".venv is a link (to $(readlink .venv)): an installation would change or remove another checkout's" \
    "environment. Remove the link with 'rm .venv' and run this again, or call .venv/bin/python without make."
fi

# One set-up at a time, where two commands are started at once.
if command -v flock >/dev/null 2>&1; then
  exec 9<scripts/env/setup_env.sh
  flock 9
fi

made_from="$(pwd) $(cat requirements.lock setup.py pyproject.toml tff_adaptive/_version.py \
  tff_adaptive/environment/install.py tff_adaptive/environment/site/* | cksum)"
if [ ! -e .venv/installing ] && [ "$(cat .venv/installed 2>/dev/null)" = "$made_from" ] &&
  .venv/bin/python -c '' 2>/dev/null; then
  install_addition
  exit 0
fi

case "$(uname -sm)" in
  'Linux x86_64') ;;
  'Linux aarch64' | 'Darwin arm64')
    say "this is $(uname -sm): TensorFlow Federated's own worker is not published for it; the graph engine needs none" \
      'and --engine=native cannot run here.'
    ;;
  *)
    fail "this is $(uname -sm), for which TensorFlow or TensorFlow Federated has no packages: use Linux on x86-64 or" \
      'arm64, or macOS on arm64.'
    ;;
esac

# Runs a Python to see what it is: shims of version managers exist that cannot be run.
version_of() {
  "$1" -c 'import platform, sys
print(platform.python_implementation(), platform.python_version())' 2>/dev/null
}

is_usable() {
  case "$(version_of "$1")" in
    'CPython 3.10.'* | 'CPython 3.11.'* | 'CPython 3.12.'* | 'CPython 3.13.'*) ;;
    *) return 1 ;;
  esac
  "$1" -c 'import sys; sys.exit(sys.maxsize < 2**32)' 2>/dev/null
}

has_venv() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

if [ -e .venv/installing ]; then
  say 'the last installation was interrupted: beginning again.'
  rm -rf .venv
fi
# Packages of another lock would stay beside the new ones, some with the same files.
locked=$(cksum <requirements.lock)
if [ -e .venv/installed ] && [ "$(cat .venv/installed-lock 2>/dev/null)" != "$locked" ]; then
  say '.venv was made from another requirements.lock: beginning again.'
  rm -rf .venv
fi

if [ -d .venv ]; then
  is_usable .venv/bin/python ||
    fail "the Python of .venv is missing or is not CPython 3.10 to 3.13" \
      "($(version_of .venv/bin/python || echo 'it does not run')): remove it with" \
      "'rm -rf .venv' and run this again."
else
  python=''
  without_venv=''
  seen=''
  if [ -n "${PYTHON:-}" ]; then
    is_usable "$PYTHON" ||
      fail "PYTHON=$PYTHON is not CPython 3.10 to 3.13" \
        "($(version_of "$PYTHON" || echo 'it does not run')): name another one, or none."
    set -- "$PYTHON"
  else
    set --
    for minor in 12 13 11 10; do
      set -- "$@" "python3.$minor"
      for place in "${PYENV_ROOT:-$HOME/.pyenv}/versions" /opt/python /usr/local /opt /opt/homebrew; do
        for path in "$place"/3."$minor".*/bin/python "$place"/cp3"$minor"-cp3"$minor"/bin/python \
          "$place"/bin/python3."$minor" "$place"/python3."$minor"/bin/python3."$minor"; do
          if [ -x "$path" ]; then set -- "$@" "$path"; fi
        done
      done
    done
    set -- "$@" python3 python
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
    say 'no CPython 3.10 to 3.13 that can make virtual environments: fetching one with uv.'
    export UV_PYTHON_PREFERENCE=only-managed
    uv python install 3.12 && python=$(uv python find 3.12) ||
      fail 'uv could not fetch CPython 3.12: see the lines above, or install CPython 3.10 to 3.13.'
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
    fail "CPython 3.10, 3.11, 3.12 or 3.13 is needed and none was found (${seen:-no Python at all}):" \
      "install one ('apt-get install python3 python3-venv', 'dnf install" \
      "python3.12', 'pyenv install 3.12'), or uv, which fetches one, and run this again."
  fi
fi

: >.venv/installing
if [ -e .venv/installed-gpu ]; then
  say "TensorFlow's build with CUDA gives way to the one for CPUs: 'make env-gpu' installs it again."
fi
rm -f .venv/installed .venv/installed-dev .venv/installed-gpu
say "installing the locked packages into .venv with $(version_of .venv/bin/python) (3.5 GB of disk, two to three minutes;" \
  'only this once).'
.venv/bin/python tff_adaptive/environment/install.py || exit 1
.venv/bin/python -m pip --quiet --quiet --disable-pip-version-check --no-input install --no-deps \
  --no-build-isolation --config-settings editable_mode=compat -e . ||
  fail 'pip could not install this package: see the lines above.'
printf '%s\n' "$locked" >.venv/installed-lock
printf '%s\n' "$made_from" >.venv/installed
rm -f .venv/installing
install_addition
say 'done.'
