"""What travels to workers comes back as it was, through pickle."""

import collections
import pickle

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.engine.cluster import ray_worker, wire
from tff_adaptive.engine.graph import values

PAIR = collections.OrderedDict(b=tff.TensorType(np.float32, [None]), a=np.int32)
EXAMPLES = tff.SequenceType(PAIR)


def _travel(value, type_spec):
  return pickle.loads(pickle.dumps(wire.encode(value, type_spec)))


def test_structs_strings_and_lists_of_elements_come_back():
  type_spec = tff.types.to_type(((np.str_, PAIR), EXAMPLES))
  element = collections.OrderedDict(b=np.array([1.5, 2.5], np.float32), a=3)
  value = ((b'text', element), [element, element])
  (text, pair), sequence = wire.to_python(_travel(value, type_spec), type_spec)
  assert np.asarray(text).item() == b'text'
  for decoded in (pair, *sequence):
    assert list(decoded) == ['b', 'a']
    assert decoded['a'] == 3
    assert decoded['a'].dtype == np.int32
    np.testing.assert_array_equal(decoded['b'], [1.5, 2.5])
  assert ray_worker.num_bytes(wire.encode(element, tff.types.to_type(PAIR))) == 12


def test_a_dataset_comes_back_with_its_shuffles_begun_anew():
  data = tf.data.Dataset.range(50).map(lambda i: tf.cast(i, tf.int32)).shuffle(50, seed=3)
  type_spec = tff.SequenceType(np.int32)

  def read():
    (back,) = values.flatten(wire.decode(_travel(data, type_spec), type_spec), type_spec)
    return [int(x) for x in back]

  readings = [read(), read()]
  assert readings[0] == readings[1] != list(range(50))
  assert sorted(readings[0]) == list(range(50))


def test_a_dataset_of_structures_comes_back_by_a_type_that_names_no_containers():
  pair = collections.OrderedDict(y=tf.range(3), x=(tf.range(3) + 1, tf.range(3) + 5))
  element = tff.types.StructType([('y', np.int32), ('x', tff.types.StructType([np.int32] * 2))])
  type_spec = tff.SequenceType(element)
  back = wire.to_python(_travel(tf.data.Dataset.from_tensor_slices(pair), type_spec), type_spec)
  rows = [list(map(int, tf.nest.flatten((e['y'], e['x'])))) for e in back]
  assert rows == [[0, 1, 5], [1, 2, 6], [2, 3, 7]]


def test_what_does_not_fit_is_refused():
  with pytest.raises(TypeError, match='expected a tensor of type int32'):
    wire.encode(1.5, tff.types.to_type(np.int32))
  with pytest.raises(TypeError, match=r'float32.*found dtype float64'):
    wire.encode(np.zeros(2), tff.TensorType(np.float32, [2]))


def test_a_client_costs_its_examples():
  arrays = collections.OrderedDict(b=np.zeros(7, np.float32), a=np.int32(0))
  data = tf.data.Dataset.from_tensors(arrays).repeat(5)
  assert [wire.cost(v, EXAMPLES) for v in ([arrays], [arrays] * 3, data, [])] == [7, 3, 5, 1]
  both = tff.types.to_type((np.int32, EXAMPLES))
  assert wire.cost((4, [arrays]), both) == 7
  assert wire.cost(4, tff.types.to_type(np.int32)) == 1
