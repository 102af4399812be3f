"""Imported graphs: variables and tables are private, other kinds of computations are named."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import computations, engines
from tff_adaptive import engine
from tff_adaptive.engine import batched_clients

FLOAT = computations.FLOAT
NUMBERS = computations.NUMBERS


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


def variable_of(x):
  variable = tf.Variable(x)
  return tf.function(lambda: variable.assign_add(2.0 * x))()


def table_of(x):
  keys = tf.strings.as_string([x, x + 1.0], precision=0)
  initializer = tf.lookup.KeyValueTensorInitializer(keys, tf.constant([10.0, 20.0]))
  table = tf.lookup.StaticHashTable(initializer, -1.0)
  return table.lookup(tf.constant('2')) + x


def generator_of(x):
  generator = tf.random.Generator.from_seed(tf.cast(x, tf.int64))
  return generator.uniform([]) + generator.uniform([])


INITIALIZED = [variable_of, table_of, generator_of]


@pytest.mark.sample(1)
@pytest.mark.parametrize('function', INITIALIZED)
def test_initial_values_may_come_from_arguments(native, graph, function):
  alone = tff.tensorflow.computation(function, FLOAT)
  expected = [float(engines.run(native, alone, x)) for x in (1.0, 2.0, 5.0)]
  assert [float(engines.run(graph, alone, x)) for x in (1.0, 2.0, 5.0)] == expected
  at_clients = computations.mapped(function, FLOAT)
  for _ in range(2):
    assert list(engines.run(graph, at_clients, [1.0, 2.0, 5.0])) == expected


def test_initial_values_may_come_from_arguments_in_groups(native):
  double = batched_clients.computation(
    batched_clients.Group(lambda clients: tf.stack([2 * x for (x,) in clients])), FLOAT
  )(lambda x: 2 * x)
  alone = [tff.tensorflow.computation(function, FLOAT) for function in INITIALIZED]

  @tff.federated_computation(computations.at_clients(FLOAT))
  def both(x):
    doubled = tff.federated_map(double, x)
    return doubled, [tff.federated_map(function, doubled) for function in alone]

  cohort = [0.5, 1.0, 2.5]
  expected = engines.run(native, both, cohort)
  context = engine.GraphContext(clients_per_step=2)
  engines.assert_same(engines.run(context, both, cohort), expected)


def test_an_initial_value_may_come_from_a_sequence(native, graph):
  def descend(numbers):
    variable = tf.Variable(numbers.reduce(0, lambda s, x: s + x))
    return numbers.reduce(0, lambda s, x: s + variable.assign_add(x))

  computation = computations.mapped(descend, NUMBERS)
  data = [[1, 2, 3], [4], []]
  expected = engines.run(native, computation, data)
  engines.assert_same(engines.run(graph, computation, data), expected)
  assert list(expected) == [7 + 9 + 12, 8, 0]
