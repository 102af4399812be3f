"""Types and small computations for the tests of the graph engine."""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

FLOAT = np.float32
VECTOR = tff.TensorType(np.float32, [None])
NUMBERS = tff.SequenceType(np.int32)
STRUCT = collections.OrderedDict(a=np.float32, b=np.int32)
EXAMPLES = tff.SequenceType(collections.OrderedDict(x=VECTOR, y=VECTOR))


def at_clients(type_spec):
  """The type, placed at the clients."""
  return tff.FederatedType(type_spec, tff.CLIENTS)


def at_server(type_spec):
  """The type, placed at the server."""
  return tff.FederatedType(type_spec, tff.SERVER)


def identity(type_spec):
  """Returns its argument."""
  return tff.federated_computation(lambda x: x, type_spec)


def mapped(function, type_spec):
  """The function at each client."""
  local = tff.tensorflow.computation(function, type_spec)
  return tff.federated_computation(lambda x: tff.federated_map(local, x), at_clients(type_spec))


def collected():
  """Twice the clients' numbers as a dataset that begins with 0, and their sum."""
  numbers = tff.SequenceType(FLOAT)
  zero = tff.tensorflow.computation(lambda: tf.data.Dataset.from_tensors(0.0))
  accumulate = tff.tensorflow.computation(
    lambda d, x: d.concatenate(tf.data.Dataset.from_tensors(x)), numbers, FLOAT
  )
  merge = tff.tensorflow.computation(lambda d, e: d.concatenate(e), numbers, numbers)
  double = tff.tensorflow.computation(lambda d: d.map(lambda x: 2 * x), numbers)
  total = tff.tensorflow.computation(lambda d: d.reduce(0.0, lambda s, x: s + x), numbers)

  @tff.federated_computation(at_clients(FLOAT))
  def dataset(x):
    return tff.federated_aggregate(x, zero(), accumulate, merge, double)

  return dataset, tff.federated_computation(
    lambda x: tff.federated_map(total, dataset(x)), at_clients(FLOAT)
  )
