"""What a `RayContext` refuses before, or as soon as, it has a cluster; none is started here."""

import math
import types

import pytest
import tensorflow as tf

from tff_adaptive import engine
from tff_adaptive.engine.cluster import joining, ray_context

pytest.importorskip('ray')
from tff_adaptive.engine.cluster import ray_pool


def test_arguments_are_checked():
  for options, message in (
    ({'workers': 0}, 'workers is 0; it must be a whole number'),
    ({'cpus_per_worker': 0}, 'cpus_per_worker is 0'),
    ({'gpus_per_worker': 1.5}, 'gpus_per_worker is 1.5; it must be a fraction of 1'),
    ({'gpus_per_worker': math.inf}, 'gpus_per_worker is inf; it must be a fraction of 1'),
    ({'gpus_per_worker': math.nan}, 'gpus_per_worker is nan; it must be a fraction of 1'),
    ({'subrounds': 0}, 'subrounds is 0'),
    ({'workers': 5, 'subrounds': 4}, 'subrounds is 4, fewer than the 5 workers'),
    ({'patience': 0}, 'patience is 0'),
  ):
    with pytest.raises(ValueError, match=message):
      engine.RayContext('auto', **options)


def test_a_local_cluster_has_no_gpus_that_the_machine_has_not(monkeypatch):
  monkeypatch.setattr(tf.config, 'list_physical_devices', lambda kind: [])
  monkeypatch.setattr(joining, 'join', lambda *unused: pytest.fail('a cluster was begun'))
  with pytest.raises(ValueError, match='gpus_per_worker is 1, of a cluster of this machine: '):
    engine.RayContext('local', gpus_per_worker=1)


def test_where_ray_finds_fewer_gpus_than_a_worker_takes_the_cluster_ends(monkeypatch):
  left = []

  def join(address, cpus, has_gpus):
    assert (address, has_gpus) == ('local', True)
    return lambda: left.append(True)

  monkeypatch.setattr(ray_context, '_check_gpus', lambda gpus: None)
  monkeypatch.setattr(joining, 'join', join)
  monkeypatch.setattr(ray_pool, 'RayPool', lambda *unused: types.SimpleNamespace(size=0))
  with pytest.raises(ValueError, match='gpus_per_worker is 2: this machine has fewer GPUs'):
    engine.RayContext('local', gpus_per_worker=2)
  assert left == [True]
