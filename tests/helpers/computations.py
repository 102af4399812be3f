"""Types and small computations for the tests of the graph engine."""

import collections

import numpy as np
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
