"""PFLlib's tasks: MNIST's own files, PFLlib's clients, its model."""

import gzip

import numpy as np
import pytest
import tensorflow as tf

import tff_adaptive_tasks as tasks
from tests.helpers import image_files
from tff_adaptive_tasks import partition, pfllib
from tff_adaptive_tasks.data import image_arrays


def write_idx(folder, changes=None):
  """Writes the four files, 600 and 100 images of all classes; returns the labels, joined."""
  rng = np.random.default_rng(3)
  arrays = {}
  for split, count in (('train', 600), ('test', 100)):
    arrays[f'x_{split}'] = rng.integers(0, 256, [count, 28, 28]).astype(np.uint8)
    arrays[f'y_{split}'] = rng.permutation(np.arange(count) % 10).astype(np.uint8)
  for key, name in image_arrays._IDX_FILES.items():
    array = arrays[key]
    header = np.array([0x800 + array.ndim, *array.shape], '>i4').tobytes()
    content = header + array.tobytes()
    if changes and key in changes:
      content = changes[key](content)
    with gzip.open(folder / name, 'wb') as file:
      file.write(content)
  return arrays


def test_clients_are_pfllibs_of_both_splits_joined(tmp_path):
  arrays = write_idx(tmp_path)
  x = np.concatenate([arrays['x_train'], arrays['x_test']])[..., np.newaxis]
  y = np.concatenate([arrays['y_train'], arrays['y_test']])
  task = tasks.load('fashion_mnist', str(tmp_path), seed=5, num_clients=6)
  train, test = partition.PfllibPartitioner(6, 0.1, seed=1).train_and_test(y)
  assert task.source == str(tmp_path)
  for number, client in enumerate(task.train.client_ids):
    for data, expected in ((task.train, train[number]), (task.test_clients, test[number])):
      examples = data.load(client)
      np.testing.assert_array_equal(examples['y'], y[expected])
      # Pixels in [0, 1], minus 0.5, divided by 0.5.
      np.testing.assert_allclose(examples['x'], (x[expected] / 255 - 0.5) / 0.5, atol=1e-6)
  assert len(task.validation['y']) == sum(map(len, test))
  np.testing.assert_array_equal(task.preparation(x[test[0]]), task.test_clients.load('0')['x'])
  other = tasks.load('fashion_mnist', str(tmp_path), num_clients=6, partition_seed=2)
  assert other.train.num_examples('0') != task.train.num_examples('0')


def test_pathological_clients(tmp_path):
  write_idx(tmp_path)
  task = tasks.load('fashion_mnist', str(tmp_path), split='pathological', num_clients=10)
  for client in task.train.client_ids:
    assert len(set(task.train.load(client)['y'])) == 2


def test_a_file_of_arrays_comes_first(tmp_path):
  write_idx(tmp_path)
  path = tmp_path / 'fashion_mnist.npz'
  image_files.write_classes(path, 10)
  assert tasks.load('fashion_mnist', str(tmp_path), num_clients=3).source == str(path)


def test_the_systems_files_are_used_without_a_folder(tmp_path, monkeypatch):
  arrays = write_idx(tmp_path)
  images = image_arrays.FASHION_MNIST._replace(idx_folder=str(tmp_path))
  train, test, source = image_arrays.load(images, None)
  assert source == str(tmp_path)
  np.testing.assert_array_equal(train.x[..., 0], arrays['x_train'])
  np.testing.assert_array_equal(test.y, arrays['y_test'])


@pytest.mark.parametrize(
  'key, change, words',
  [
    ('x_train', lambda content: content[:-1], 'train-images-idx3-ubyte.gz cannot be read'),
    ('y_test', lambda content: b'\0' * 4 + content[4:], 'does not begin as a file of bytes with 1'),
    ('y_train', lambda content: content[:8] + b'\xff' * 600, 'y_train, row 0: the label is 255'),
  ],
)
def test_a_damaged_file_is_named(tmp_path, key, change, words):
  write_idx(tmp_path, {key: change})
  with pytest.raises(tasks.DataError, match=words):
    tasks.load('fashion_mnist', str(tmp_path))


def test_a_folder_without_the_files_is_refused(tmp_path):
  with pytest.raises(tasks.DataError, match=r'no fashion_mnist.npz or train-images'):
    tasks.load('fashion_mnist', str(tmp_path))


def test_the_model_is_pfllibs():
  model = pfllib.build_model(0)
  weights = model.initial_weights[0]
  assert [w.shape for w in weights[:3]] == [(5, 5, 1, 32), (32,), (5, 5, 32, 64)]
  for kernel, bias, fan_in in zip(weights[::2], weights[1::2], (25, 800, 1024, 512)):
    limit = fan_in**-0.5
    assert 0.98 * limit < abs(kernel).max() <= limit
    assert abs(bias).max() <= limit
    np.testing.assert_allclose(kernel.std(), limit / 3**0.5, rtol=0.1)


@pytest.mark.parametrize(
  ('images', 'parameters'),
  # PyTorch's counts of FedAvgCNN(1, 10, 1024) and FedAvgCNN(3, 100, 1600).
  [(image_arrays.FASHION_MNIST, 582_026), (image_arrays.CIFAR100, 924_708)],
)
def test_the_model_is_that_of_keras(images, parameters):
  model = pfllib.build_model(0, images)
  assert model.num_parameters == parameters
  weights = model.initial_weights[0]
  x = np.random.default_rng(0).normal(size=(2, *images.shape)).astype('f')
  layers = tf.keras.layers
  keras = tf.keras.Sequential(
    [
      layers.Conv2D(32, 5, activation='relu'),
      layers.MaxPool2D(),
      layers.Conv2D(64, 5, activation='relu'),
      layers.MaxPool2D(),
      layers.Flatten(),
      layers.Dense(512, 'relu'),
      layers.Dense(images.num_classes),
    ]
  )
  keras.build(x.shape)
  keras.set_weights(weights)
  outputs = model.forward(tuple(map(tf.constant, weights)), x, False, None)
  np.testing.assert_allclose(outputs, keras(x), atol=1e-5)


def test_cifar100_has_pfllibs_clients_too(tmp_path):
  image_files.write_classes(tmp_path / 'cifar100.npz', 100, shape=(32, 32, 3))
  with np.load(tmp_path / 'cifar100.npz') as file:
    x = np.concatenate([file['x_train'], file['x_test']])
    y = np.concatenate([file['y_train'], file['y_test']])
  task = tasks.load('cifar100_pfllib', str(tmp_path), num_clients=6)
  train, test = partition.PfllibPartitioner(6, 0.1, seed=1).train_and_test(y)
  for number, client in enumerate(task.train.client_ids):
    examples = task.train.load(client)
    np.testing.assert_array_equal(examples['y'], y[train[number]])
    np.testing.assert_allclose(examples['x'], (x[train[number]] / 255 - 0.5) / 0.5, atol=1e-6)
  assert len(task.validation['y']) == sum(map(len, test))
  assert task.build_model(0).input_spec['x'].shape == (None, 32, 32, 3)
