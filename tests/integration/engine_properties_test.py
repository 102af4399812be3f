"""Random federated computations give the same results in both engines.

A computation is drawn as a list of steps. Each step takes values that there are already, at the
server or at the clients, and adds a new one; aggregates of broadcast aggregates, and so on, arise.
"""

import collections
from typing import NamedTuple

import hypothesis
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from hypothesis import strategies as st

from tests.helpers import engines
from tff_adaptive import engine

STRUCT = collections.OrderedDict(a=np.float32, b=(np.int32, tff.TensorType(np.float32, [2])))
AT_CLIENTS = [np.float32, STRUCT, tff.SequenceType(np.int32)]
AT_SERVER = [np.float32, STRUCT]
MAX_LEAVES = 6


class Step(NamedTuple):
  kind: str
  first: int  # Which of the values that fit, modulo their number.
  second: int


def leaves(value):
  return tff.structure.flatten(value) if isinstance(value, tff.structure.Struct) else [value]


def member(value):
  return value.type_signature.member


def tensor_types(type_spec):
  if isinstance(type_spec, tff.types.StructType):
    elements = tff.structure.iter_elements(type_spec)
    return [leaf for _, child in elements for leaf in tensor_types(child)]
  return [type_spec]


def is_sequence(value):
  return isinstance(member(value), tff.types.SequenceType)


def computation(function, *types):
  return tff.tensorflow.computation(function, *types)


def change_leaf(x):
  """Keeps the type and the size, and is not linear."""
  return (x * 3 + 1) % 7 if x.dtype == tf.int32 else tf.tanh(x) + 0.25


def change(value):
  return tff.federated_map(
    computation(lambda v: tf.nest.map_structure(change_leaf, v), member(value)), value
  )


def to_float(value):
  """Every leaf as a float, so that there are means of it."""

  def cast(v):
    return tf.nest.map_structure(lambda x: tf.cast(x, tf.float32), v)

  return tff.federated_map(computation(cast, member(value)), value)


def positive(value):
  """A scalar in [1, 2) that depends on every leaf: a weight."""

  def weigh(v):
    total = tf.add_n([tf.reduce_sum(tf.cast(x, tf.float32)) for x in tf.nest.flatten(v)])
    return 1.5 + 0.5 * tf.tanh(total)

  return tff.federated_map(computation(weigh, member(value)), value)


def fold(value):
  """An aggregate that depends on the order of the clients."""
  floats = to_float(value)
  zeros = computation(
    lambda: tf.nest.map_structure(lambda t: tf.zeros(t.shape, t.dtype), specs(member(floats)))
  )()
  halve_and_add = lambda s, v: tf.nest.map_structure(lambda x, y: x / 2 + y, s, v)  # noqa: E731
  types = (zeros.type_signature, member(floats))
  accumulate = computation(halve_and_add, types)
  merge = computation(halve_and_add, (types[0], types[0]))
  report = computation(lambda s: tf.nest.map_structure(tf.sin, s), types[0])
  return tff.federated_aggregate(floats, zeros, accumulate, merge, report)


def specs(type_spec):
  return tff.types.type_to_tf_tensor_specs(type_spec)


def reduce_sequence(value):
  digits = computation(lambda d: d.reduce(0, lambda s, x: (2 * s + x) % 101), member(value))
  return tff.federated_map(digits, value)


def at_clients(value):
  return value.type_signature.placement is tff.CLIENTS


def apply_step(step, values):
  """The value that a step adds, or None if there is nothing for it to work on."""
  server = [v for v in values if not at_clients(v)]
  clients = [v for v in values if at_clients(v) and not is_sequence(v)]
  sequences = [v for v in values if is_sequence(v)]
  pick = lambda options, number: options[number % len(options)]  # noqa: E731
  of_clients, of_server = pick(clients, step.first), pick(server, step.first)
  if step.kind == 'map':
    return change(of_clients)
  if step.kind == 'apply':
    return change(of_server)
  if step.kind == 'zip':
    options = server if step.first % 2 else clients
    pair = pick(options, step.first), pick(options, step.second)
    if sum(len(tensor_types(member(v))) for v in pair) > MAX_LEAVES:
      return None
    named = collections.OrderedDict(p=pair[0], q=pair[1])
    return tff.federated_zip(pair if step.second % 2 else named)
  if step.kind == 'select':
    structs = [v for v in server + clients if isinstance(member(v), tff.types.StructType)]
    chosen = pick(structs, step.first)
    return chosen[step.second % len(member(chosen))]
  if step.kind == 'broadcast':
    return tff.federated_broadcast(of_server)
  if step.kind == 'value':
    return tff.federated_value(step.second / 4, tff.CLIENTS if step.first % 2 else tff.SERVER)
  if step.kind == 'eval':
    constant = computation(lambda: collections.OrderedDict(c=tf.constant([step.second, 2])))
    return tff.federated_eval(constant, tff.CLIENTS if step.first % 2 else tff.SERVER)
  if step.kind == 'sum':
    return tff.federated_sum(of_clients)
  if step.kind == 'mean':
    return tff.federated_mean(to_float(of_clients))
  if step.kind == 'weighted mean':
    return tff.federated_mean(to_float(of_clients), positive(pick(clients, step.second)))
  if step.kind == 'extremum':
    return (tff.federated_max if step.second % 2 else tff.federated_min)(of_clients)
  if step.kind == 'fold':
    return fold(of_clients)
  return reduce_sequence(pick(sequences, step.first))


KINDS = (
  *('map', 'apply', 'zip', 'select', 'broadcast', 'value', 'eval', 'sum', 'mean'),
  *('weighted mean', 'extremum', 'fold', 'reduce'),
)
STEPS = st.builds(
  Step,
  st.sampled_from(KINDS),
  st.integers(0, 11),
  st.integers(0, 11),
)


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

  columns = [lambda: np.float32(rng.normal()), struct, sequence]
  placed = [[draw() for _ in range(num_clients)] for draw in columns]
  return [*placed, np.float32(rng.normal()), struct()]


@hypothesis.settings(
  max_examples=10,
  suppress_health_check=list(hypothesis.HealthCheck),
  phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
)
@hypothesis.given(
  steps=st.lists(STEPS, min_size=5, max_size=12),
  num_clients=st.integers(0, 4),
  seed=st.integers(0, 99),
)
def test_random_computation(native, graph, steps, num_clients, seed):
  composed = build(steps, with_clients=num_clients > 0)
  data = arguments(num_clients, seed)
  expected = engines.run(native, composed, data)
  found = engines.run(graph, composed, data)
  engines.assert_same(found, expected, rtol=1e-4, atol=1e-5)


@hypothesis.settings(
  max_examples=4,
  suppress_health_check=list(hypothesis.HealthCheck),
  phases=[hypothesis.Phase.generate],
)
@hypothesis.given(
  # Subrounds are merged: an aggregate may not depend on the order of the clients.
  steps=st.lists(STEPS.filter(lambda step: step.kind != 'fold'), min_size=5, max_size=12),
  num_clients=st.integers(1, 5),
  seed=st.integers(0, 99),
)
def test_random_computation_in_subrounds(graph, steps, num_clients, seed):
  composed = build(steps, with_clients=True)
  data = arguments(num_clients, seed)
  expected = engines.run(graph, composed, data)
  found = engines.run(engine.SubroundContext(3, server=graph), composed, data)
  engines.assert_same(found, expected, rtol=1e-4, atol=1e-5)
