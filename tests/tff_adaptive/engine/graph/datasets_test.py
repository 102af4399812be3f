"""Datasets with random numbers begin anew in each call, as those that TFF serializes."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import engines
from tff_adaptive.engine.graph import dataset_cache

Dataset = tf.data.Dataset


def hidden(dataset):
  variant = tf.data.experimental.to_variant(dataset)
  return tf.data.experimental.from_variant(variant, dataset.element_spec)


def mixed():
  pair = [Dataset.range(50), Dataset.range(100, 200)]
  return Dataset.sample_from_datasets(pair, seed=3, rerandomize_each_iteration=True)


DRAWN = {
  'shuffled': lambda: Dataset.range(20).shuffle(20, seed=1).repeat(2),
  'shuffled once': lambda: (
    Dataset.range(20).shuffle(20, seed=1, reshuffle_each_iteration=False).repeat(2)
  ),
  'shuffled twice': lambda: hidden(Dataset.range(20).shuffle(20, seed=1)).shuffle(5, seed=2),
  'hidden': lambda: hidden(Dataset.range(20).shuffle(20, seed=1)),
  'of version 1': lambda: tf.compat.v1.data.Dataset.range(20).shuffle(20, seed=1),
  'mixed': mixed,
  'mixed twice': lambda: mixed().take(9).repeat(2),
  'random': lambda: Dataset.random(seed=4, rerandomize_each_iteration=True).take(9).repeat(2),
}


@pytest.mark.parametrize('name', DRAWN)
def test_random_numbers_begin_anew_in_each_call(native, graph, name):
  @tff.tensorflow.computation(tff.SequenceType(np.int64))
  def digest(numbers):
    return numbers.take(40).reduce(tf.constant(0, tf.int64), lambda s, i: (3 * s + i) % 100003)

  dataset = DRAWN[name]()  # From the second call on its elements may be held.
  expected = engines.run(native, digest, dataset)
  for _ in range(4):
    assert engines.run(graph, digest, dataset) == expected


def test_what_cannot_be_written_down_is_read_as_it_is(graph, monkeypatch):
  def refuse(_):
    raise tf.errors.UnimplementedError(None, None, 'no graph')

  monkeypatch.setattr(dataset_cache, 'graph_of', refuse)
  total = tff.tensorflow.computation(
    lambda d: d.reduce(tf.constant(0, tf.int64), tf.add), tff.SequenceType(np.int64)
  )
  for _ in range(2):
    assert engines.run(graph, total, hidden(Dataset.range(5))) == 10
