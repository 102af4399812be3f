#!/bin/sh
# Installs what some tests use and pip does not have, where that is possible without a question: as root on Debian. Elsewhere these tests are
# skipped, and say so. A headless browser (for a report's page): 17 s, 110 MB, once; a C++ compiler (for the compiled LSTM).
missing=
if ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null && ! command -v google-chrome >/dev/null; then
  missing="$missing chromium"
fi
command -v "${CXX:-g++}" >/dev/null || missing="$missing g++"
if [ -z "$missing" ] || [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  exit 0
fi
export DEBIAN_FRONTEND=noninteractive
timeout 30 apt-get update -qq >/dev/null 2>&1
for package in $missing; do
  timeout 120 apt-get install -y -qq --no-install-recommends "$package" >/dev/null 2>&1 ||
    echo "$package cannot be installed: its tests are skipped." >&2
done
