"""Imported graphs: variables and tables are private, other kinds of computations are named."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import computations, engines
from tff_adaptive import engine

FLOAT, NUMBERS = computations.FLOAT, computations.NUMBERS


def test_a_jax_computation_is_named(graph):
  computation = tff.jax.computation(lambda x: x + 1, np.int32)
  with pytest.raises(NotImplementedError, match=r'tff\.jax computation.*native context'):
    engines.run(graph, computation, 1)


@pytest.mark.parametrize('parallel_clients', [1, 4])
def test_variables_are_private_to_a_client(parallel_clients):
  @tf.function
  def add_often(v, x):
    for _ in tf.range(200):
      v.assign_add(x)
    return v.read_value()

  def count(x):
    return add_often(tf.Variable(0.0), x)

  context = engine.GraphContext(parallel_clients)
  counts = engines.run(context, computations.mapped(count, FLOAT), [float(i) for i in range(12)])
  assert list(counts) == [200.0 * i for i in range(12)]


@pytest.mark.parametrize('kind', ['mutable', 'dense'])
def test_tables_are_private_to_a_client_and_a_round(graph, kind):
  def repetitions(numbers):
    if kind == 'mutable':
      table = tf.lookup.experimental.MutableHashTable(tf.int32, tf.int32, 0)
    else:
      table = tf.lookup.experimental.DenseHashTable(tf.int32, tf.int32, 0, -1, -2)

    def count(total, number):
      table.insert(number, table.lookup(number) + 1)
      return total + table.lookup(number) - 1

    return numbers.reduce(0, count)

  computation = computations.mapped(repetitions, NUMBERS)
  for _ in range(2):
    assert list(engines.run(graph, computation, [[1, 1, 2], [1, 1, 1], [2, 1]])) == [1, 3, 0]
