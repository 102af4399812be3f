"""Values of TFF types: flat and back, client results, datasets."""

import collections
import copy
import pickle

import attrs
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import tree

from tests.helpers import computations, engines
from tff_adaptive.engine.graph import feeds, values

FLOAT, VECTOR, NUMBERS, at_clients = (
  computations.FLOAT,
  computations.VECTOR,
  computations.NUMBERS,
  computations.at_clients,
)


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
      assert tf.is_tensor(one)
      assert one.dtype == other.dtype
      np.testing.assert_array_equal(one, other)
  assert list(engines.run(graph, identity, [])) == []


def test_client_results_of_fixed_shape_are_not_copied(graph):
  results = engines.run(graph, computations.mapped(lambda x: x + 1, FLOAT), [1.0, 2.0])
  monitor = tff.federated_computation(lambda x: tff.federated_sum(x), at_clients(FLOAT))
  _, flat = feeds.prepare(results, monitor.type_signature.parameter)
  assert flat[1] is results.flat[0]


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


@pytest.mark.parametrize('value', [tf.ragged.constant([[1], [2, 3]]), tf.sparse.eye(2)])
def test_what_is_no_plain_tensor_is_refused_by_its_type(graph, value):
  vector = tff.TensorType(np.int32, [None])
  for type_spec, argument in ((vector, value), (at_clients(vector), [value])):
    with pytest.raises(TypeError, match=rf'type int32\[\?\], found {type(value).__name__}'):
      engines.run(graph, computations.identity(type_spec), argument)


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
