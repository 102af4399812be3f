"""Where a round's work lands, on logical CPU devices, which do not change its results."""

import json
import pathlib
import subprocess
import types

import pytest

from tests.helpers import fresh
from tff_adaptive import engine
from tff_adaptive.devices import placement


@pytest.fixture(scope='module')
def placed():
  """Device -> operations, from a process that has also compared all results."""
  done = subprocess.run(
    [*fresh.python(), '-m', 'tests.helpers.on_devices'],
    capture_output=True,
    text=True,
    cwd=pathlib.Path(__file__).resolve().parents[3],
    check=False,
  )
  assert done.returncode == 0, done.stderr
  return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_results_are_those_of_one_device_and_each_device_trains_its_clients(placed):
  assert set(placed) == {'CPU:0', 'CPU:1', 'CPU:2', 'CPU:3'}
  # The gradient of the softmax is the model's own; the sign is FedYogi's, at the server.
  for operation, where in (
    ('SparseSoftmaxCrossEntropyWithLogits', {'CPU:1', 'CPU:2', 'CPU:3'}),
    ('StatelessRandomUniformV2', {'CPU:1', 'CPU:2', 'CPU:3'}),
    ('Sign', {'CPU:1'}),
  ):
    assert {device for device, operations in placed.items() if operation in operations} == where, (
      operation
    )


def test_without_a_gpu_no_device_is_named_and_the_gpu_is_refused(monkeypatch):
  if placement.place('auto').is_gpu:
    pytest.skip('there is a GPU')
  opened = []
  monkeypatch.setattr(placement.cuda, 'open_libraries', lambda: opened.append('libraries'))
  for device in ('auto', 'cpu'):
    placement.check(device)
    assert opened == ['libraries']  # For 'auto' alone.
    assert placement.place(device) == placement.Placement()
    assert not placement.place(device).is_named
  with pytest.raises(ValueError, match='no GPU can be used'):
    engine.GraphContext(device='gpu')
  with pytest.raises(ValueError, match="device is 'tpu'; it must be one of auto, cpu, gpu"):
    engine.GraphContext(device='tpu')


def test_on_gpus_a_cohort_trains_together_in_equal_shares(monkeypatch):
  one = placement.Placement(('/GPU:0',), True)
  four = placement.Placement(('/GPU:0',) * 4, True)
  assert [one.clients_together(n) for n in (0, 1, 10, 50)] == [1, 1, 10, placement.MOST_TOGETHER]
  assert [four.clients_together(n) for n in (1, 10, 50)] == [1, 3, 13]
  assert placement.Placement().clients_together(10) == 1
  gpu = types.SimpleNamespace(name='/GPU:0')
  monkeypatch.setattr(placement.tf.config, 'list_logical_devices', lambda kind: [gpu])
  places = [placement.place(*given) for given in (('auto',), ('cpu',), ('cpu', ['/gpu:0']))]
  assert places == [one, placement.Placement(('/CPU:0',)), placement.Placement(('/gpu:0',), True)]
