"""Older models by themselves: the one that a client begins with, and what its update is worth."""

import numpy as np
import pytest
import tensorflow as tf

from tff_adaptive.algorithms import versions
from tff_adaptive.client import local_training

W = (tf.constant([1.0, 2.0]), tf.constant(3.0))


def times(factor, tree):
  return tf.nest.map_structure(lambda leaf: factor * leaf, tree)


@pytest.mark.parametrize('version, factor', [(-1, 1), (0, 10), (1, 20)])
def test_a_client_begins_with_the_row_of_its_version(version, factor):
  present = {'t': tf.constant(5.0)}, W
  older = tf.nest.map_structure(lambda leaf: tf.stack([10 * leaf, 20 * leaf]), present)
  found = versions.select({'version': version}, *present, older)
  tf.nest.map_structure(np.testing.assert_array_equal, found, times(factor, present))


@pytest.mark.parametrize(
  'name, is_used, moved, factor',
  [('discount', 1, None, 0.5), ('mixed', 1, times(10, W), 5.5), ('mixed', 0, times(10, W), 0.5)],
)
def test_an_update_counts_by_its_staleness_and_from_the_present_model(name, is_used, moved, factor):
  trained = local_training.Trained(W, *['kept'] * 4, tf.constant(is_used), *['kept'] * 3)
  found = versions.discounted(trained, {name: tf.constant(0.5)}, moved)
  tf.nest.map_structure(np.testing.assert_array_equal, found.update, times(factor, W))
  assert found == trained._replace(update=found.update, squared_norm=factor**2 * 14)
