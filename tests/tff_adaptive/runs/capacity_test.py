"""How large client states may grow, said before a run, and refused with the way out."""

from unittest import mock

import psutil
import pytest

from tff_adaptive.runs import capacity


def test_the_plan_says_how_large_it_may_grow_and_refuses_with_the_way_out(tmp_path, monkeypatch):
  path = str(tmp_path / 'no' / 'such' / 's')
  monkeypatch.setattr(capacity, 'available_memory', lambda: 10**6)
  monkeypatch.setattr(capacity.shutil, 'disk_usage', lambda _: mock.Mock(free=10**9))
  line = capacity.plan(100, 1000, 'memory', path)
  assert line.startswith('Client states: 100 clients may take part and each keeps 1.0 kB: up to')
  assert '151.2 kB of memory and 635.0 kB of disk' in line
  assert 'to 0 bytes of memory' in capacity.plan(10_000, 1000, 'shards', path)
  staged = [capacity.plan(100, 1000, s, path, 500) for s in ('memory', 'shards')]
  assert '635.0 kB of disk' in staged[0]
  assert '1.1 MB of disk' in staged[1]
  with pytest.raises(ValueError, match="use client_state_store='shards'"):
    capacity.plan(10_000, 1000, 'memory', path)
  with pytest.raises(ValueError, match=r'1\.0 GB are available: let `checkpoints` in'):
    capacity.plan(10**6, 1000, 'shards', path)
  # What a run has on the disk already is no obstacle to going on.
  (tmp_path / 'client_states').mkdir()
  (tmp_path / 'client_states' / 'a').write_bytes(bytes(10**6))
  monkeypatch.setattr(capacity.shutil, 'disk_usage', lambda _: mock.Mock(free=1000))
  capacity.plan(10, 1000, 'memory', str(tmp_path / 's'))
  with pytest.raises(ValueError, match=r'1\.0 kB are available'):
    capacity.plan(10, 1000, 'memory', path)


def test_a_control_group_limits_it(tmp_path, monkeypatch):
  limit, usage = tmp_path / 'max', tmp_path / 'current'
  monkeypatch.setattr(capacity, '_CGROUP_LIMITS', [(limit, usage)])
  usage.write_text('900\n')  # Of this 500 are a cache of files.
  (tmp_path / 'memory.stat').write_text('anon 400\ninactive_file 300\nactive_file 200\n')
  assert capacity.available_memory() <= psutil.virtual_memory().total  # There is no such group.
  for text, available in (('1000\n', 600), ('300\n', 0)):
    limit.write_text(text)
    assert capacity.available_memory() == available
  limit.write_text('max\n')
  assert capacity.available_memory() > 1000
