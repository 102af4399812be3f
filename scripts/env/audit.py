"""Compares the locked versions with a database of known vulnerabilities, by pip-audit.

  .venv/bin/python scripts/env/audit.py

Exit codes: those of pip-audit: 0: none, or only such as docs/security.md decides on; 1: others, or
the database cannot be reached or does not know a package, which is said.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
_IDENTIFIER = re.compile(r'\b(?:CVE-\d+-\d+|GHSA(?:-[0-9a-z]{4}){3}|PYSEC-\d+-\d+)\b')


def decided(text: str) -> list[str]:
  """Returns the identifiers in the first column of the tables of docs/security.md."""
  rows = (line.split('|')[1] for line in text.splitlines() if line.startswith('|'))
  return [name for cell in rows for name in _IDENTIFIER.findall(cell)]


def command(text: str) -> list[str]:
  """Returns the command that audits the lock, but for what docs/security.md decides on."""
  options = ['--requirement', 'requirements.lock', '--no-deps', '--strict']
  options += ['--vulnerability-service', 'osv', '--progress-spinner', 'off']
  ignored = [option for name in decided(text) for option in ('--ignore-vuln', name)]
  return [sys.executable, '-m', 'pip_audit', *options, *ignored]


if __name__ == '__main__':
  security = (ROOT / 'docs' / 'security.md').read_text(encoding='utf-8')
  sys.exit(subprocess.run(command(security), cwd=ROOT, check=False).returncode)
