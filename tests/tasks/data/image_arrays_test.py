"""Centralised image sets: what is right is read, what is wrong is reported by file, array, row."""

import sys
import types

import numpy as np
import pytest
import requests

from tests.helpers import image_files
from tff_adaptive_tasks import errors
from tff_adaptive_tasks.data import image_arrays


def load(folder, **changes):
  return image_arrays.load(image_arrays.MNIST._replace(**changes), str(folder))


def test_both_splits_are_read_with_labels_from_zero(tmp_path):
  x = np.random.default_rng(0).integers(0, 256, [4, 784]).astype(np.uint8)
  labels = np.array([26, 1, 2, 3], np.uint64)
  path = image_files.write(tmp_path / 'mnist.npz', x_train=x, y_train=labels, y_test=labels[:2])
  train, test, source = load(tmp_path, num_classes=26, first_label=1)
  assert source == path
  np.testing.assert_array_equal(train.x, x.reshape(4, 28, 28, 1))
  np.testing.assert_array_equal(train.y, [25, 0, 1, 2])
  np.testing.assert_array_equal(test.y, [25, 0])
  assert (train.y.dtype, train.x.dtype) == (np.int32, np.uint8)
  assert test.x.shape == (2, 28, 28, 1)


@pytest.mark.parametrize(
  'changes, named',
  [
    ({'y_test': None}, r'mnist.npz cannot be read .it lacks y_test; it has x_train'),
    ({'x_train': np.zeros([4, 28, 28])}, r'x_train is .* of float64; it must be images of uint8'),
    ({'x_test': np.zeros([2, 32, 32], np.uint8)}, r'shape \[28, 28, 1\] \(height'),
    # Several channels might come in any order.
    ({'x_train': np.zeros([4, 3, 32, 32], np.uint8)}, r'shape \[32, 32, 3\] \(height, width, ch'),
    ({'x_train': np.zeros([4, 3072], np.uint8)}, r'shape \[32, 32, 3\] \(height, width, channels'),
    ({'x_test': np.zeros([0, 28, 28], np.uint8)}, r'mnist.npz: x_test is \[0, 28, 28\]'),
    ({'y_train': np.full(4, 9.9)}, r'mnist.npz: y_train is \[4\] of float64; .* whole numbers'),
    ({'y_train': np.arange(3)}, r'y_train is \[3\] .* one label for each of 4 images'),
    ({'y_train': np.array([0, -1, 2, -3])}, r'y_train, row 1: the label is -1; .*2 such rows'),
    # What int32 would cut down to a label that is allowed.
    ({'y_train': np.array([0, 1, 2, 2**32 + 3])}, r'y_train, row 3: the label is 4294967299'),
    ({'y_test': np.array([2**64 - 1, 1], np.uint64)}, r'y_test, row 0: .* 18446744073709551615'),
  ],
)
def test_a_bad_array_is_named(tmp_path, changes, named):
  image_files.write(tmp_path / 'mnist.npz', **changes)
  if '32, 32, 3' in named:
    colours = {'shape': (32, 32, 3)}
  else:
    colours = {}
  with pytest.raises(errors.DataError, match=named):
    load(tmp_path, **colours)


def test_a_missing_file_is_reported(tmp_path):
  (tmp_path / 'mnist.npz').mkdir()  # A folder is no file.
  with pytest.raises(errors.DataError, match=r'no mnist.npz or mnist_digits.npz in'):
    load(tmp_path)


def test_tensorflow_datasets_serve_without_a_folder(monkeypatch):
  image = np.arange(784, dtype=np.uint8).reshape(1, 28, 28, 1)
  split = {'image': image, 'label': np.array([26])}
  served = [split, split]
  builder = types.SimpleNamespace(is_prepared=lambda: True)
  given = {}
  builder.as_dataset = lambda **options: given.update(options) or served
  builder.url_infos = ['https://example.org/a']
  builder.download_and_prepare = pytest.fail
  tfds = types.SimpleNamespace(builder=lambda _: builder, as_numpy=list)
  monkeypatch.setitem(sys.modules, 'tensorflow_datasets', tfds)
  train, _, source = image_arrays.load(image_arrays.EMNIST_LETTERS, None)
  assert source == 'TensorFlow Datasets emnist/letters'
  assert given == {'split': ['train', 'test'], 'batch_size': -1}  # Whole splits.
  np.testing.assert_array_equal(train.x[0, :, :, 0], image[0, :, :, 0].T)
  np.testing.assert_array_equal(train.y, [25])
  served = None
  with pytest.raises(errors.DataError, match=r'letters of TensorFlow .* that has emnist_let'):
    image_arrays.load(image_arrays.EMNIST_LETTERS, None)

  def unreachable(url, timeout):
    raise OSError(f'no route to {url}')

  builder.is_prepared = bool  # And its download, which would go on for minutes, is not tried.
  monkeypatch.setattr(requests, 'head', unreachable)
  with pytest.raises(errors.DataError, match=r'no route to https://example.org/a'):
    image_arrays.load(image_arrays.EMNIST_LETTERS, None)
  monkeypatch.setattr(requests, 'head', lambda url, timeout: None)
  with pytest.raises(pytest.fail.Exception):  # Now it is tried.
    image_arrays.load(image_arrays.EMNIST_LETTERS, None)
