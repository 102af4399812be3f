"""Damaged data files are refused by name or read as they were; the long run is a command."""

import pytest

from tests.faults import damaged_data


@pytest.mark.parametrize('kind', damaged_data.KINDS)
def test_damaged_files_are_refused_by_name(kind):
  found = damaged_data.attack(kind, 60, seed=1)
  assert set(found) <= {'read', 'refused'}
  assert found['refused'] > 10
