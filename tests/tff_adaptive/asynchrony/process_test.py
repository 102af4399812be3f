"""Older models in a process: the one that a client begins with, and what its update is worth."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.asynchrony import Buffered, process
from tff_adaptive.client import local_training

W = (tf.constant([1.0, 2.0]), tf.constant(3.0))
MESSAGE = local_training.Message(tf.constant(5), tf.constant(0.5))


def times(factor, tree):
  return tf.nest.map_structure(lambda leaf: tf.cast(factor, leaf.dtype) * leaf, tree)


@pytest.mark.parametrize('mixing', [False, True])
@pytest.mark.parametrize('row, factor', [(-1, 1), (0, 10), (1, 20)])
def test_a_client_begins_with_the_model_of_its_row(row, factor, mixing):
  weights = tff.learning.models.ModelWeights(W, ())
  older = tf.nest.map_structure(lambda leaf: tf.stack([10 * leaf, 20 * leaf]), (MESSAGE, weights))
  if mixing:
    name = 'mixing_factor'
  else:
    name = 'staleness_factor'
  element = collections.OrderedDict(older_model=row, **{name: np.float32(0.25)})
  data = tf.data.Dataset.from_tensors(element)
  beginning = process.begin(Buffered(1, mixing=mixing), MESSAGE, (weights, older), data)
  received = (beginning.message, beginning.weights)
  tf.nest.map_structure(np.testing.assert_array_equal, received, times(factor, (MESSAGE, weights)))
  assert beginning.factor == 0.25
  if mixing:
    tf.nest.map_structure(np.testing.assert_array_equal, beginning.moved, times(1 - factor, W))
  else:
    assert beginning.moved is None


@pytest.mark.parametrize(
  'is_used, moved, factor', [(1, None, 0.5), (1, times(10, W), 5.5), (0, times(10, W), 0.5)]
)
def test_an_update_counts_by_its_staleness_and_from_the_present_model(is_used, moved, factor):
  trained = local_training.Trained(W, *['kept'] * 4, tf.constant(is_used), *['kept'] * 3)
  beginning = process.Beginning(MESSAGE, W, tf.constant(0.5), moved)
  update = process.discounted(trained, beginning)
  tf.nest.map_structure(np.testing.assert_array_equal, update.update, times(factor, W))
  assert update == trained._replace(update=update.update, squared_norm=factor**2 * 14)
