"""Clients do a computation together only where it is the one that was declared so."""

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from google.protobuf import text_format

from tests.helpers import computations, processes
from tff_adaptive import algorithms, engine
from tff_adaptive.client import ClientTraining, batching
from tff_adaptive.engine import batched_clients


def scaled(factor, calls=None):
  """The computation x -> factor * x, and how clients do it together; `calls` grows with each."""

  def together(clients):
    if calls is not None:
      calls.append(len(clients))
    return tf.stack([factor * x for (x,) in clients])

  group = batched_clients.Group(together)
  return batched_clients.computation(group, np.float32)(lambda x: factor * x)


def at_clients(local):
  """The computation at each client."""
  type_spec = computations.at_clients(local.type_signature.parameter)
  return tff.federated_computation(lambda x: tff.federated_map(local, x), type_spec)


def run(computation, cohort, **options):
  with engine.graph_context(**{'clients_per_step': 2, **options}):
    return [np.asarray(value) for value in computation(cohort)]


def test_a_computation_is_done_together_where_it_is_asked_for():
  calls = []
  local = scaled(2.0, calls)
  assert run(at_clients(local), [1.0, 2.0, 3.0]) == [2, 4, 6]
  assert calls == [2]
  for not_asked in (1, None):
    assert run(at_clients(local), [1.0, 2.0, 3.0], clients_per_step=not_asked) == [2, 4, 6]
  assert calls == [2]


@pytest.mark.parametrize(
  'around, expected',
  [
    (lambda inner, x: inner(x) + 100.0, [102, 104, 106]),
    (lambda inner, x: inner(x + 1.0), [4, 6, 8]),
    (lambda inner, x: inner(inner(x)), [4, 8, 12]),
  ],
)
def test_a_computation_that_calls_it_and_does_more_is_another(around, expected):
  inner = scaled(2.0)
  outer = tff.tensorflow.computation(lambda x: around(inner, x), np.float32)
  assert run(at_clients(outer), [1.0, 2.0, 3.0]) == expected


def test_computations_with_equal_graphs_are_distinguished():
  calls = [], []
  first, second = (scaled(2.0, mine) for mine in calls)
  run(at_clients(first), [1.0, 2.0])
  assert [len(mine) for mine in calls] == [1, 0]
  run(at_clients(second), [1.0, 2.0])
  assert [len(mine) for mine in calls] == [1, 1]


def with_function_named(name, factor):
  """The computation x -> factor * x by a function of a name, as another process may have it."""
  scale = tf.function(lambda x: factor * x)
  comp = tff.tensorflow.computation(lambda x: scale(x), np.float32)
  proto = tff.framework.serialize_computation(comp)
  graph_def = tf.compat.v1.GraphDef()
  proto.tensorflow.graph_def.Unpack(graph_def)
  (function,) = graph_def.library.function
  text = text_format.MessageToString(graph_def).replace(function.signature.name, name)
  proto.tensorflow.graph_def.Pack(text_format.Parse(text, tf.compat.v1.GraphDef()))
  return tff.framework.deserialize_computation(proto)


def test_functions_of_one_name_from_two_processes_are_distinguished():
  for factor in (2, 3):
    scale = with_function_named('one_name', float(factor))
    assert run(at_clients(scale), [1.0, 2.0]) == [factor, 2 * factor]


ONE_ARGUMENT = [
  (np.float32, lambda x: 2 * x, [1.0, 2.0, 3.0]),
  (computations.STRUCT, lambda s: s['a'], [dict(a=float(i), b=i) for i in range(3)]),
  (
    computations.EXAMPLES,
    lambda data: tf.reduce_sum(data['x']) - data['y'][0],
    [[dict(x=np.ones(n, np.float32), y=np.float32([n, 1]))] for n in (1, 3, 2)],
  ),
]


@pytest.mark.parametrize('type_spec, function, cohort', ONE_ARGUMENT, ids=range(3))
def test_one_argument(type_spec, function, cohort):
  def together(clients):
    return tf.stack([function(argument) for (argument,) in clients])

  def alone(argument):
    is_data = isinstance(argument, tf.data.Dataset)
    return function(argument.get_single_element() if is_data else argument)

  local = batched_clients.computation(batched_clients.Group(together), type_spec)(alone)
  found = run(at_clients(local), cohort, clients_per_step=2)
  assert found == run(at_clients(local), cohort, clients_per_step=1)


@pytest.mark.parametrize('name', ['fed_avg', 'ada_best'])
def test_a_group_lives_as_long_as_the_process_and_no_longer(name, monkeypatch):
  made = []
  group = batched_clients.Group.__init__

  def remember(self, *args, **named):
    group(self, *args, **named)
    made.append(weakref.ref(self))

  monkeypatch.setattr(batched_clients.Group, '__init__', remember)
  model = processes.linear_model()
  process = algorithms.build(
    name, model, client_learning_rate=0.1, training=ClientTraining(batching=batching.Batching(2))
  )
  ended = weakref.ref(model)
  del model
  gc.collect()
  next_computation = process.next
  del process
  assert any(reference() is not None for reference in made)
  del next_computation
  gc.collect()
  assert all(reference() is None for reference in made)
  assert ended() is None
