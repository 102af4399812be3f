"""MNIST, EMNIST letters and skewed digits: the papers' models and clients."""

import math

import numpy as np
import pytest

import tff_adaptive_tasks as tasks
from tests.helpers import image_files, task_data
from tff_adaptive_tasks import images


def test_pixels_that_do_not_deviate_have_the_deviation_1():
  assert images.pixel_statistics(np.full([7, 28, 28, 1], 9, np.uint8)) == (9, 1)


def shards_of(task):
  """The set of labels of each client, in order."""
  return [set(task.train.load(c)['y']) for c in task.train.client_ids]


def test_embedded_mnist_is_split_by_the_seed(tmp_path):
  labels = image_files.write_classes(tmp_path / 'mnist.npz', 10)

  def load(**options):
    return tasks.load('mnist_2nn', str(tmp_path), num_clients=10, **options)

  for split in ('iid', 'shards'):
    task = load(split=split, seed=1)
    assert shards_of(task) != shards_of(load(split=split))
    found = task.train.load_all()
    np.testing.assert_array_equal(np.sort(found['y']), np.sort(labels))
    assert (found['x'].min(), found['x'].max()) == (0, np.float32(199 / 255))
    assert task.validation['x'].min() == np.float32(200 / 255)  # The test split.
  # Twenty shards of six images: each is half a class.
  assert all(len(found) <= 2 for found in shards_of(task))
  assert task_data.labels_report(load())['classes_per_client'] > 5


def test_embedded_letters_are_standardised_by_the_training_split(tmp_path):
  image_files.write_classes(tmp_path / 'letters.npz', 26, first_label=1)
  task = tasks.load('emnist_letters', str(tmp_path), num_clients=22, seed=3)
  assert len(task.train) == 20
  x = np.concatenate([task.train.load_all()['x'], task.validation['x']])
  assert len(x) == 26 * image_files.TRAIN_PER_CLASS
  np.testing.assert_array_equal(np.bincount(task.test['y']), [image_files.TEST_PER_CLASS] * 26)
  np.testing.assert_allclose((x.mean(), x.std()), (0, 1), atol=1e-5)
  other = tasks.load('emnist_letters', str(tmp_path), num_clients=22, unbalance=0.5)
  assert shards_of(task) != shards_of(other)
  sizes = task_data.labels_report(other)
  assert sizes['smallest'] < 11 < 18 < sizes['largest']


@pytest.mark.parametrize('name', ['mnist_2nn', 'emnist_letters', 'mnist_skewed'])
def test_the_preparation_makes_the_models_inputs_of_the_files_images(tmp_path, name):
  if name == 'emnist_letters':
    image_files.write_classes(tmp_path / 'letters.npz', 26, first_label=1)
  else:
    image_files.write_classes(tmp_path / 'mnist.npz', 10)
  options = dict(num_clients=10) if name == 'mnist_2nn' else dict(num_clients=22)
  task = tasks.load(name, str(tmp_path), **options)
  (path,) = tmp_path.glob('*.npz')
  raw = np.load(path)['x_test'][..., np.newaxis]
  prepared = (task.test or task.validation)['x']
  np.testing.assert_array_equal(task.preparation(raw), prepared)


def rows(arrays):
  """The examples as a sorted list of bytes: what is there, whatever the order."""
  return sorted(x.tobytes() + y.tobytes() for x, y in zip(arrays['x'], arrays['y']))


def test_every_skewed_digit_is_used_once():
  task = tasks.load('digits_skewed', seed=1)
  assert len(task.train) == 100
  parts = [rows(task.train.load_all()), rows(task.validation), rows(task.test)]
  assert len(parts[2]) == 359  # A fifth of 1,797.
  ours = sorted([*parts[0], *parts[1], *parts[2]])
  assert len(ours) == 1797
  other = tasks.load('digits_skewed', seed=2, validation='test')
  assert other.validation is other.test
  assert rows(other.test) != parts[2]
  assert {task.train.num_examples(c) for c in task.train.client_ids} == {13, 14}
  x = task.train.load('00')['x']
  assert (x.min(), x.max()) == (0, 1)
  assert x[:, 0].max() == 0  # The frame is background.


def test_smaller_alpha_is_less_alike_and_infinity_is_iid():
  loaded = [tasks.load('digits_skewed', alpha=a) for a in (0.03, 0.3, math.inf, None)]
  unlike = [task_data.labels_report(task)['total_variation'] for task in loaded[:3]]
  assert unlike == sorted(unlike, reverse=True)
  limit, iid = loaded[2:]
  np.testing.assert_array_equal(limit.train.load('07')['x'], iid.train.load('07')['x'])
