"""CIFAR with the ResNet-18 of "Adaptive Federated Optimization"."""

import functools
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from tff_adaptive_tasks import task as task_lib
from tff_adaptive_tasks.data import image_arrays, partition, tff_sqlite
from tff_adaptive_tasks.models import resnet

_FEATURES = {
  'image': tf.io.FixedLenFeature([32, 32, 3], tf.int64),
  'label': tf.io.FixedLenFeature([], tf.int64),
}
_RANGES = {'image': (0, 255), 'label': (0, 99)}


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
    'cifar100.sqlite',
    data_dir,
    _FEATURES,
    prepare,
    _RANGES,
    name='cifar100',
    build_model=functools.partial(resnet.build, num_classes=100),
  )


def load_cifar10(
  data_dir: str | None = None, seed: int = 0, num_clients: int = 500, alpha: float = 0.1
) -> task_lib.Task:
  """Loads CIFAR-10, divided over clients by a Dirichlet distribution over the labels.

  Args:
    data_dir: The folder with `cifar10.npz` or `cifar10_lossless.npz`; None uses TensorFlow
      Datasets.
    seed: The seed of the partition.
    num_clients: Number of clients.
    alpha: Concentration of the Dirichlet distribution over the labels.

  Returns:
    The task. Its validation data are the test split.

  Raises:
    tasks.DataError: If the data cannot be used or an option is out of range.
  """
  train, test, source = image_arrays.load(image_arrays.CIFAR10, data_dir)
  indices = partition.label_dirichlet(train.y, num_clients, alpha, seed)
  return task_lib.Task(
    name='cifar10',
    build_model=functools.partial(resnet.build, num_classes=10),
    train=task_lib.InMemoryClientData.from_partition(train.x, train.y, indices),
    validation=task_lib.example_arrays(*test),
    source=source,
  )


def prepare(features: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
  """Converts TFF's features to images, uint8 [n, 32, 32, 3], and labels, int32 [n]."""
  return features['image'].astype(np.uint8), features['label'].astype(np.int32)
