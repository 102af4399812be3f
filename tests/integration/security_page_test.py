"""The versions that docs/security.md names are those of the locks."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]
PAGE = (ROOT / 'docs' / 'security.md').read_text(encoding='utf-8')
LOCK = (ROOT / 'requirements.lock').read_text(encoding='utf-8')
# As the page writes a name and its version: 'protobuf 7.36', 'attrs (23.2)'.
NAMES = 'tf-keras|protobuf|wheel|cryptography|ray|`mlflow-skinny`|jaxlib|attrs'
# Versions of the page that are no pins: those in which something was fixed.
FIXED_IN = {('ray', '2.52')}


def locked(package: str) -> set[str]:
  return set(re.findall(rf'^{package}==([^ ]+)', LOCK, re.MULTILINE))


def test_versions_are_those_of_the_lock():
  named = re.findall(rf'({NAMES}) \(?(\d[\d.]*\d)', PAGE, re.IGNORECASE)
  assert len(named) >= 8
  for name, version in named:
    package = name.strip('`').lower()
    if (package, version) not in FIXED_IN:
      versions = locked(package)
      assert any(f'{pin}.'.startswith(f'{version}.') for pin in versions), (name, version, versions)
  for version in locked('keras'):
    assert version in PAGE


def test_few_vulnerabilities_are_accepted():
  rows = re.findall(r'^\| (?:CVE|GHSA|PYSEC)-', PAGE, re.MULTILINE)
  assert 0 < len(rows) <= 3
