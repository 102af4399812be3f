"""What a Ray worker makes of its share of a machine (GPUs are played), and what it keeps."""

import os

import numpy as np
import pytest

from tff_adaptive.devices import placement
from tff_adaptive.engine.cluster import ray_worker
from tff_adaptive.engine.graph import context


@pytest.mark.parametrize(
  'settings, device', [(ray_worker.Settings(2, 0.25), 'gpu'), (ray_worker.Settings(3), 'cpu')]
)
def test_a_worker_shares_gpus_or_is_kept_off_them(settings, device, monkeypatch):
  hidden = []
  monkeypatch.setattr(placement, 'hide_gpus', lambda: hidden.append(True))
  monkeypatch.setattr(context, 'GraphContext', lambda **options: options)
  names = ('NUM_INTRAOP_THREADS', 'NUM_INTEROP_THREADS', 'FORCE_GPU_ALLOW_GROWTH')
  for name in (*names, 'CPP_MIN_LOG_LEVEL'):
    monkeypatch.setenv(f'TF_{name}', '')  # What it sets ends with the test.
  for name in ('FORCE_GPU_ALLOW_GROWTH', 'CPP_MIN_LOG_LEVEL'):
    monkeypatch.delenv(f'TF_{name}')
  engine_of_worker = ray_worker._engine.__wrapped__(settings)
  assert (engine_of_worker['parallel_clients'], engine_of_worker['device']) == (
    settings.cpus,
    device,
  )
  is_cpu = device == 'cpu'
  assert bool(hidden) == is_cpu
  assert ('TF_FORCE_GPU_ALLOW_GROWTH' in os.environ) != is_cpu
  # A thread a client.
  assert os.environ['TF_NUM_INTEROP_THREADS'] == ('3' if is_cpu else '')
  environment = [os.environ[f'TF_{name}'] for name in ('NUM_INTRAOP_THREADS', 'CPP_MIN_LOG_LEVEL')]
  assert environment == ['1', '2']


class _Source:
  """Values of 100 bytes; each key that is loaded is noted."""

  def __init__(self):
    self.loaded = []

  def load(self, keys):
    self.loaded += keys
    return [[{'x': np.full(100, key, np.int8)}] for key in keys]


def test_values_used_last_are_kept_within_the_bound():
  source = _Source()
  opened = ray_worker.OpenSource(source, cache_bytes=350)
  for keys in ([1, 2, 3], [1, 4], [3, 1, 4, 2]):  # With 4 goes 2, not used for longest.
    assert [value[0]['x'][0] for value in opened.load(keys)] == keys
  assert source.loaded == [1, 2, 3, 4, 2]


def test_the_source_not_used_for_longest_goes(monkeypatch):
  monkeypatch.setattr(ray_worker, '_open', lambda reference: _Source())
  references = {name: [None] for name in 'abcde'}
  first = {name: ray_worker.opened(name, references) for name in 'abcd'}
  assert ray_worker.opened('a', references) is first['a']
  ray_worker.opened('e', references)
  assert ray_worker.opened('a', references) is first['a']
  assert ray_worker.opened('b', references) is not first['b']
