"""TFF's own learning processes, and the forms of their data, on the small problem."""

import collections

import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import small_problem
from tff_adaptive.client import Batching, client_arrays

_learning = tff.learning.algorithms

RATE = 0.1  # Of the clients of `own`.
MOMENTUM = tff.learning.optimizers.build_sgdm(0.1, momentum=0.9)
ADAM = tff.learning.optimizers.build_adam(0.05)


def keras_model():
  """A Keras model with trainable and non-trainable variables and a metric."""
  identity = tf.keras.initializers.Identity()
  return small_problem.keras_model(
    tf.keras.layers.Dense(5, 'tanh', kernel_initializer=identity, trainable=False), hidden=False
  )


def examples(client, count):
  """A client's examples as whole arrays."""
  ((x, y),) = small_problem.clients(client, [count])
  return collections.OrderedDict(x=x, y=y)


def whole(*clients):
  """A cohort of this project: clients (number, examples) as whole arrays."""
  return [client_arrays(**examples(i, n), client=i) for i, n in clients]


def batches(client, count):
  """A client's examples as a list of batches of two."""
  data = examples(client, count)

  def batch(start):
    return collections.OrderedDict((k, v[start : start + 2]) for k, v in data.items())

  return [batch(start) for start in range(0, count, 2)]


def dataset(client, count):
  """A client's examples as a dataset of batches of two."""
  return tf.data.Dataset.from_tensor_slices(examples(client, count)).batch(2)


def cohorts():
  """Two rounds: other clients, cohort sizes and forms in each."""
  return [[dataset(1, 5), dataset(2, 2), dataset(3, 7)], [batches(3, 7), dataset(4, 1)]]


def own(name='fed_yogi', **options):
  """An algorithm of this project, for whole arrays."""
  return small_problem.process(name, RATE, batching=Batching(2), **options)


# The loops of mime_lite, of steps and of the gradient, are Python's over an iterator.
PROCESSES = {
  'weighted_fed_avg': lambda: _learning.build_weighted_fed_avg(keras_model, MOMENTUM, ADAM),
  'mime_lite': lambda: _learning.build_weighted_mime_lite(
    keras_model, MOMENTUM, loop_implementation=tff.learning.LoopImplementation.DATASET_ITERATOR
  ),
}
AGGREGATORS = {
  'robust': lambda: tff.learning.robust_aggregator(
    weighted=False, debug_measurements_fn=tff.learning.add_debug_measurements
  ),
  'dp_without_noise': lambda: tff.learning.dp_aggregator(0.0, 3.0),
  'secure': lambda: tff.aggregators.SecureSumFactory(1.0, -1.0),
}
