"""What a Ray worker makes of its share of a machine; the GPUs are played."""

import os
import subprocess
import types

import pytest
import tensorflow as tf

from tff_adaptive.devices import placement
from tff_adaptive.engine.cluster import ray_worker
from tff_adaptive.engine.graph import context


@pytest.fixture
def engine(monkeypatch):
  """`settings -> (how the engine is made, memory limits of GPUs, whether GPUs are hidden)`."""
  limits, hidden = [], []
  total = types.SimpleNamespace(stdout=b'81559\n40960\n')  # MiB, as nvidia-smi has them.
  monkeypatch.setattr(subprocess, 'run', lambda command, **options: total)
  monkeypatch.setattr(tf.config, 'list_physical_devices', lambda kind: ['a GPU'])
  monkeypatch.setattr(
    tf.config,
    'set_logical_device_configuration',
    lambda gpu, made: limits.append((gpu, [one.memory_limit for one in made])),
  )
  monkeypatch.setattr(placement, 'hide_gpus', lambda: hidden.append(True))
  monkeypatch.setattr(context, 'GraphContext', lambda **options: options)
  for name in ('TF_NUM_INTRAOP_THREADS', 'TF_NUM_INTEROP_THREADS', 'TF_CPP_MIN_LOG_LEVEL'):
    monkeypatch.setenv(name, os.environ.get(name, ''))  # What it sets ends with the test.

  def make(settings):
    limits.clear()
    hidden.clear()
    return ray_worker._engine.__wrapped__(settings), list(limits), bool(hidden)

  return make


@pytest.mark.parametrize(
  'settings, expected',
  [
    # Of the smallest GPU: it may have that one.
    (ray_worker.Settings(2, 0.25), (2, 'gpu', [('a GPU', [int(0.9 * 0.25 * 40960)])], False)),
    (ray_worker.Settings(1, 2), (1, 'gpu', [], False)),
    (ray_worker.Settings(3), (3, 'cpu', [], True)),
  ],
)
def test_a_worker_takes_its_part_of_a_gpus_memory_whole_gpus_or_none(engine, settings, expected):
  made, limits, is_hidden = engine(settings)
  assert (made['parallel_clients'], made['device'], limits, is_hidden) == expected
  if is_hidden:  # A thread a client.
    assert os.environ['TF_NUM_INTEROP_THREADS'] == '3'
  assert os.environ['TF_NUM_INTRAOP_THREADS'] == '1'
