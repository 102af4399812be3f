"""The audit of the locked versions, but for the database: `make audit` asks that."""

from scripts.env import audit

TABLE = """# Security
CVE-2000-0000 in the text does not count.
| identifier | package |
|---|---|
| CVE-2026-0994 (GHSA-7gcm-g887-7qv7) | protobuf, not CVE-2001-0001 |
"""


def test_any_of_a_vulnerabilitys_names_decides():
  dependencies = [
    {
      'name': 'protobuf',
      'version': '4.25.9',
      'vulns': [
        {'id': 'PYSEC-2026-1', 'aliases': ['CVE-2026-0994']},
        {'id': 'PYSEC-2026-2', 'aliases': ['CVE-2026-1111']},
      ],
    },
    {'name': 'rich', 'version': '14.0', 'vulns': []},
  ]
  assert audit.undecided(dependencies, audit.decided(TABLE)) == [
    'protobuf 4.25.9: PYSEC-2026-2, CVE-2026-1111'
  ]


def test_packages_that_the_database_does_not_know_are_not_called_clean(monkeypatch):
  class Result:
    stdout = '{"dependencies": [{"name": "keras", "skip_reason": "not found"}]}'
    stderr = ''
    returncode = 0

  monkeypatch.setattr(audit.subprocess, 'run', lambda *_, **__: Result)
  assert audit.audit() == ([], 'the database does not know 1 packages, such as keras')
  assert audit.main() == audit.NOT_AUDITED
