"""What the graph engine takes as arguments, what it returns for them, and what it refuses."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import computations, engines
from tff_adaptive.engine.graph import feeds, values

BFLOAT16 = tf.bfloat16.as_numpy_dtype
FLOAT = computations.FLOAT
VECTOR = computations.VECTOR
NUMBERS = computations.NUMBERS
STRUCT = computations.STRUCT
EXAMPLES = computations.EXAMPLES
at_clients = computations.at_clients
at_server = computations.at_server


EMPTY = collections.OrderedDict(nothing=(), one=np.int32, none=collections.OrderedDict())
TEXTS = tff.TensorType(np.str_, [None])
PASSED = [
  (at_server(np.str_), 'word'),
  (at_server(np.str_), b'bytes'),
  (at_clients(np.str_), ['a', np.str_('b'), b'c']),
  (at_clients(TEXTS), [np.array(['a', 'bcd']), np.array([b'e']), ['f', 'gh']]),
  (at_server(()), ()),
  (at_clients(()), [(), ()]),
  (at_clients(EMPTY), [dict(nothing=(), one=3, none={})]),
  (at_server(np.bool_), True),
  (at_server(tff.TensorType(BFLOAT16, [2])), np.ones(2, BFLOAT16)),
  (at_clients(VECTOR), [np.float32([1, 2]), np.float32([])]),
  (tff.FederatedType(STRUCT, tff.CLIENTS, all_equal=True), collections.OrderedDict(a=1.0, b=2)),
  (NUMBERS, [1, 2, 3]),
  (tff.SequenceType([('b', np.int32), ('a', FLOAT)]), [dict(b=1, a=2.0), dict(b=3, a=4.0)]),
  (at_clients(tff.SequenceType((np.int32, FLOAT))), [[(1, 2.0)], []]),
  (at_server(EXAMPLES), [dict(x=np.float32([1]), y=np.float32([2, 3]))]),
  (tff.types.to_type((np.int32, [STRUCT, np.float32])), (1, [dict(a=1.0, b=2), 0.5])),
]


@pytest.mark.sample(8)
@pytest.mark.parametrize('type_spec, value', PASSED, ids=range(len(PASSED)))
def test_values_pass_through_as_in_the_native_context(native, graph, type_spec, value):
  if getattr(type_spec, 'all_equal', False) and type_spec.placement is tff.CLIENTS:
    # Their number is needed: another argument gives it.
    computation = tff.federated_computation(lambda x, y: x, type_spec, at_clients(FLOAT))
    arguments = (value, [1.0, 2.0])
  else:
    computation = computations.identity(type_spec)
    arguments = (value,)
  expected = engines.run(native, computation, *arguments)
  engines.assert_same(engines.run(graph, computation, *arguments), expected)


NUMBER_TYPES = [np.dtype(code).type for code in 'bhilBHILefdFD?']
# Of a dtype, the type of an argument; of a number, the argument.
POSITIONS = {
  'alone': (lambda dtype: dtype, lambda one: one),
  'server': (lambda dtype: at_server([('a', dtype)]), lambda one: dict(a=tf.constant(one))),
  'stack': (lambda dtype: at_clients([('a', dtype)]), lambda one: [dict(a=one)] * 2),
  'concat': (
    lambda dtype: at_clients(tff.TensorType(dtype, [None])),
    lambda one: [np.array([one]), np.array([one, one])],
  ),
  'boxed': (
    lambda dtype: at_clients(tff.TensorType(dtype, [None, None])),
    lambda one: [np.array([[one]]), np.array([[one, one]])],
  ),
  'sequence': (lambda dtype: tff.SequenceType(dtype), lambda one: [one, one]),
  'whole': (
    lambda dtype: at_clients(tff.SequenceType(tff.TensorType(dtype, [None]))),
    lambda one: [[np.array([one])], [np.array([one, one])]],
  ),
}


@pytest.mark.sample(5)
@pytest.mark.parametrize('wanted', NUMBER_TYPES)
def test_numbers_are_widened_where_tff_widens_them(native, graph, wanted):
  """In all positions; those of a sequence, which TFF makes fit in any case, as all others."""
  alone = computations.identity(wanted)
  types = {name: type_of(wanted) for name, (type_of, _) in POSITIONS.items()}
  identities = {name: computations.identity(type_spec) for name, type_spec in types.items()}
  everywhere = computations.identity(tff.types.to_type(list(types.items())))
  for given in NUMBER_TYPES:
    arguments = {name: argument_of(given(1)) for name, (_, argument_of) in POSITIONS.items()}
    try:
      engines.run(native, alone, given(1))
    except TypeError:
      for name, identity in identities.items():
        with pytest.raises(TypeError, match='expected a tensor'):
          engines.run(graph, identity, arguments[name])
    else:
      expected = engines.run(native, everywhere, arguments)
      engines.assert_same(engines.run(graph, everywhere, arguments), expected)


REFUSED = [
  (at_server(np.int32), 1.5, ['int32', '1.5']),
  (at_server(np.int32), 2**40, ['int32', str(2**40)]),
  (at_server(np.int8), 300, ['int8', '300']),
  (at_server(np.int32), True, ['int32', 'True']),
  (at_server(np.int32), np.int64(1), ['int32', 'int64']),
  (at_server(np.float32), np.ones(2, np.float32), ['float32', '(2,)']),
  (at_server(STRUCT), 1.0, ['a=float32', 'float']),
  (at_server(STRUCT), dict(a=1.0, c=2), ["['a', 'b']", "['a', 'c']"]),
  (at_server(STRUCT), [1.0], ['2 elements', '1']),
  (at_clients(np.int32), 3, ['list', 'int']),
  (at_clients(np.int32), [1, 'x'], ['int32', "'x'"]),
  (at_clients(VECTOR), [np.ones(2)], ['float32[?]', 'float64']),
  (at_server(VECTOR), tf.ragged.constant([[1.0], [2.0, 3.0]]), ['float32[?]', 'RaggedTensor']),
  (at_clients(VECTOR), [tf.sparse.eye(2)], ['float32[?]', 'SparseTensor']),
  (at_clients(VECTOR), [np.ones([2, 2], np.float32)], ['float32[?]', '(2, 2)']),
  (at_clients(NUMBERS), [3], ['int32', 'list or tf.data.Dataset']),
  (at_clients(NUMBERS), [tf.data.Dataset.from_tensors(1.0)], ['int32', 'float32']),
  (at_clients(EXAMPLES), [[dict(x=np.ones(1, np.float32))]], ["['x', 'y']", "['x']"]),
  (
    at_clients(EXAMPLES),
    [tf.data.Dataset.from_tensors(dict(x=[1.0], z=[1.0]))],
    ['y=float32[?]', "'z'"],
  ),
]


@pytest.mark.parametrize('type_spec, value, words', REFUSED, ids=range(len(REFUSED)))
def test_a_misfit_is_refused_with_both_named(graph, type_spec, value, words):
  with pytest.raises(TypeError) as error:
    engines.run(graph, computations.identity(type_spec), value)
  for word in words:
    assert word in str(error.value)


def test_numpy_scalars_of_clients_are_joined(monkeypatch):
  """As arrays are: a tensor of each would cost more than the rest of the feed."""
  monkeypatch.delattr(values, 'to_tensor')
  _, tensors = feeds.prepare([np.int32(3), np.int32(1)], at_clients(np.int32))
  np.testing.assert_array_equal(tensors[1], np.int32([3, 1]))
  _, tensors = feeds.prepare([np.bool_(True), np.bool_(False)], at_clients(np.bool_))
  np.testing.assert_array_equal(tensors[1], [True, False])


def test_other_numbers_of_clients_are_refused(graph):
  pair = tff.federated_computation(lambda x, y: (x, y), [at_clients(FLOAT), at_clients(FLOAT)])
  with pytest.raises(ValueError, match=r'Conflicting cardinalities: .* for \[1, 2\]'):
    engines.run(graph, pair, [1.0], [1.0, 2.0])


def test_a_whole_client_may_be_a_list_or_a_dataset(graph):
  def first_sum(data):
    element = data.get_single_element()
    return tf.reduce_sum(element['x'])

  element = collections.OrderedDict(x=np.float32([1, 2]), y=np.float32([0]))
  sums = computations.mapped(first_sum, EXAMPLES)
  for client in ((element,), tf.data.Dataset.from_tensors(element)):
    assert list(engines.run(graph, sums, [client, client])) == [3, 3]
  with pytest.raises(tf.errors.InvalidArgumentError, match='more than one element'):
    engines.run(graph, sums, [[element, element]])
