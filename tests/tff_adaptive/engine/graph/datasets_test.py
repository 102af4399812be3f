"""Random numbers of datasets begin anew in each call; which are read once, changing no number."""

import gc
import os
import tempfile

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import engines
from tff_adaptive.engine.graph import datasets


def numbers(n=20):
  return tf.data.Dataset.from_tensor_slices(np.arange(n, dtype=np.int32))


def drawn(x):
  return x + tf.random.uniform([], maxval=9, dtype=tf.int32)


REPEATABLE = {
  'tutorial': lambda: numbers().repeat(2).shuffle(7, seed=1).batch(3).map(lambda x: 2 * x),
  'filtered': lambda: numbers().filter(lambda x: x % 2 == 0).prefetch(2),
  'epochs of their own': lambda: numbers().shuffle(20, seed=3).repeat(2).batch(4).unbatch(),
  'kept in memory': lambda: numbers().cache(),
  'large': lambda: tf.data.Dataset.from_tensors(np.zeros(2**16)),
  'a function in it': lambda: numbers().map(tf.function(lambda x: x + 1)).take(9),
}
OTHERS = {
  'no seed': lambda: numbers().shuffle(20),
  'random': lambda: numbers().map(drawn),
  'endless': lambda: numbers().repeat().batch(5),
  'empty': lambda: numbers(0),
  'kept in a file': lambda: numbers().cache(os.path.join(tempfile.mkdtemp(), 'kept')),
  'not known to be endless': lambda: numbers(5).repeat().filter(lambda x: x >= 0),
  'lengths': lambda: tf.data.Dataset.range(90).map(lambda i: tf.fill([i % 2], 1)),
  'lines of a file, which may change': lambda: (
    tf.data.TextLineDataset(__file__).take(5).map(tf.strings.length)
  ),
  'records': lambda: tf.data.FixedLengthRecordDataset(__file__, 1).map(tf.strings.length).take(5),
  'a file read in a map': lambda: tf.data.Dataset.from_tensors(__file__).map(
    lambda path: tf.strings.length(tf.io.read_file(path))
  ),
}


def read(variant, dataset):
  elements = tf.data.experimental.from_variant(variant, dataset.element_spec).take(30)
  return [element.numpy().tolist() for element in elements]


def variant_of(cache, dataset):
  return datasets.variant(dataset, tff.types.tensorflow_to_type(dataset.element_spec), cache)


@pytest.mark.parametrize('name', REPEATABLE)
def test_a_dataset_that_repeats_is_held_from_its_second_use_on(name):
  cache = datasets.DatasetCache()
  dataset = REPEATABLE[name]()
  first = read(variant_of(cache, dataset), dataset)
  assert cache.find(dataset) is None
  second = variant_of(cache, dataset)
  assert cache.find(dataset) is second
  assert variant_of(cache, dataset) is second
  assert read(second, dataset) == first
  assert b'Shuffle' not in tf.raw_ops.DatasetToGraphV2(input_dataset=second).numpy()


@pytest.mark.parametrize('name', OTHERS)
def test_others_are_not(name, monkeypatch):
  monkeypatch.setattr(datasets, '_MAX_ELEMENTS', 100)
  looked = []
  repeats = datasets._repeats
  monkeypatch.setattr(datasets, '_repeats', lambda v: looked.append(v) or repeats(v))
  cache = datasets.DatasetCache(max_bytes=10000)
  dataset = OTHERS[name]()
  for _ in range(3):
    read(variant_of(cache, dataset), dataset)
    assert cache.find(dataset) is None
  assert len(looked) == 1


@pytest.mark.parametrize('lengths', [[1], [1, 2], [1, 2, 3], [1, 1, 2, 1, 3, 3, 2, 1]])
def test_rows_of_any_number_of_shapes_are_all_kept_in_order(lengths):
  rows = [[tf.fill([n], i)] for i, n in enumerate(lengths)]
  (values,) = zip(*datasets.from_rows(rows))
  assert [x.numpy().tolist() for x in values] == [[i] * n for i, n in enumerate(lengths)]


def test_an_element_that_fails_after_those_that_are_read_is_not_met(graph):
  first = tff.tensorflow.computation(
    lambda d: d.take(3).reduce(tf.constant(0, tf.int64), tf.add), tff.SequenceType(np.int64)
  )
  dataset = tf.data.Dataset.range(10).map(lambda i: 60 // (5 - i))
  for _ in range(3):
    assert engines.run(graph, first, dataset) == 12 + 15 + 20


def test_a_full_cache_takes_no_more_and_the_dead_make_room():
  cache = datasets.DatasetCache(max_bytes=100)
  one = numbers(20)
  other = numbers(10)
  for _ in range(3):
    for dataset in (one, other):
      variant_of(cache, dataset)
  assert cache.find(one) is not None  # 80 bytes.
  assert cache.find(other) is None
  del one, dataset
  gc.collect()
  third = numbers(20)
  for _ in range(2):
    variant_of(cache, third)
  assert cache.find(third) is not None


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


@pytest.mark.sample(4)
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

  monkeypatch.setattr(datasets, 'graph_of', refuse)
  total = tff.tensorflow.computation(
    lambda d: d.reduce(tf.constant(0, tf.int64), tf.add), tff.SequenceType(np.int64)
  )
  for _ in range(2):
    assert engines.run(graph, total, hidden(Dataset.range(5))) == 10
