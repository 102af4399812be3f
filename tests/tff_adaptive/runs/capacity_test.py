"""How large client states may grow, said before a run, and refused with the way out."""

from unittest import mock

import pytest

from tff_adaptive.runs import capacity


def test_the_plan_says_how_large_it_may_grow_and_refuses_with_the_way_out(tmp_path, monkeypatch):
  path = str(tmp_path / 'no' / 'such' / 's')
  monkeypatch.setattr(capacity.memory_lib, 'available', lambda: 10**6)
  monkeypatch.setattr(capacity.shutil, 'disk_usage', lambda _: mock.Mock(free=10**9))
  line = capacity.plan(100, 1000, path, 50)
  assert line.startswith('Client states: 100 clients may take part and each keeps 1.0 kB: up to')
  assert '151.2 kB of memory and 635.0 kB of disk' in line
  with pytest.raises(ValueError, match=r'15\.1 MB of memory, .* save more often \(a smaller rou'):
    capacity.plan(10_000, 1000, path, 50)
  # All states are on the disk: in memory are those not saved yet, and 100 kB of the others.
  monkeypatch.setattr(capacity, 'CACHE_BYTES', 100_000)
  assert 'to 175.6 kB of memory' in capacity.plan(10_000, 1000, path, 50)
  with pytest.raises(ValueError, match=r'1\.6 MB of memory'):
    capacity.plan(10_000, 1000, path, 1000)
  with pytest.raises(ValueError, match=r'1\.0 GB are available: let `checkpoints` in'):
    capacity.plan(10**6, 1000, path, 50)
  # What a run has on the disk already is no obstacle to going on.
  (tmp_path / 'state.sqlite').write_bytes(bytes(10**6))
  monkeypatch.setattr(capacity.shutil, 'disk_usage', lambda _: mock.Mock(free=1000))
  capacity.plan(10, 1000, str(tmp_path / 's'), 10)
  with pytest.raises(ValueError, match=r'1\.0 kB are available'):
    capacity.plan(10, 1000, path, 10)
