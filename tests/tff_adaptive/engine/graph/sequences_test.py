"""The intrinsics on sequences and the selection of slices."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import computations, engines

NUMBERS = computations.NUMBERS
PAIR = collections.OrderedDict(b=np.int32, a=np.float32)  # Not in the order of the names.
PAIRS = [[dict(b=1, a=2.0), dict(b=3, a=0.5)], [dict(b=1, a=-2.0)], []]

digits = tff.tensorflow.computation(lambda total, x: 10 * total + x, np.int32, np.int32)
weigh = tff.tensorflow.computation(
  lambda total, e: total / 2 + tf.cast(e['b'], tf.float32) * e['a'], np.float32, PAIR
)
swap_sign = tff.tensorflow.computation(
  lambda e: collections.OrderedDict(b=e['b'] + 1, a=-e['a']), PAIR
)


def at_each_client(function, type_spec):
  """A function of sequences, made of intrinsics, at each client."""
  local = tff.federated_computation(function, type_spec)
  return tff.federated_computation(
    lambda x: tff.federated_map(local, x), computations.at_clients(type_spec)
  )


def test_reduce_is_as_in_the_native_context(native, graph):
  computation = at_each_client(lambda s: tff.sequence_reduce(s, 0, digits), NUMBERS)
  data = [[1, 2, 3], [], [4]]
  expected = engines.run(native, computation, data)
  assert list(expected) == [123, 0, 4]
  engines.assert_same(engines.run(graph, computation, data), expected)


# TFF's own worker (0.87) runs none of these.
def test_elements_keep_their_fields(graph):
  def weighted(s):
    total = tff.sequence_reduce(tff.sequence_map(swap_sign, s), 0.0, weigh)
    return total, tff.sequence_sum(s)

  results = engines.run(graph, at_each_client(weighted, tff.SequenceType(PAIR)), PAIRS)
  assert [float(total) for total, _ in results] == [-2 * 2.0 / 2 - 4 * 0.5, 2 * 2.0, 0]
  assert [(int(s['b']), float(s['a'])) for _, s in results] == [(4, 2.5), (1, -2.0), (0, 0)]


def test_sequences_elsewhere(graph):
  local = tff.federated_computation(tff.sequence_sum, NUMBERS)
  at_server = tff.federated_computation(
    lambda x: tff.federated_map(local, x), computations.at_server(NUMBERS)
  )
  for computation in (local, at_server):
    assert int(engines.run(graph, computation, [1, 2, 3])) == 6


@pytest.mark.parametrize('select', [tff.federated_select, tff.federated_secure_select])
def test_select_is_as_in_the_native_context(native, graph, select):
  slice_of = tff.tensorflow.computation(lambda rows, key: (rows[key], key + 1))

  @tff.federated_computation(
    computations.at_clients(tff.TensorType(np.int32, [2])),
    computations.at_server(tff.TensorType(np.float32, [3, 2])),
  )
  def selected(keys, rows):
    return select(keys, tff.federated_value(3, tff.SERVER), rows, slice_of)

  keys = [np.int32([0, 2]), np.int32([1, 1])]
  rows = np.arange(6, dtype=np.float32).reshape(3, 2)
  actual = engines.run(graph, selected, keys, rows)
  first, second = actual
  assert [int(key) for _, key in first] == [1, 3]
  assert [int(key) for _, key in second] == [2, 2]
  if select is tff.federated_select:
    engines.assert_same(actual, engines.run(native, selected, keys, rows))
