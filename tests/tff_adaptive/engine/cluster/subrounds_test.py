"""A cohort in subrounds: what the whole gives, whatever the order in which they are trained."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import closeness, on_ray, subround_runs
from tff_adaptive import engine
from tff_adaptive.engine.cluster import subrounds


def train_backwards(workload):
  """Trains subrounds once before, in the opposite order."""
  for part in reversed(workload.parts):
    subrounds.train_part(workload, part)
  return subrounds.train(workload)


@pytest.mark.parametrize('name', ['ada_best', *subround_runs.METHODS])
@pytest.mark.sample(1)
def test_subrounds_in_any_order_give_what_the_graph_engine_gives(name, graph, tmp_path):
  """And a run that is interrupted, at least what clients and server keep in `METHODS`."""
  process = subround_runs.build(name)
  numbers = []
  train = subrounds.train

  def noted(workload):
    numbers.append(len(workload.parts))
    return train(workload)

  context = engine.SubroundContext(3, server=graph, train=noted)
  ours = subround_runs.run(process, context)
  # Not done undivided. Mime's clients work twice in a round.
  assert numbers == ([3, 3, 1, 1, 3, 3] if name == 'mime-keep' else [3, 1, 3])
  expected = subround_runs.run(process, graph)
  assert len(ours) == len(expected)
  for one, other in zip(ours, expected):
    closeness.assert_close(one, other)
  train = train_backwards
  np.testing.assert_equal(subround_runs.run(process, context), ours)
  if name in subround_runs.METHODS:
    whole = subround_runs.trained(process, graph, 4)
    subround_runs.trained(process, graph, 2, tmp_path)
    np.testing.assert_equal(subround_runs.trained(process, graph, 4, tmp_path), whole)


@pytest.mark.parametrize('count', [0, 1, 3, 4, 11])
def test_client_values_come_back_in_order(count, graph):
  with tff.framework.get_context_stack().install(engine.SubroundContext(4, server=graph)):
    total, doubled = on_ray.double_and_sum()(list(range(count)))
  assert list(doubled) == [2 * i for i in range(count)]
  assert total == count * (count - 1)


def test_an_operation_has_one_thread_unless_it_is_told_otherwise(graph, monkeypatch):
  threads_set = []
  threading = tf.config.threading
  monkeypatch.setattr(threading, 'set_intra_op_parallelism_threads', threads_set.append)
  monkeypatch.setattr(tff.framework, 'set_default_context', threads_set.append)
  for given in (0, 3):
    monkeypatch.setattr(threading, 'get_intra_op_parallelism_threads', lambda given=given: given)
    engine.set_subround_context(2, graph)
  one, context, _ = threads_set
  assert (one, context._subrounds, context._server) == (1, 2, graph)


def test_references_are_loaded(graph):
  context = engine.SubroundContext(3, server=graph)
  keys = ['a', 'b', 'c', 'd', 'e']
  source = subround_runs.Source(dict(zip(keys, [1, 2, 3, 4, 5])))
  total, doubled = context.invoke(on_ray.double_and_sum(), subround_runs.references(source, keys))
  assert (total, list(doubled)) == (30, [2, 4, 6, 8, 10])


def test_references_whose_values_pass_several_stages_are_resolved(graph):
  less = tff.tensorflow.computation(lambda x, total: x - total, np.int32, np.int32)

  @tff.federated_computation(on_ray.AT_CLIENTS)
  def comp(x):
    doubled = tff.federated_map(tff.tensorflow.computation(lambda v: 2 * v, np.int32), x)
    total = tff.federated_broadcast(tff.federated_sum(doubled))
    return tff.federated_sum(tff.federated_map(less, (doubled, total))), x

  context = engine.SubroundContext(2, server=graph)
  source = subround_runs.Source({key: key for key in range(4)})
  total, passed = context.invoke(comp, subround_runs.references(source, range(4)))
  assert (total, list(passed)) == (12 - 4 * 12, [0, 1, 2, 3])


def test_what_is_passed_on_is_checked_too(graph):
  comp = tff.federated_computation(
    lambda x, y, z: (x, tff.federated_sum(z), y),
    on_ray.AT_CLIENTS,
    tff.types.FederatedType((np.int32, np.float32), tff.SERVER),
    on_ray.AT_CLIENTS,
  )
  with tff.framework.get_context_stack().install(engine.SubroundContext(2, server=graph)):
    passed, total, pair = comp([1, np.int32(2)], (3, 1), [4, 5])
    assert (list(passed), total, list(pair)) == ([1, 2], 9, [3, 1])
    assert passed[0].dtype == np.int32
    assert pair[1].dtype == np.float32
    for first, second in (([1.5, 'x'], (3, 1)), ([1, 2], (1.5, 1))):
      with pytest.raises(TypeError, match='expected a tensor of type int32'):
        comp(first, second, [4, 5])
    with pytest.raises(ValueError, match=r'Conflicting cardinalities: .* for \[1, 2\]'):
      comp([1], (3, 1), [4, 5])


@tff.tensorflow.computation(np.float32)
def _noisy(value):
  return value + tf.random.uniform([], seed=3)


@tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
def _noise(values):
  return tff.federated_map(_noisy, values)


@pytest.mark.parametrize('count', [3, 9])
def test_clients_draw_by_their_place_in_the_whole_cohort(count, graph):
  """Clients at the same place in two subrounds, with the same values, do not draw the same."""
  values = [1.0] * count
  with tff.framework.get_context_stack().install(graph):
    whole = [float(value) for value in _noise(values)]
  assert len(set(whole)) == count
  with tff.framework.get_context_stack().install(engine.SubroundContext(3, server=graph)):
    assert [float(value) for value in _noise(values)] == whole
