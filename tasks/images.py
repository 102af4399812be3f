"""MNIST of McMahan et al. (2017), AdaBest's EMNIST letters, and digits in AdaBest's partition.

Images are grey, 28 x 28. In digits 0 is background and 1 is ink. Letters are standardised.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from tff_adaptive import models
from tff_adaptive_tasks import digits, preparation as preparation_lib, task as task_lib
from tff_adaptive_tasks.data import image_arrays, partition
from tff_adaptive_tasks.models import layers

_SHAPE = (28, 28, 1)
_MNIST = ['mnist.npz', 'mnist_digits.npz']
_INK = preparation_lib.Preparation(deviation=255.0)  # What `_to_ink` does, for those who predict.


def load_mnist(
  name: str,
  data_dir: str | None = None,
  seed: int = 0,
  num_clients: int = 100,
  split: Literal['iid', 'shards'] = 'iid',
) -> task_lib.Task:
  """Loads MNIST as in "Communication-Efficient Learning of Deep Networks ...", section 3.

  Args:
    name: 'mnist_2nn' or 'mnist_cnn'.
    data_dir: The folder with `mnist.npz` or `mnist_digits.npz`; None uses TensorFlow Datasets.
    seed: Seeds the partition.
    num_clients: Number of clients.
    split: 'iid', or 'shards': examples are sorted by label and each client gets two shards.

  Returns:
    The task. Its validation data are the test split.

  Raises:
    tasks.DataError: If the data cannot be used or an option is unknown.
  """
  train, test, source = image_arrays.load(data_dir, _MNIST, 'mnist', _SHAPE, 10)
  if split == 'iid':
    indices = partition.iid(len(train.y), num_clients, seed)
  else:
    indices = partition.label_shards(train.y, num_clients, seed)
  perceptron: Callable[[int], models.Model] = functools.partial(build_perceptron, name=name)
  return task_lib.Task(
    name=name,
    build_model=build_cnn if name == 'mnist_cnn' else perceptron,
    train=task_lib.InMemoryClientData.from_partition(train.x, train.y, indices, _to_ink),
    validation=task_lib.example_arrays(*_to_ink(*test)),
    source=source,
    preparation=_INK,
  )


def load_ada_best(
  name: str,
  data_dir: str | None = None,
  seed: int = 0,
  num_clients: int = 110,
  alpha: float | None = 0.3,
  unbalance: float = 0.0,
  validation: Literal['clients', 'test'] = 'clients',
) -> task_lib.Task:
  """Loads EMNIST letters as in AdaBest, section 4.1, or digits in the same setting.

  Letters are standardised by the mean and deviation of all training pixels, as in the code of
  FedDyn, which AdaBest follows (appendix D.1).

  Args:
    name: 'emnist_letters', 'mnist_skewed' or 'digits_skewed'.
    data_dir: The folder with `emnist_letters.npz` or `letters.npz` (labels 1 to 26), for MNIST with
      `mnist.npz` or `mnist_digits.npz`; None uses TensorFlow Datasets.
    seed: Seeds the partition and, for scikit-learn's digits, which fifth is the test split.
    num_clients: Number of clients, of which one in 11 is held out for tuning.
    alpha: Concentration of the label Dirichlet; inf or none for IID. The paper has 0.03, 0.3 and
      IID.
    unbalance: Log-normal spread of the clients' sizes; 0.3 in the paper's unbalanced setting.
    validation: Examples to evaluate on during training: 'clients', those of the held-out clients;
      or 'test', the test split, for curves by which nothing is chosen.

  Returns:
    The task. Its test data are the test split.

  Raises:
    tasks.DataError: If the data cannot be used or an option is out of range.
  """
  transform: task_lib.Transform | None = None
  raw = None
  if name == 'digits_skewed':
    x, y, held_out, kept = digits.split(seed)
    train, test = (image_arrays.Split(1 - x[rows], y[rows]) for rows in (kept, held_out))
    source = digits.SOURCE
  elif name == 'mnist_skewed':
    train, test, source = image_arrays.load(data_dir, _MNIST, 'mnist', _SHAPE, 10)
    transform, raw = _to_ink, _INK
  else:
    files = ['emnist_letters.npz', 'letters.npz']
    train, test, source = image_arrays.load(
      data_dir, files, 'emnist/letters', _SHAPE, 26, first_label=1
    )
    mean, deviation = pixel_statistics(train.x)
    transform = functools.partial(standardise, mean=mean, deviation=deviation)
    raw = preparation_lib.Preparation(
      mean=mean,
      deviation=deviation,
      classes=tuple(range(1, 27)),  # As the files have them.
    )
  return ada_best_task(
    *(train, test, transform, num_clients, alpha, unbalance, seed, validation),
    name=name,
    build_model=functools.partial(build_perceptron, name=name),
    source=source,
    preparation=raw,
  )


def ada_best_task(
  train: image_arrays.Split,
  test: image_arrays.Split,
  transform: task_lib.Transform | None,
  num_clients: int,
  alpha: float | None,
  unbalance: float,
  seed: int,
  validation: str = 'clients',
  **task: Any,
) -> task_lib.Task:
  """Builds a task in which 10 of 11 clients train and 1 of 11 is for tuning.

  For the arguments see `load_ada_best`. `transform` prepares images, and `task` has the task's
  other attributes.
  """
  alpha = None if alpha == math.inf else alpha
  if alpha is None:
    indices = partition.iid(len(train.y), num_clients, seed, unbalance)
  else:
    indices = partition.label_dirichlet(train.y, num_clients, alpha, seed, unbalance)
  training, held_out = partition.hold_out(num_clients, seed)
  rows = np.concatenate([indices[i] for i in held_out])

  def examples(x: np.ndarray, y: np.ndarray) -> task_lib.ExampleArrays:
    return task_lib.example_arrays(*(transform(x, y) if transform else (x, y)))

  test_examples = examples(*test)
  return task_lib.Task(
    train=task_lib.InMemoryClientData.from_partition(
      train.x, train.y, [indices[i] for i in training], transform
    ),
    validation=test_examples if validation == 'test' else examples(train.x[rows], train.y[rows]),
    test=test_examples,
    **task,
  )


def pixel_statistics(x: np.ndarray) -> tuple[float, float]:
  """Returns mean and standard deviation of all pixels of uint8 images; deviation 0 becomes 1."""
  counts = np.bincount(x.reshape(-1), minlength=256)  # No copy of all in floating point.
  mean = np.average(np.arange(256), weights=counts)
  deviation = np.sqrt(np.average((np.arange(256) - mean) ** 2, weights=counts))
  return float(mean), float(deviation) or 1.0


def standardise(
  x: np.ndarray, y: np.ndarray, mean: float, deviation: float
) -> tuple[np.ndarray, np.ndarray]:
  """Converts uint8 images to float32 with mean 0 and deviation 1, by the given statistics."""
  return (x.astype(np.float32) - np.float32(mean)) / np.float32(deviation), y


_to_ink = functools.partial(standardise, mean=0, deviation=255)


def build_perceptron(seed: int, name: str) -> models.Model:
  """Builds the perceptron of 'mnist_2nn' (199,210 parameters) or of AdaBest (91,226 and 89,610)."""
  hidden = 200 if name == 'mnist_2nn' else 100
  classes = 26 if name == 'emnist_letters' else 10
  return layers.perceptron(seed, [784, hidden, hidden, classes], _SHAPE)


def build_cnn(seed: int) -> models.Model:
  """Builds the FedAvg paper's CNN: two 5 x 5 convolutions, dense 512 (1,663,370 parameters)."""
  draw = layers.Initializer(seed)
  weights = (
    *(draw.glorot_uniform(5, 5, 1, 32), layers.zeros(32)),
    *(draw.glorot_uniform(5, 5, 32, 64), layers.zeros(64)),
    *(draw.glorot_uniform(3136, 512), layers.zeros(512)),
    *(draw.glorot_uniform(512, 10), layers.zeros(10)),
  )

  def forward(weights: Any, x: tf.Tensor, training: bool, seed: tf.Tensor | None) -> tf.Tensor:
    del training, seed
    for kernel, bias in (weights[:2], weights[2:4]):
      h = tf.nn.relu(layers.conv(x, kernel, bias, padding='SAME'))
      x = layers.max_pool(h, 2, 2, 'SAME')
    h = tf.nn.relu(layers.dense(layers.flatten(x), *weights[4:6]))
    return layers.dense(h, *weights[6:])

  return layers.classifier(weights, forward, _SHAPE)
