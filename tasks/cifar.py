"""CIFAR: ResNet-18 of "Adaptive Federated Optimization" and the CNN of AdaBest."""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tff_adaptive import models
from tff_adaptive_tasks import images, task as task_lib
from tff_adaptive_tasks.data import image_arrays, partition, tff_sqlite
from tff_adaptive_tasks.models import layers, resnet

_SHAPE = (32, 32, 3)
_PAD = 4
_FEATURES = {
  'image': tf.io.FixedLenFeature(_SHAPE, tf.int64),
  'label': tf.io.FixedLenFeature([], tf.int64),
}
_RANGES = {'image': (0, 255), 'label': (0, 99)}
# Mean and standard deviation of the training images' channels in [0, 1].
_STATISTICS = {
  10: ((0.491, 0.482, 0.447), (0.247, 0.243, 0.262)),
  100: ((0.507, 0.487, 0.441), (0.268, 0.257, 0.276)),
}


def load_cifar100(data_dir: str | None = None) -> task_lib.Task:
  """Loads TFF's CIFAR-100, partitioned by Pachinko allocation.

  Args:
    data_dir: The folder with `cifar100.sqlite`; None downloads it.

  Returns:
    The task. Its validation data are the images of all test clients.

  Raises:
    tasks.DataError: If the data cannot be used.
  """
  return tff_sqlite.load_task(
    *('cifar100.sqlite', data_dir, _FEATURES, prepare, _RANGES),
    name='cifar100',
    build_model=functools.partial(resnet.build, num_classes=100),
  )


def load_cifar10(
  data_dir: str | None = None,
  seed: int = 0,
  num_clients: int = 500,
  alpha: float = 0.1,
) -> task_lib.Task:
  """Loads CIFAR-10, divided over clients by a label Dirichlet.

  Args:
    data_dir: The folder with `cifar10.npz` or `cifar10_lossless.npz`; None uses TensorFlow
      Datasets.
    seed: Seeds the partition.
    num_clients: Number of clients.
    alpha: Concentration of the label Dirichlet.

  Returns:
    The task. Its validation data are the test split.

  Raises:
    tasks.DataError: If the data cannot be used or an option is out of range.
  """
  train, test, source = _arrays(10, data_dir)
  indices = partition.label_dirichlet(train.y, num_clients, alpha, seed)
  return task_lib.Task(
    name='cifar10',
    build_model=functools.partial(resnet.build, num_classes=10),
    train=task_lib.InMemoryClientData.from_partition(train.x, train.y, indices),
    validation=task_lib.example_arrays(*test),
    source=source,
  )


def load_cnn(
  name: str,
  data_dir: str | None = None,
  seed: int = 0,
  num_clients: int = 110,
  alpha: float | None = 0.3,
  unbalance: float = 0.0,
) -> task_lib.Task:
  """Loads CIFAR-10 or CIFAR-100, divided over clients as in AdaBest, section 4.1.

  For the other arguments see `images.load_ada_best`.

  Args:
    name: 'cifar10_cnn' or 'cifar100_cnn'.
    data_dir: The folder with `cifar10.npz` or `cifar10_lossless.npz`, or `cifar100.npz`; None uses
      TensorFlow Datasets.
    seed: Seeds the partition.

  Returns:
    The task. Its validation data are the held-out clients' images, its test data the test split.

  Raises:
    tasks.DataError: If the data cannot be used or an option is out of range.
  """
  num_classes = 10 if name == 'cifar10_cnn' else 100
  train, test, source = _arrays(num_classes, data_dir)
  return images.ada_best_task(
    *(train, test, None, num_clients, alpha, unbalance, seed),
    name=name,
    build_model=functools.partial(build_cnn, num_classes=num_classes),
    source=source,
  )


def _arrays(
  num_classes: int, data_dir: str | None
) -> tuple[image_arrays.Split, image_arrays.Split, str]:
  files = ['cifar10.npz', 'cifar10_lossless.npz'] if num_classes == 10 else ['cifar100.npz']
  return image_arrays.load(data_dir, files, f'cifar{num_classes}', _SHAPE, num_classes)


def prepare(features: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
  """Converts TFF's features to uint8 [n, 32, 32, 3] and int32 [n]."""
  return features['image'].astype(np.uint8), features['label'].astype(np.int32)


def build_cnn(seed: int, num_classes: int) -> models.Model:
  """Builds AdaBest's CNN: two 5 x 5 convolutions of 64 with pooling, dense 394 and 192."""
  draw = layers.Initializer(seed)
  weights = [
    *(draw.glorot_uniform(5, 5, 3, 64), layers.zeros(64)),
    *(draw.glorot_uniform(5, 5, 64, 64), layers.zeros(64)),
  ]
  for n, m in ((1600, 394), (394, 192), (192, num_classes)):
    weights += [draw.glorot_uniform(n, m), layers.zeros(m)]
  mean, deviation = (np.array(s, np.float32) for s in _STATISTICS[num_classes])

  def forward(weights: Any, x: tf.Tensor, training: bool, seed: tf.Tensor | None) -> tf.Tensor:
    # In the weights' dtype, which mixed precision narrows.
    x = tf.cast((tf.cast(x, tf.float32) / 255 - mean) / deviation, weights[0].dtype)
    if training and seed is not None:
      x = distort(x, seed)
    for kernel, bias in (weights[:2], weights[2:4]):
      x = layers.max_pool(tf.nn.relu(layers.conv(x, kernel, bias)), 2, 2)
    h = layers.flatten(x)
    for i in (4, 6):
      h = tf.nn.relu(layers.dense(h, weights[i], weights[i + 1]))
    return layers.dense(h, *weights[8:])

  return layers.classifier(weights, forward, _SHAPE, x_dtype=tf.uint8)


def distort(x: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
  """Flips and shifts images, each with probability 0.5; shifts are up to 4 pixels each way.

  AdaBest names both with their probability (appendix D.1) and follows FedDyn. FedDyn's code pads
  the standardised image with 4 zeros (the mean colour) and crops it. Images are [B, 32, 32, 3], or
  [G, B, 32, 32, 3] with a client axis; the seed is int32 [2] or [G, 2].
  """
  offsets = 2 * _PAD + 1

  def change(x: tf.Tensor, choice: tf.Tensor) -> tf.Tensor:
    x = resnet.flip(x, tf.equal(choice[:, 0] % 2, 0))
    shifted = tf.where(tf.equal(choice[:, 1:2] % 2, 0), choice[:, 2:] % offsets, _PAD)
    padded = tf.pad(x, [[0, 0], [_PAD, _PAD], [_PAD, _PAD], [0, 0]])
    return resnet.crop(padded, shifted, _SHAPE[0])

  return layers.of_images(change, x, resnet.choices(x, seed, 4, offsets**2 * 4))
