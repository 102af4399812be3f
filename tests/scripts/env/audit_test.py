"""The audit of the locked versions, but for the database: `make audit` asks that."""

import itertools

from scripts.env import audit

TABLE = """# Security
CVE-2000-0000 in the text does not count.
| identifier | package |
|---|---|
| CVE-2026-0994 (GHSA-7gcm-g887-7qv7) | protobuf, not CVE-2001-0001 |
"""


def test_what_the_first_column_decides_on_is_ignored_and_nothing_else():
  line = audit.command(TABLE)
  ignored = [name for option, name in itertools.pairwise(line) if option == '--ignore-vuln']
  assert ignored == ['CVE-2026-0994', 'GHSA-7gcm-g887-7qv7']
  assert {'--strict', 'requirements.lock'} <= {*line}
