"""Values of TFF types: flat and back, client results, datasets."""

import collections
import copy
import pickle
import weakref

import attrs
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import tree

from tests.helpers import computations, engines
from tff_adaptive import engine
from tff_adaptive.engine.graph import feeds, values

FLOAT, VECTOR, NUMBERS = computations.FLOAT, computations.VECTOR, computations.NUMBERS
VECTOR_OF_2 = tff.TensorType(np.float32, [2])
at_clients, at_server = computations.at_clients, computations.at_server


def test_client_results_are_as_a_list_and_go_back_as_they_are(graph, monkeypatch):
  double = computations.mapped(lambda x: 2 * x, VECTOR)
  results = engines.run(graph, double, [np.float32([1]), np.float32([]), np.float32([2, 3])])
  assert len(results) == 3
  assert [list(np.asarray(r)) for r in results] == [[2], [], [4, 6]]
  np.testing.assert_array_equal(results[-1], [4, 6])
  np.testing.assert_array_equal(results[:2][0], [2])
  with pytest.raises(IndexError, match='client 3 of 3'):
    results[3]
  with monkeypatch.context() as patch:
    patch.delattr(values.ClientValues, '__getitem__')
    again = engines.run(graph, double, results)
  np.testing.assert_array_equal(again[2], [8, 12])


def test_client_results_compare_and_join_as_a_list(graph):
  results = engines.run(graph, computations.mapped(lambda x: 2 * x, FLOAT), [1.0, 2.0])
  assert isinstance(results, list)
  assert results == [2, 4]
  assert [2, 4] == results == copy.deepcopy(results)
  assert results != [2, 5]
  assert results != (2, 4)
  one = [1]
  assert results + one == [2, 4, 1]
  assert one + results == [1, 2, 4]
  assert results + results == [2, 4, 2, 4]
  assert pickle.loads(pickle.dumps(results)) == [2, 4]
  with pytest.raises(TypeError, match='unhashable'):
    hash(results)
  assert results.flat  # None of these has made it another.


def test_structures_of_client_results_are_mapped(graph):
  results = {'a': engines.run(graph, computations.mapped(lambda x: 2 * x, FLOAT), [1.0, 2.0])}
  for library in (tree, tf.nest):
    mapped = library.map_structure(lambda x: float(x) + 1, results)
    assert mapped == {'a': [3.0, 5.0]}
    assert type(mapped['a']) is list
  assert tf.function(lambda r: r['a'][0] + r['a'][1])(results) == 6


ROW = tff.types.to_type(
  collections.OrderedDict(a=np.int32, b=(np.float32, [2]), c=(np.float32, [None]), d=np.str_)
)


def test_client_results_one_after_another_are_those_by_index(graph):
  rows = [
    dict(a=np.int32(i), b=np.float32([i, -i]), c=np.ones(i, np.float32), d=f'client {i}')
    for i in range(3)
  ]
  identity = computations.identity(at_clients(ROW))
  results = engines.run(graph, identity, rows)
  by_index = [results[i] for i in range(3)]
  for found, expected, row in zip(results, by_index, rows, strict=True):
    assert list(found) == list(expected) == list(row)
    for one, other in zip(found.values(), expected.values()):
      assert isinstance(one, (np.generic, np.ndarray, bytes))
      assert type(one) is type(other)
      assert np.asarray(one).dtype == np.asarray(other).dtype
      np.testing.assert_array_equal(one, other)
  assert list(engines.run(graph, identity, [])) == []


def test_client_results_of_fixed_shape_are_not_copied(graph):
  results = engines.run(graph, computations.mapped(lambda x: x + 1, FLOAT), [1.0, 2.0])
  monitor = tff.federated_computation(lambda x: tff.federated_sum(x), at_clients(FLOAT))
  _, flat = feeds.prepare(results, monitor.type_signature.parameter)
  assert flat[1] is values.shared_tensor(results.flat[0])


def test_results_share_memory_with_their_tensors_which_the_engine_knows_again(graph):
  matrix = tff.TensorType(np.float32, [None, None])
  identity = computations.identity(at_server(matrix))
  first = engines.run(graph, identity, np.ones([2, 3], np.float32))
  again = engines.run(graph, identity, first)
  assert np.shares_memory(first, again)
  with pytest.raises(ValueError, match='read-only'):
    first += 1
  np.testing.assert_array_equal(engines.run(graph, identity, first[1:]), [[1, 1, 1]])
  first.shape = (3, 2)
  assert engines.run(graph, identity, first).shape == (3, 2)
  tensor = weakref.ref(values.shared_tensor(again))
  assert tensor() is not None
  del first, again
  assert tensor() is None


def test_what_one_client_has_does_not_keep_what_all_have(graph):
  results = engines.run(graph, computations.identity(at_clients(VECTOR_OF_2)), [[1.0, 2.0]] * 9)
  for row in (results[0], next(iter(results))):
    assert not np.shares_memory(row, results.flat[0])


def test_results_are_tensors_for_who_asks_for_them(graph):
  del graph
  context = engine.GraphContext(results='tensors')
  identity = computations.identity(tff.types.to_type([at_server(FLOAT), at_clients(VECTOR_OF_2)]))
  value, rows = engines.run(context, identity, [1.0, [[1.0, 2.0]]])
  assert all(map(tf.is_tensor, (value, *rows)))
  with pytest.raises(ValueError, match=r"results is 'keras'; it must be 'numpy' or 'tensors'"):
    engine.GraphContext(results='keras')


def test_sequences_as_results_go_back(graph):
  shift = computations.mapped(lambda d: d.map(lambda x: x + 1), NUMBERS)
  once = engines.run(graph, shift, [[1, 2], []])
  assert [list(s) for s in engines.run(graph, shift, once)] == [[3, 4], []]


def test_flat_leaves_and_back():
  value = collections.OrderedDict(b=1, a=collections.OrderedDict([('y', (2.0, 3)), ('z', True)]))
  type_spec = tff.types.to_type(
    [('b', np.int32), ('a', [('y', (np.float32, np.int32)), ('z', np.bool_)])]
  )
  assert values.flatten(value, type_spec) == [1, 2.0, 3, True]
  assert [str(t) for t in values.leaf_types(type_spec)] == ['int32', 'float32', 'int32', 'bool']
  packed = values.pack([1, 2.0, 3, True], type_spec)
  assert values.flatten(packed, type_spec) == [1, 2.0, 3, True]


@attrs.define
class Pair:
  a: int
  b: int


@pytest.mark.parametrize(
  'value',
  [
    dict(b=2, a=1),
    collections.namedtuple('Named', 'a b')(1, 2),
    Pair(1, 2),
    [1, 2],
    tff.structure.Struct([('b', 2), ('a', 1)]),
  ],
  ids=['dict', 'namedtuple', 'attrs', 'list', 'struct'],
)
def test_elements_are_found_by_name_where_there_are_names(value):
  type_spec = tff.types.to_type(collections.OrderedDict(a=np.int32, b=np.int32))
  assert values.struct_elements(value, type_spec) == [1, 2]
