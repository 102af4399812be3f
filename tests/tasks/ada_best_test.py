"""AdaBest's clients, standardised letters, and its CNN with augmentation."""

import math

import numpy as np
import pytest
import tensorflow as tf

import tff_adaptive_tasks as tasks
from tests.helpers import image_files, task_data
from tff_adaptive_tasks import ada_best

X = np.random.default_rng(0).integers(0, 256, [3, 32, 32, 3]).astype(np.uint8)


def rows(arrays):
  """The examples as a sorted list of bytes: what is there, whatever the order."""
  return sorted(x.tobytes() + y.tobytes() for x, y in zip(arrays['x'], arrays['y']))


# Of the training images in [0, 1], to four digits.
@pytest.mark.parametrize(
  'classes, means, deviations',
  [
    (10, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    (100, (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
  ],
)
def test_cifar_is_standardised_by_its_channels(classes, means, deviations):
  for ours, known in zip(ada_best._STATISTICS[classes], (means, deviations), strict=True):
    np.testing.assert_allclose(ours, known, atol=6e-4)


@pytest.fixture(scope='module')
def letters_folder(tmp_path_factory):
  """A folder with a file of few pictures of each letter."""
  folder = tmp_path_factory.mktemp('data')
  image_files.write_classes(folder / 'letters.npz', 26, first_label=1)
  return str(folder)


def test_embedded_letters_are_standardised_by_the_training_split(letters_folder):
  task = tasks.load('emnist_letters', letters_folder, num_clients=22, seed=3, letters=26)
  assert len(task.train) == 20
  assert task.preparation.classes == (*range(1, 27),)
  x = np.concatenate([task.train.load_all()['x'], task.validation['x']])
  assert len(x) == 26 * image_files.TRAIN_PER_CLASS
  np.testing.assert_array_equal(np.bincount(task.test['y']), [image_files.TEST_PER_CLASS] * 26)
  np.testing.assert_allclose((x.mean(), x.std()), (0, 1), atol=1e-5)
  assert ada_best.pixel_statistics(np.full([7, 28, 28, 1], 9, np.uint8)) == (9, 1)  # Not 0.


def test_the_seed_decides_who_has_which_letters(letters_folder):
  for options in ({}, {'alpha': None}):
    options = {'num_clients': 22, 'letters': 26, **options}
    labels = []
    for seed in (3, 4):
      part = tasks.load('emnist_letters', letters_folder, seed, **options).train
      labels.append({part.load(c)['y'].tobytes() for c in part.client_ids})
    assert not labels[0] & labels[1]


def test_clients_may_have_unlike_numbers_of_letters(letters_folder):
  task = tasks.load('emnist_letters', letters_folder, num_clients=22, seed=3, letters=26)
  other = tasks.load('emnist_letters', letters_folder, num_clients=22, unbalance=0.5, letters=26)
  assert rows(task.train.load_all()) != rows(other.train.load_all())
  sizes = task_data.labels_report(other)
  assert sizes['smallest'] < 11 < 18 < sizes['largest']


@pytest.mark.parametrize('letters', [None, 3])
def test_the_first_letters_are_standardised_by_their_own_pixels(tmp_path, letters):
  # FedDyn's code, which AdaBest follows, takes ten classes and then mean and deviation.
  image_files.write_classes(tmp_path / 'letters.npz', 26, first_label=1)
  if letters:
    options = {'letters': letters}
  else:
    options = {}
  task = tasks.load('emnist_letters', str(tmp_path), num_clients=11, **options)
  count = letters or 10
  assert task.preparation.classes == (*range(1, count + 1),)
  y = np.concatenate([task.train.load_all()['y'], task.validation['y']])
  np.testing.assert_array_equal(np.bincount(y), [image_files.TRAIN_PER_CLASS] * count)
  np.testing.assert_array_equal(np.bincount(task.test['y']), [image_files.TEST_PER_CLASS] * count)
  file = np.load(tmp_path / 'letters.npz')
  pixels = file['x_train'][file['y_train'] <= count].astype(np.float64)
  np.testing.assert_allclose(task.preparation.mean, pixels.mean())
  np.testing.assert_allclose(task.preparation.deviation, pixels.std())
  weights = 785 * 100 + 101 * 100 + 101 * count
  assert task.build_model(0).num_parameters == weights


@pytest.mark.parametrize('letters', [1, 27, 2.5])
def test_other_numbers_of_letters_are_refused(tmp_path, letters):
  with pytest.raises(tasks.DataError, match=r'letters.* is (1|27|2\.5); it must be'):
    tasks.load('emnist_letters', str(tmp_path), letters=letters)


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


@pytest.mark.parametrize('name', ['mnist_2nn', 'emnist_letters', 'mnist_skewed'])
def test_the_preparation_makes_the_models_inputs_of_the_files_images(tmp_path, name):
  if name == 'emnist_letters':
    image_files.write_classes(tmp_path / 'letters.npz', 26, first_label=1)
  else:
    image_files.write_classes(tmp_path / 'mnist.npz', 10)
  task = tasks.load(name, str(tmp_path), num_clients=22)
  (path,) = tmp_path.glob('*.npz')
  file = np.load(path)
  raw = file['x_test'][..., np.newaxis]
  if name == 'emnist_letters':
    raw = raw[file['y_test'] <= 10]
  prepared = (task.test or task.validation)['x']
  np.testing.assert_array_equal(task.preparation(raw), prepared)


def test_the_models_of_adabest():
  for name, classes in (('emnist_letters', 10), ('digits_skewed', 10)):
    weights = 785 * 100 + 101 * 100 + 101 * classes
    assert ada_best.build_model(0, name).num_parameters == weights
  model = ada_best.build_model(1, 'cifar100_cnn')
  dense = 1600 * 394 + 394 + 394 * 192 + 192 + 192 * 100 + 100
  assert model.num_parameters == 75 * 64 + 64 + 25 * 64 * 64 + 64 + dense
  weights = tuple(map(tf.constant, model.initial_weights[0]))
  seed = tf.constant([1, 2])
  plain = model.forward(weights, X, False, seed)
  assert not np.array_equal(model.forward(weights, X, True, seed), plain)


def test_crops_are_filled_with_the_mean_colour():
  model = ada_best.build_cnn(1, 10)
  mean = np.array(ada_best._STATISTICS[10][0]) * 255
  grey = np.broadcast_to(np.round(mean).astype(np.uint8), [64, 32, 32, 3])
  weights = tuple(map(tf.constant, model.initial_weights[0]))
  distorted = model.forward(weights, grey, True, tf.constant([1, 2]))
  plain = model.forward(weights, grey, False, None)
  np.testing.assert_allclose(distorted, plain, atol=0.01)  # Any other fill would show an edge.
  assert np.abs(plain - model.forward(weights, 0 * grey, False, None)).max() > 0.1


def test_augmentation_changes_half_of_the_images_each_way():
  x = tf.constant(np.repeat(X[:1], 600, 0))
  distorted = ada_best.distort(x, tf.constant([4, 5])).numpy()
  assert distorted.dtype == X.dtype
  plain = np.mean([np.array_equal(m, X[0]) for m in distorted])
  mirrored = np.mean([np.array_equal(m, X[0, :, ::-1]) for m in distorted])
  # Neither shifted: 1/2 + 1/2 / 81; half of those are mirrored.
  expected = (0.5 + 0.5 / 81) / 2
  assert max(abs(plain - expected), abs(mirrored - expected)) < 0.06
  assert (
    2 * 8**2 < len({m.tobytes() for m in distorted}) <= 2 * 9**2
  )  # Shifts of -4 to 4 both ways.
