"""CIFAR: ResNet-18 equal to TFF's, the paper's settings, augmentation, embedded files."""

import collections
import itertools
import re

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_federated.python.simulation.models import resnet_models

import tff_adaptive_tasks as tasks
from tests.helpers import image_files, task_data
from tff_adaptive_tasks.models import resnet

X = np.random.default_rng(0).integers(0, 256, [3, 32, 32, 3]).astype(np.uint8)
Y = np.array([3, 99, 0], np.int32)


def tff_resnet(model):
  """TFF's baseline with our weights, which come in the order in which its layers are made."""
  theirs = resnet_models.create_resnet18((24, 24, 3), 100)
  kinds = (tf.keras.layers.Conv2D, tf.keras.layers.GroupNormalization, tf.keras.layers.Dense)

  def made(layer):
    return int((re.search(r'_(\d+)$', layer.name) or [0, 0])[1])

  layers = {
    k: iter(sorted((a for a in theirs.layers if isinstance(a, k)), key=made)) for k in kinds
  }
  weights = iter(model.initial_weights[0])
  for kind, *_ in resnet._layers(100):
    layer = next(layers[kinds[('conv', 'norm', 'dense').index(kind)]])
    layer.set_weights([next(weights) for _ in layer.weights])
  assert all(next(left, None) is None for left in layers.values())
  return theirs


@pytest.mark.slow
def test_the_resnet_is_tffs_with_32_groups_and_its_l2():
  model = resnet.build(1, 100, groups=32)
  assert model.num_parameters == 11_227_812
  theirs = tff_resnet(model)
  weights = tuple(map(tf.constant, model.initial_weights[0]))
  x = tf.image.per_image_standardization(tf.cast(X[:, 4:28, 4:28], tf.float32))
  expected = theirs(x)
  np.testing.assert_allclose(
    tf.nn.softmax(model.forward(weights, X, False, None)), expected, rtol=1e-3, atol=1e-5
  )
  loss = tf.keras.losses.SparseCategoricalCrossentropy()(Y, expected) + sum(theirs.losses)
  np.testing.assert_allclose(model.loss_and_metrics(weights, X, Y)[0], loss, rtol=1e-5)


def test_training_crops_and_flips_by_the_seed():
  x = tf.constant(np.repeat(X[:1], 400, 0))
  a, b, c = (resnet.prepare(x, tf.constant(s)).numpy() for s in ([1, 2], [1, 2], [1, 3]))
  np.testing.assert_array_equal(a, b)
  assert not np.array_equal(a, c)
  # Every image is one of the 9 x 9 x 2 crops, and they are all about as frequent.
  cuts = [X[0, r : r + 24, c : c + 24] for r, c in itertools.product(range(9), repeat=2)]
  crops = tf.image.per_image_standardization(np.float32([*cuts, *(x[:, ::-1] for x in cuts)]))
  known, found = (
    collections.Counter(tuple(np.round(image[0, :3, 0], 3)) for image in images)
    for images in (crops.numpy(), a)
  )
  assert len(known) == 162
  assert set(found) <= set(known)
  assert max(found.values()) <= 12


def test_centralised_cifar_is_split(tmp_path):
  labels = image_files.write_classes(tmp_path / 'cifar10.npz', 10, shape=(32, 32, 3))
  task = tasks.load('cifar10', str(tmp_path), num_clients=12)
  assert [task.train.num_examples(c) for c in task.train.client_ids] == [10] * 12
  np.testing.assert_array_equal(np.sort(task.train.load_all()['y']), np.sort(labels))
  assert task_data.labels_report(task)['classes_per_client'] < 4
  assert len(task.validation['y']) == 30
  assert task.build_model.keywords == {'num_classes': 10}
  task = tasks.load('cifar10_cnn', str(tmp_path), num_clients=12)
  assert len(task.train) == 11
  assert len(task.train.load_all()['y']) + len(task.validation['y']) == 120
  assert len(task.test['y']) == 30


def test_tffs_cifar_100_is_read_and_what_is_out_of_range_is_named(tmp_path):
  def proto(k, **changes):
    return task_data.example(**{'image': [k] * 3072, 'label': k, **changes})

  good, bad = {'0': [proto(5), proto(99)], '1': [proto(0)]}, {'0': [proto(5, label=100)]}
  task_data.write(tmp_path / 'cifar100.sqlite', {'train': good, 'test': good})
  task = tasks.load('cifar100', str(tmp_path))
  assert task.train.load('1')['y'] == [0]
  assert (task.validation['x'][:, 3, 2, 1] == [5, 99, 0]).all()
  for feature, row in (('label', bad), ('image', {'0': [proto(7, image=[256] * 3072)]})):
    path = tmp_path / feature / 'cifar100.sqlite'
    path.parent.mkdir()
    task_data.write(path, {'train': good, 'test': row})
    with pytest.raises(tasks.DataError, match=f"{feature} of client '0' in 'test', row 0"):
      tasks.load('cifar100', str(path.parent))
