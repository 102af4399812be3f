"""Compares the locked versions with a database of known vulnerabilities, by pip-audit.

  .venv/bin/python scripts/env/audit.py

Exit codes: 0: none, or only such as docs/security.md decides on; 1: others; 3: not audited, because
the database cannot be reached or does not know the packages.
"""

import json
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOUND, NOT_AUDITED = 1, 3
OPTIONS = (
  *('--requirement', 'requirements.lock', '--no-deps', '--vulnerability-service', 'osv'),
  *('--format', 'json', '--progress-spinner', 'off'),
)

_IDENTIFIER = re.compile(r'\b(?:CVE-\d+-\d+|GHSA(?:-[0-9a-z]{4}){3}|PYSEC-\d+-\d+)\b')


def decided(text: str) -> set[str]:
  """Returns the identifiers in the first column of the tables of docs/security.md."""
  rows = (line.split('|')[1] for line in text.splitlines() if line.startswith('|'))
  return {name for cell in rows for name in _IDENTIFIER.findall(cell)}


def undecided(dependencies: Iterable[dict[str, Any]], known: set[str]) -> list[str]:
  """Returns 'package version: identifiers' of each vulnerability that is not in `known`.

  Args:
    dependencies: As pip-audit's JSON lists them: name, version, and vulns with id and aliases.
    known: Identifiers that were decided on; one of a vulnerability's is enough.
  """
  lines = []
  for dependency in dependencies:
    for vulnerability in dependency.get('vulns', ()):
      names = [vulnerability['id'], *vulnerability.get('aliases', ())]
      if known.isdisjoint(names):
        lines.append(f'{dependency["name"]} {dependency["version"]}: {", ".join(names)}')
  return lines


def audit() -> tuple[list[dict[str, Any]], str]:
  """Returns pip-audit's list of dependencies, and why there is none (or '')."""
  # No limit of time: pip-audit waits 15 s for an answer, and there is one request a package.
  result = subprocess.run(
    [sys.executable, '-m', 'pip_audit', *OPTIONS],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=False,
  )
  try:
    report = json.loads(result.stdout)
  except ValueError:
    lines = result.stderr.strip().splitlines()
    return [], lines[-1][:200] if lines else f'pip-audit ended with {result.returncode}'
  dependencies = report['dependencies'] if isinstance(report, dict) else report
  skipped = [d['name'] for d in dependencies if 'skip_reason' in d]
  if skipped:
    return [], f'the database does not know {len(skipped)} packages, such as {skipped[0]}'
  return dependencies, ''


def main() -> int:
  """Audits the lock; returns the exit code."""
  dependencies, problem = audit()
  if problem:
    print(f'Not audited: {problem}.', file=sys.stderr)
    return NOT_AUDITED
  known = decided((ROOT / 'docs' / 'security.md').read_text(encoding='utf-8'))
  found = undecided(dependencies, known)
  for line in found:
    print(line)
  verdict = f'{len(found)} to decide on in docs/security.md' if found else 'nothing undecided'
  print(f'{len(dependencies)} packages audited: {verdict}.')
  return FOUND if found else 0


if __name__ == '__main__':
  sys.exit(main())
