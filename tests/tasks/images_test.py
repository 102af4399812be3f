"""MNIST and EMNIST letters: the papers' models and clients, on real files."""

import sys
import types

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_federated.python.simulation.baselines.emnist import emnist_models

import tasks
from tasks import centralized, images
from tests.tasks import data

X = np.random.default_rng(0).uniform(size=[5, 28, 28, 1]).astype(np.float32)
Y = np.random.default_rng(1).integers(0, 10, 5).astype(np.int32)


@pytest.mark.parametrize(
  'build, create, parameters',
  [
    (images.build_2nn, emnist_models.create_two_hidden_layer_model, 199_210),
    (images.build_cnn, emnist_models.create_original_fedavg_cnn_model, 1_663_370),
  ],
)
def test_the_models_are_tffs(build, create, parameters):
  model, theirs = build(1), create(only_digits=True)
  assert model.num_parameters == parameters
  theirs.set_weights(model.initial_weights[0])
  weights = tuple(map(tf.constant, model.initial_weights[0]))
  with tf.GradientTape() as tape:
    tape.watch(weights)
    loss, _ = model.loss_and_metrics(weights, X, Y)
  g = tape.gradient(loss, weights)
  with tf.GradientTape() as tape:
    value = tf.keras.losses.SparseCategoricalCrossentropy()(Y, theirs(X))
  np.testing.assert_allclose(loss, value, rtol=1e-5)
  for a, b in zip(g, tape.gradient(value, theirs.trainable_weights)):
    np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4 * np.abs(b).max())


def test_a_perceptron_takes_a_client_axis():
  one, two = images.build_letters(1), images.build_letters(2)
  assert one.num_parameters == 784 * 100 + 100 + 100 * 100 + 100 + 100 * 26 + 26
  stacked = tuple(map(tf.stack, zip(one.initial_weights[0], two.initial_weights[0])))
  x, y = tf.constant(np.stack([X, 1 - X])), tf.constant(np.stack([Y, Y[::-1]]))
  losses, means = one.loss_and_metrics(stacked, x, y)
  for k, m in enumerate((one, two)):
    loss, single = m.loss_and_metrics(tuple(map(tf.constant, m.initial_weights[0])), x[k], y[k])
    np.testing.assert_allclose(losses[k], loss, rtol=1e-5)
    np.testing.assert_allclose(means[k], single)


@data.needs('mnist_digits.npz')
def test_mnist_is_split_as_in_the_fedavg_paper():
  iid = tasks.load('mnist_2nn', data.DATA_DIR)
  shards = tasks.load('mnist_cnn', data.DATA_DIR, split='shards')
  for task in (iid, shards):
    assert len(task.train) == 100
    assert {task.train.num_examples(c) for c in task.train.client_ids} == {600}
    assert task.validation['x'].shape == (10_000, 28, 28, 1)
  assert iid.notes['partition']['classes_per_client'] == 10
  assert shards.notes['partition']['classes_per_client'] < 2.3
  loaded = iid.train.load('07')
  assert loaded['x'].dtype == np.float32
  assert (loaded['x'].min(), loaded['x'].max()) == (0, 1)
  assert loaded['x'].mean() < 0.2  # Background is 0.
  with pytest.raises(tasks.DataError, match="split is 'shard'; choose one of: iid, shards"):
    tasks.load('mnist_2nn', data.DATA_DIR, split='shard')


def test_statistics_of_pixels_are_numpys():
  x = np.random.default_rng(0).integers(0, 256, [7, 28, 28, 1]).astype(np.uint8)
  mean, deviation = images.pixel_statistics(x)
  assert (mean, deviation) == pytest.approx((x.mean(), x.std()))
  made, _ = images.standardise(x, None, mean, deviation)
  np.testing.assert_allclose((made.mean(), made.std()), (0, 1), atol=1e-5)
  assert images.pixel_statistics(np.full_like(x, 9)) == (9, 1)


@data.needs('letters.npz')
def test_letters_hold_one_client_in_eleven_out():
  task = tasks.load('emnist_letters', data.DATA_DIR, seed=3)
  assert len(task.train) == 100
  kept = sum(task.train.num_examples(c) for c in task.train.client_ids)
  assert kept + len(task.validation['y']) == 6862
  assert len(task.test['y']) == 1196
  assert set(np.unique(task.test['y'])) == set(range(26))
  for x in (task.validation['x'], task.test['x']):  # Standardised by the training split.
    assert x.dtype == np.float32
    assert abs(x.mean()) < 0.05
    assert abs(x.std() - 1) < 0.05
  unlike = [
    tasks.load('emnist_letters', data.DATA_DIR, alpha=a).notes['partition']['total_variation']
    for a in (0.03, 0.3, None)
  ]
  assert unlike == sorted(unlike, reverse=True)
  other = tasks.load('emnist_letters', data.DATA_DIR, unbalance=0.3).notes['partition']
  assert other['smallest'] < 40
  assert other['largest'] > 90


def npz(path, **changes):
  arrays = {
    'x_train': np.zeros([4, 28, 28], np.uint8),
    'y_train': np.arange(4),
    'x_test': np.zeros([2, 28, 28], np.uint8),
    'y_test': np.arange(2),
  }
  arrays.update(changes)
  np.savez(path, **{k: v for k, v in arrays.items() if v is not None})


@pytest.mark.parametrize(
  'changes, named',
  [
    ({'y_test': None}, r'mnist.npz lacks y_test; it has x_train'),
    ({'x_train': np.zeros([4, 28, 28])}, r'x_train is of float64; it must be of uint8'),
    ({'x_test': np.zeros([2, 32, 32], np.uint8)}, r'shape \[28, 28, 1\]'),
    ({'x_test': np.zeros([2, 1, 28, 28], np.uint8)}, r'shape \[28, 28, 1\] \(height'),
    ({'x_test': np.zeros([0, 28, 28], np.uint8)}, r'mnist.npz: x_test is empty'),
    ({'y_test': np.zeros([0], np.int32)}, r'mnist.npz: y_test is empty'),
    ({'y_train': np.full(4, 9.9)}, r'mnist.npz: y_train is of float64; .* whole numbers'),
    ({'y_test': np.array([np.nan, 1])}, r'mnist.npz: y_test is of float64; .* whole numbers'),
    ({'y_train': np.array(['cat'] * 4)}, r'mnist.npz: y_train is of <U3; .* whole numbers'),
    ({'y_train': np.arange(3)}, r'y_train has shape \[3\] for 4 images'),
    ({'y_train': np.array([0, 1, 2, 10])}, r'labels lie in 0 to 10 but must lie in 0 to 9'),
    ({'y_train': np.array(['a'] * 4, object)}, r'cannot be read'),
  ],
)
def test_a_bad_npz_is_told(tmp_path, changes, named):
  npz(tmp_path / 'mnist.npz', **changes)
  with pytest.raises(tasks.DataError, match=named):
    tasks.load('mnist_2nn', str(tmp_path), num_clients=2)


def test_a_truncated_or_missing_npz_is_told(tmp_path):
  with pytest.raises(tasks.DataError, match=r'no mnist.npz or mnist_digits.npz in'):
    tasks.load('mnist_2nn', str(tmp_path))
  path = tmp_path / 'mnist.npz'
  with path.open('wb') as file:
    np.save(file, np.zeros(3))  # One array, not an archive of several.
  with pytest.raises(tasks.DataError, match='cannot be read'):
    tasks.load('mnist_2nn', str(tmp_path), num_clients=2)
  npz(path)
  for keep in (len(path.read_bytes()) - 30, 100, 0):
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(tasks.DataError, match=r'cannot be read .* fetch it again'):
      tasks.load('mnist_2nn', str(tmp_path), num_clients=2)


def test_tensorflow_datasets_serve_without_a_folder(monkeypatch):
  image = np.arange(784, dtype=np.uint8).reshape(1, 28, 28, 1)
  split = {'image': image, 'label': np.array([26])}
  tfds = types.SimpleNamespace(load=lambda *_, **__: [split, split], as_numpy=lambda part: part)
  monkeypatch.setitem(sys.modules, 'tensorflow_datasets', tfds)
  train, _, source = centralized.load(None, [], 'emnist/letters', (28, 28, 1), first_label=1)
  assert source == 'TensorFlow Datasets emnist/letters'
  np.testing.assert_array_equal(train.x[0, :, :, 0], image[0, :, :, 0].T)
  np.testing.assert_array_equal(train.y, [25])

  def fail(*_, **__):
    raise OSError('no route to host')

  tfds.load = fail
  with pytest.raises(tasks.DataError, match=r'\(no route to host\).* --data_dir=FOLDER with mnist'):
    tasks.load('mnist_2nn')
