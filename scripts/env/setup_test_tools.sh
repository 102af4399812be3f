#!/bin/sh
# Installs what some tests use and pip does not have, where that is possible without a question: as root on Debian. Elsewhere these tests are
# skipped, and say so. A C++ compiler (for the compiled LSTM).
# An installation that was cut off leaves a program that does not work: it is tried, and is not stopped while it is unpacked.
missing=
echo '#include <string>' | ${CXX:-g++} -x c++ -fsyntax-only - >/dev/null 2>&1 || missing="$missing g++"
if [ -z "$missing" ] || [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  exit 0
fi
export DEBIAN_FRONTEND=noninteractive
[ -z "$(dpkg --audit 2>/dev/null)" ] || dpkg --configure -a </dev/null >/dev/null 2>&1
timeout 30 apt-get update -qq >/dev/null 2>&1
for package in $missing; do
  { timeout 120 apt-get install -y -qq --no-install-recommends --download-only "$package" &&
    apt-get install -y -qq --no-install-recommends --no-download "$package"; } </dev/null >/dev/null 2>&1 ||
    echo "$package cannot be installed: its tests are skipped." >&2
done
