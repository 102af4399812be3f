"""Fashion-MNIST and CIFAR-100 as in PFLlib: clients, CNN and test data of its leaderboard."""

import functools
from typing import Any, Literal, TypeAlias

import numpy as np
import tensorflow as tf

from tff_adaptive import models
from tff_adaptive_tasks import partition, preparation, task as task_lib
from tff_adaptive_tasks.data import image_arrays
from tff_adaptive_tasks.models import layers

_Partitioner: TypeAlias = partition.PfllibPartitioner | partition.PfllibPathologicalPartitioner
_CLASSES = (
  'T-shirt/top',
  'Trouser',
  'Pullover',
  'Dress',
  'Coat',
  'Sandal',
  'Shirt',
  'Sneaker',
  'Bag',
  'Ankle boot',
)
# PFLlib normalises pixels in [0, 1] by mean 0.5 and deviation 0.5.
_HALF = 127.5


def load_fashion_mnist(
  data_dir: str | None = None,
  split: Literal['dirichlet', 'pathological'] = 'dirichlet',
  num_clients: int = 20,
  alpha: float = 0.1,
  classes_per_client: int = 2,
  partition_seed: int = 1,
) -> task_lib.Task:
  """Loads Fashion-MNIST, divided as PFLlib divides it, all 70,000 images together.

  By default the clients have the same images as those of PFLlib's leaderboard (its
  `dataset/generate_FashionMNIST.py noniid - dir`). A quarter of a client's images are for tests.

  Args:
    data_dir: The folder with the four files of Fashion-MNIST (`train-images-idx3-ubyte.gz` and so
      on) or with `fashion_mnist.npz`. None uses Debian's package dataset-fashion-mnist, if it is
      installed, or else TensorFlow Datasets.
    split: 'dirichlet' is PFLlib's "practical" label skew, 'pathological' gives each client some
      classes.
    num_clients: Number of clients.
    alpha: Concentration of the Dirichlet distribution over the clients, for split=dirichlet.
    classes_per_client: Number of classes of each client, for split=pathological.
    partition_seed: The seed of the partition, whatever `--seed` is; PFLlib has 1.

  Returns:
    The task. `test_clients` has each client's images for tests, and `validation` all of these
    together, so that the accuracy is the mean over them, as PFLlib reports it.

  Raises:
    tasks.DataError: If the data cannot be used or an option is out of range.
  """
  partitioner = _partitioner(split, num_clients, alpha, classes_per_client, partition_seed)
  return _load('fashion_mnist', image_arrays.FASHION_MNIST, data_dir, partitioner, _CLASSES)


def load_cifar100(
  data_dir: str | None = None,
  split: Literal['dirichlet', 'pathological'] = 'dirichlet',
  num_clients: int = 20,
  alpha: float = 0.1,
  classes_per_client: int = 10,
  partition_seed: int = 1,
) -> task_lib.Task:
  """Loads CIFAR-100, divided as PFLlib divides it, all 60,000 images together.

  With the images in the official order the clients have the same as those of PFLlib's leaderboard
  (its `dataset/generate_Cifar100.py noniid - dir`). A quarter of a client's images are for tests.

  Args:
    data_dir: The folder with `cifar100.npz`. None uses TensorFlow Datasets, whose order is another
      one.
    split: 'dirichlet' is PFLlib's "practical" label skew, 'pathological' gives each client some
      classes.
    num_clients: Number of clients.
    alpha: Concentration of the Dirichlet distribution over the clients, for split=dirichlet.
    classes_per_client: Number of classes of each client, for split=pathological.
    partition_seed: The seed of the partition, whatever `--seed` is; PFLlib has 1.

  Returns:
    The task. `test_clients` has each client's images for tests, and `validation` all of these
    together.

  Raises:
    tasks.DataError: If the data cannot be used or an option is out of range.
  """
  partitioner = _partitioner(split, num_clients, alpha, classes_per_client, partition_seed)
  return _load('cifar100_pfllib', image_arrays.CIFAR100, data_dir, partitioner)


def _partitioner(
  split: str, num_clients: int, alpha: float, classes_per_client: int, seed: int
) -> _Partitioner:
  if split == 'dirichlet':
    return partition.PfllibPartitioner(num_clients, alpha, seed=seed)
  return partition.PfllibPathologicalPartitioner(num_clients, classes_per_client, seed=seed)


def _load(
  name: str,
  images: image_arrays.ImageSet,
  data_dir: str | None,
  partitioner: _Partitioner,
  classes: tuple[str, ...] | None = None,
) -> task_lib.Task:
  """Loads a set of images, of which the clients have both splits together."""
  scaled = preparation.Preparation(mean=_HALF, deviation=_HALF, classes=classes)
  train, test, source = image_arrays.load(images, data_dir)
  # In this order: PFLlib's row numbers count from the training split on.
  x = scaled(np.concatenate([train.x, test.x]))
  y = np.concatenate([train.y, test.y])
  train_rows, test_rows = partitioner.train_and_test(y)
  from_partition = functools.partial(task_lib.InMemoryClientData.from_partition, x, y)
  test_clients = from_partition(test_rows)
  return task_lib.Task(
    name=name,
    build_model=functools.partial(build_model, images=images),
    train=from_partition(train_rows),
    validation=test_clients.load_all(),
    test_clients=test_clients,
    source=source,
    preparation=scaled,
  )


def build_model(
  seed: int, images: image_arrays.ImageSet = image_arrays.FASHION_MNIST
) -> models.Model:
  """Builds PFLlib's `FedAvgCNN` with PyTorch's initial weights.

  Two convolutions of 5 x 5 without padding, each with ReLU and a pooling of 2 x 2, and dense layers
  of 512 and the number of classes: 582,026 parameters for Fashion-MNIST, 924,708 for CIFAR-100. The
  last layer, its head in personalised methods, has the last two weights.
  """
  size, _, channels = images.shape
  # Each convolution takes 4 pixels of a side, each pooling halves what is left.
  size = ((size - 4) // 2 - 4) // 2
  kernels = ((5, 5, channels, 32), (5, 5, 32, 64))
  draw = layers.Initializer(seed)
  weights = []
  for shape in (*kernels, (64 * size**2, 512), (512, images.num_classes)):
    # PyTorch draws kernels and biases uniformly, up to 1 / sqrt(fan in).
    limit = 1 / np.sqrt(np.prod(shape[:-1]))
    weights += [draw.uniform(limit, *shape), draw.uniform(limit, shape[-1])]

  def forward(weights: Any, x: tf.Tensor, training: bool, seed: tf.Tensor | None) -> tf.Tensor:
    del training, seed
    for kernel, bias in (weights[:2], weights[2:4]):
      x = layers.max_pool(tf.nn.relu(layers.conv(x, kernel, bias)), 2, 2)
    h = tf.nn.relu(layers.dense(layers.flatten(x), *weights[4:6]))
    return layers.dense(h, *weights[6:])

  return layers.classifier(weights, forward, images.shape)
