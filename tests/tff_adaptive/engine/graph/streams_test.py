"""What a client draws depends on its place, its arguments and the seed, and on nothing else."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import computations, engines, small_problem
from tff_adaptive import engine

COUNT = 5000


def _in_loop(step, draw):
  return tf.while_loop(lambda i, _: i < 3, lambda i, _: (i + 1, draw()), (0, tf.zeros([COUNT])))[1]


def _in_branch(step, draw):
  return tf.cond(step > -1, draw, lambda: tf.zeros([COUNT]))


def _in_reduction(step, draw):
  return tf.data.Dataset.range(3).reduce(tf.zeros([COUNT]), lambda _, i: draw())


def _in_function(step, draw):
  return tf.function(lambda: _in_loop(step, tf.function(draw)), autograph=False)()


PLACES = {
  'graph': lambda step, draw: draw(),
  'loop': _in_loop,
  'branch': _in_branch,
  'reduction': _in_reduction,
  'functions': _in_function,
}
# By operation, a function that draws, and the mean and the deviation of its distribution.
KINDS = {
  'uniform': (lambda: tf.random.uniform([COUNT], seed=3), 0.5, 12**-0.5),
  'int': (
    lambda: tf.cast(tf.random.uniform([COUNT], 2, 7, tf.int32, seed=3), tf.float32),
    4.0,
    2**0.5,
  ),
  'normal': (lambda: tf.random.normal([COUNT], 1.0, 2.0, seed=3), 1.0, 2.0),
  'truncated': (lambda: tf.random.truncated_normal([COUNT], seed=3), 0.0, 0.8796),
}
CASES = [(place, 'uniform') for place in PLACES] + [('functions', kind) for kind in KINDS]


@pytest.mark.parametrize('place, kind', CASES)
@pytest.mark.sample(5)
def test_draws_are_of_the_distribution_and_differ_by_client_and_argument(place, kind):
  draw, mean, deviation = KINDS[kind]
  comp = computations.mapped(lambda step: PLACES[place](step, draw), np.int32)
  with engine.graph_context(parallel_clients=3):
    first = comp([1, 1, 2])
    again = comp([1, 1, 2])
    other = comp([1, 3, 2])
  with engine.graph_context(parallel_clients=1):
    alone = comp([1, 1, 2])
  for draws in (again, alone):
    np.testing.assert_array_equal(first, draws)
  np.testing.assert_array_equal(other[0], first[0])
  drawn = [*first, other[1]]
  for one in drawn:
    assert abs(np.mean(one) - mean) < 5 * deviation / COUNT**0.5
    assert abs(np.std(one) - deviation) < 0.05 * deviation
  matrix = np.corrcoef(drawn)
  assert np.abs(matrix - np.eye(len(drawn))).max() < 5 / COUNT**0.5  # They are independent.


def test_a_clients_steps_draw_anew():
  def draw_twice(step):
    array = tf.TensorArray(tf.float32, 2)

    def body(i, array):
      return i + 1, array.write(i, tf.random.uniform([COUNT], seed=3))

    return tf.while_loop(lambda i, _: i < 2, body, (0, array))[1].stack()

  with engine.graph_context():
    ((one, other),) = computations.mapped(draw_twice, np.int32)([0])
  assert abs(np.corrcoef(one, other)[0, 1]) < 5 / COUNT**0.5


def _keras():
  return small_problem.keras_model(
    tf.keras.layers.Dropout(0.5, seed=7), tf.keras.layers.GaussianNoise(0.1, seed=8)
  )


def _rounds(process, state, rounds, **options):
  cohort = [
    tf.data.Dataset.from_tensor_slices(collections.OrderedDict(x=x, y=y)).batch(4)
    for x, y in small_problem.clients()
  ]
  with engine.graph_context(**options):
    for _ in range(rounds):
      output = process.next(process.initialize() if state is None else state, cohort)
      state = output.state
  return state, output.metrics


def test_a_tff_program_with_dropout_repeats_and_continues():
  """With any number of clients at once, and from a state that was kept."""
  process = tff.learning.algorithms.build_weighted_fed_avg(
    _keras, tff.learning.optimizers.build_sgdm(0.1)
  )
  wanted = _rounds(process, None, 3, parallel_clients=1)
  engines.assert_same(_rounds(process, None, 3, parallel_clients=4), wanted, rtol=0, atol=0)
  half, _ = _rounds(process, None, 2, parallel_clients=4)
  engines.assert_same(_rounds(process, half, 1, parallel_clients=2), wanted, rtol=0, atol=0)
