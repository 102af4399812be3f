"""How large client states may grow, said before a run, and refused with the way out."""

import collections

import pytest

from tff_adaptive.runs import capacity

DiskUsage = collections.namedtuple('DiskUsage', 'free')


def test_the_plan_says_how_large_it_may_grow_and_refuses_with_the_way_out(tmp_path, monkeypatch):
  fits = capacity.plan(100, 1000, 'memory', limit=10**6, path=str(tmp_path / 's'))
  assert fits.memory_bytes >= 100_000
  assert fits.disk_bytes > fits.memory_bytes
  assert '100 clients' in fits.describe()
  with pytest.raises(ValueError, match="use client_state_store='disk'"):
    capacity.plan(1_000_000, 10_000, 'memory', limit=10**9)
  with pytest.raises(ValueError, match='name a client_state_dir on a larger'):
    capacity.plan(1_000_000, 10_000, 'disk', limit=10**9, path=str(tmp_path / 'no' / 'such' / 's'))
  # What a run has on the disk already is no obstacle to going on.
  own = tmp_path / 's'
  own.write_bytes(bytes(10**6))
  free = capacity.plan(10, 1000, 'memory', path=str(own))
  assert free.disk_bytes < 10**6
  monkeypatch.setattr(capacity.shutil, 'disk_usage', lambda _: DiskUsage(free=1000))
  capacity.plan(10, 1000, 'memory', path=str(own))
  with pytest.raises(ValueError, match=r'1\.0 kB are available'):
    capacity.plan(10, 1000, 'memory', path=str(tmp_path / 'other'))
  disk = capacity.plan(1_000_000, 10_000, 'disk', cache_bytes=10**6)
  assert disk.memory_bytes == 10**6
  with pytest.raises(ValueError, match='memory, disk'):
    capacity.plan(1, 1, 'tape')
