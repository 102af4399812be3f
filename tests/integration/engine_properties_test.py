"""Random federated computations give the same results in both engines.

A computation is a list of steps, each of which adds a value made of earlier ones at its placement.
"""

import collections
import functools

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from hypothesis import strategies as st

from tests.helpers import engines
from tff_adaptive import engine

STRUCT = collections.OrderedDict(a=np.float32, b=(np.int32, tff.TensorType(np.float32, [2])))
AT_CLIENTS = [np.float32, STRUCT, tff.SequenceType(np.int32)]
AT_SERVER = [np.float32, STRUCT]
MAX_LEAVES = 6
settings = functools.partial(
  hypothesis.settings,
  suppress_health_check=list(hypothesis.HealthCheck),
  phases=[hypothesis.Phase.generate],
)


def member(value):
  return value.type_signature.member


def num_leaves(type_spec):
  if isinstance(type_spec, tff.types.StructType):
    return sum(num_leaves(child) for _, child in tff.structure.iter_elements(type_spec))
  return 1


def mapped(function, value):
  return tff.federated_map(tff.tensorflow.computation(function, member(value)), value)


def change_leaf(x):
  """Keeps the type and the size, and is not linear."""
  if x.dtype == tf.int32:
    return (x * 3 + 1) % 7
  return tf.tanh(x) + 0.25


def change(value):
  return mapped(lambda v: tf.nest.map_structure(change_leaf, v), value)


def to_float(value):
  """Every leaf as a float, so that there are means of it."""
  return mapped(lambda v: tf.nest.map_structure(lambda x: tf.cast(x, tf.float32), v), value)


def positive(value):
  """A scalar in [1, 2) that depends on every leaf: a weight."""

  def weigh(v):
    total = tf.add_n([tf.reduce_sum(tf.cast(x, tf.float32)) for x in tf.nest.flatten(v)])
    return 1.5 + 0.5 * tf.tanh(total)

  return mapped(weigh, value)


def fold(value):
  """An aggregate that depends on the order of the clients."""
  floats = to_float(value)
  kind = member(floats)
  specs = tff.types.type_to_tf_tensor_specs(kind)
  zeros = tff.tensorflow.computation(
    lambda: tf.nest.map_structure(lambda t: tf.zeros(t.shape, t.dtype), specs)
  )()
  halve_and_add = tff.tensorflow.computation(
    lambda s, v: tf.nest.map_structure(lambda x, y: x / 2 + y, s, v), kind, kind
  )
  report = tff.tensorflow.computation(lambda s: tf.nest.map_structure(tf.sin, s), kind)
  return tff.federated_aggregate(floats, zeros, halve_and_add, halve_and_add, report)


def at_clients(value):
  return value.type_signature.placement is tff.CLIENTS


def zipped(options, first, second):
  """A pair, named or not; None if it had too many leaves."""
  pair = options[first % len(options)], options[second % len(options)]
  if sum(num_leaves(member(v)) for v in pair) > MAX_LEAVES:
    return None
  return tff.federated_zip(pair if second % 2 else collections.OrderedDict(p=pair[0], q=pair[1]))


def apply_step(step, values):
  """The value that a step adds, or None if there is nothing for it to work on."""
  kind, first, second = step
  sequences = [v for v in values if isinstance(member(v), tff.types.SequenceType)]
  server = [v for v in values if not at_clients(v)]
  clients = [v for v in values if at_clients(v) and v not in sequences]
  structs = [v for v in server + clients if isinstance(member(v), tff.types.StructType)]
  of_clients = clients[first % len(clients)]
  of_server = server[first % len(server)]
  struct = structs[first % len(structs)]
  placement = tff.CLIENTS if first % 2 else tff.SERVER
  constant = tff.tensorflow.computation(lambda: collections.OrderedDict(c=tf.constant([second, 2])))
  return {
    'map': lambda: change(of_clients),
    'apply': lambda: change(of_server),
    'zip': lambda: zipped(server if first % 2 else clients, first, second),
    'select': lambda: struct[second % len(member(struct))],
    'broadcast': lambda: tff.federated_broadcast(of_server),
    'value': lambda: tff.federated_value(second / 4, placement),
    'eval': lambda: tff.federated_eval(constant, placement),
    'sum': lambda: tff.federated_sum(of_clients),
    'mean': lambda: tff.federated_mean(to_float(of_clients)),
    'weighted mean': lambda: tff.federated_mean(
      to_float(of_clients), positive(clients[second % len(clients)])
    ),
    'extremum': lambda: (tff.federated_max if second % 2 else tff.federated_min)(of_clients),
    'fold': lambda: fold(of_clients),
    'reduce': lambda: mapped(
      lambda d: d.reduce(0, lambda s, x: (2 * s + x) % 101), sequences[first % len(sequences)]
    ),
  }[kind]()


KINDS = (
  'map',
  'apply',
  'zip',
  'select',
  'broadcast',
  'value',
  'eval',
  'sum',
  'mean',
  'weighted mean',
  'extremum',
  'fold',
  'reduce',
)
STEPS = st.tuples(st.sampled_from(KINDS), st.integers(0, 11), st.integers(0, 11))


def build(steps, with_clients):
  """A computation of the steps; without `with_clients` it returns server-placed values only."""
  parameters = [tff.FederatedType(t, tff.CLIENTS) for t in AT_CLIENTS]
  parameters += [tff.FederatedType(t, tff.SERVER) for t in AT_SERVER]

  @tff.federated_computation(parameters)
  def composed(arguments):
    values = list(arguments)
    for step in steps:
      added = apply_step(step, values)
      if added is not None:
        values.append(added)
    results = [v for v in values if with_clients or not at_clients(v)][-4:]
    return tuple(results)

  return composed


def arguments(num_clients, seed):
  rng = np.random.default_rng(seed)

  def struct():
    return collections.OrderedDict(
      a=np.float32(rng.normal()),
      b=(np.int32(rng.integers(9)), rng.normal(size=2).astype(np.float32)),
    )

  def sequence():
    return [np.int32(n) for n in rng.integers(9, size=rng.integers(4))]

  def number():
    return np.float32(rng.normal())

  placed = []
  for draw in (number, struct, sequence):
    placed.append([draw() for _ in range(num_clients)])
  return [*placed, number(), struct()]


@settings(max_examples=10)
@hypothesis.given(
  steps=st.lists(STEPS, min_size=5, max_size=12),
  num_clients=st.integers(0, 4),
  seed=st.integers(0, 99),
)
def test_random_computation(native, graph, steps, num_clients, seed):
  composed = build(steps, with_clients=num_clients > 0)
  data = arguments(num_clients, seed)
  expected = engines.run(native, composed, data)
  result = engines.run(graph, composed, data)
  engines.assert_same(result, expected, rtol=1e-4, atol=1e-5)


@settings(max_examples=4)
@hypothesis.given(
  # Subrounds are merged: an aggregate may not depend on the order of the clients.
  steps=st.lists(STEPS.filter(lambda step: step[0] != 'fold'), min_size=5, max_size=12),
  num_clients=st.integers(1, 5),
  seed=st.integers(0, 99),
)
@pytest.mark.exhaustive
def test_random_computation_in_subrounds(graph, steps, num_clients, seed):
  composed = build(steps, with_clients=True)
  data = arguments(num_clients, seed)
  expected = engines.run(graph, composed, data)
  result = engines.run(engine.SubroundContext(3, server=graph), composed, data)
  engines.assert_same(result, expected, rtol=1e-4, atol=1e-5)
