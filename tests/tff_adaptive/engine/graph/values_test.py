"""Values of TFF types: flat and back, client results, datasets."""

import collections

import attrs
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import computations, engines
from tff_adaptive import engine
from tff_adaptive.engine.graph import values

FLOAT = computations.FLOAT
VECTOR = computations.VECTOR
NUMBERS = computations.NUMBERS
VECTOR_OF_2 = tff.TensorType(np.float32, [2])
at_clients = computations.at_clients
at_server = computations.at_server


ROW = tff.types.to_type(
  collections.OrderedDict(a=np.int32, b=(np.float32, [2]), c=(np.float32, [None]), d=np.str_)
)


@pytest.mark.parametrize('value', [np.float32(1.5), np.int64(7), b'text', np.ones([0, 2])])
def test_results_have_tffs_python_types(value):
  converted = values.to_numpy(tf.constant(value))
  assert type(converted) is type(value)
  np.testing.assert_equal(converted, value)


def test_client_results_are_a_list_that_goes_back_and_each_has_its_own_memory(graph):
  identity = computations.identity(at_clients(ROW))
  rows = [
    dict(a=np.int32(i), b=np.float32([i, -i]), c=np.ones(i, np.float32), d=b'client %d' % i)
    for i in range(3)
  ]
  results = engines.run(graph, identity, rows)
  assert type(results) is list
  for values_of_clients in (results, engines.run(graph, identity, results)):
    for one, row in zip(values_of_clients, rows, strict=True):
      assert list(one) == list(row)
      for value, expected in zip(one.values(), row.values()):
        assert type(value) is type(expected)
        np.testing.assert_equal(value, expected)
      assert one['b'].base is None
  assert engines.run(graph, identity, []) == []


def test_results_are_read_only_and_go_back(graph):
  matrix = tff.TensorType(np.float32, [None, None])
  identity = computations.identity(at_server(matrix))
  first = engines.run(graph, identity, np.ones([2, 3], np.float32))
  with pytest.raises(ValueError, match='read-only'):
    first += 1
  np.testing.assert_array_equal(engines.run(graph, identity, first[1:]), [[1, 1, 1]])
  shift = computations.mapped(lambda d: d.map(lambda x: x + 1), NUMBERS)
  once = engines.run(graph, shift, [(1, 2), []])
  assert [list(s) for s in engines.run(graph, shift, once)] == [[3, 4], []]


def test_results_are_tensors_for_who_asks_for_them(graph):
  del graph
  context = engine.GraphContext(results='tensors')
  identity = computations.identity(tff.types.to_type([at_server(FLOAT), at_clients(VECTOR_OF_2)]))
  value, rows = engines.run(context, identity, [1.0, [[1.0, 2.0]]])
  assert all(map(tf.is_tensor, (value, *rows)))
  with pytest.raises(ValueError, match=r"results is 'keras'; it must be 'numpy' or 'tensors'"):
    engine.GraphContext(results='keras')


@attrs.define
class Pair:
  a: int
  b: int


def test_elements_are_found_by_name_where_there_are_names():
  type_spec = tff.types.to_type(collections.OrderedDict(a=np.int32, b=np.int32))
  named = collections.namedtuple('Named', 'a b')(1, 2)
  struct = tff.structure.Struct([('b', 2), ('a', 1)])
  for value in (dict(b=2, a=1), named, Pair(1, 2), [1, 2], struct):
    assert values.struct_elements(value, type_spec) == [1, 2], value
