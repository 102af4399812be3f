"""The tasks of "AdaBest" (Varno et al., 2022), and two tasks of digits divided in the same way.

In images of digits, 0 is the background and 1 is ink. Letters are standardised by the mean and
deviation of all training pixels, as in the code of FedDyn, which AdaBest follows (appendix D.1).
"""

import functools
import math
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from tff_adaptive import models
from tff_adaptive_tasks import digits, errors, mnist, preparation, task as task_lib
from tff_adaptive_tasks.data import image_arrays, partition
from tff_adaptive_tasks.models import layers, resnet

_PAD = 4
# Number of classes -> mean and deviation of each channel of the training images in [0, 1].
_STATISTICS = {
  10: ((0.491, 0.482, 0.447), (0.247, 0.243, 0.262)),
  100: ((0.507, 0.487, 0.441), (0.268, 0.257, 0.276)),
}
_SETS = {
  'mnist_skewed': image_arrays.MNIST,
  'cifar10_cnn': image_arrays.CIFAR10,
  'cifar100_cnn': image_arrays.CIFAR100,
}
_NUM_CLASSES = {name: images.num_classes for name, images in _SETS.items()}


def load(
  name: str,
  data_dir: str | None = None,
  seed: int = 0,
  num_clients: int = 110,
  alpha: float | None = 0.3,
  unbalance: float = 0.0,
  validation: Literal['clients', 'test'] = 'clients',
) -> task_lib.Task:
  """Loads a task of images that are divided over clients as in AdaBest, section 4.1.

  Args:
    name: 'cifar10_cnn', 'cifar100_cnn', 'mnist_skewed' or 'digits_skewed'.
    data_dir: The folder with the images: `cifar10.npz` or `cifar10_lossless.npz`, `cifar100.npz`,
      or for mnist_skewed `mnist.npz` or `mnist_digits.npz`. None uses TensorFlow Datasets.
    seed: The seed of the partition and, for digits_skewed, of the test split (a fifth).
    num_clients: Number of clients. One client in 11 is held out for tuning.
    alpha: Concentration of the labels' Dirichlet distribution, 0.03 or 0.3 in AdaBest. With inf
      or none each client gets an IID sample.
    unbalance: Standard deviation of the logarithm of the clients' sizes, 0 or 0.3 in AdaBest.
    validation: 'clients' evaluates on the held-out clients' examples during training, 'test' on the
      test split, for curves that are not used to choose settings.

  Returns:
    The task. Its test data are the test split.

  Raises:
    tasks.DataError: If the data cannot be used or an option is out of range.
  """
  prepared = None
  if name == 'digits_skewed':
    x, y, test_rows, train_rows = digits.split(seed)
    # digits has 1 as background, AdaBest's images have 0.
    train = image_arrays.Split(1 - x[train_rows], y[train_rows])
    test = image_arrays.Split(1 - x[test_rows], y[test_rows])
    source = digits.SOURCE
  else:
    train, test, source = image_arrays.load(_SETS[name], data_dir)
  if name == 'mnist_skewed':
    prepared = mnist.INK
    train = _prepared(train, prepared)
    test = _prepared(test, prepared)
  return _divided(
    train,
    test,
    seed,
    num_clients,
    alpha,
    unbalance,
    validation,
    name=name,
    build_model=functools.partial(build_model, name=name),
    source=source,
    preparation=prepared,
  )


def load_letters(
  data_dir: str | None = None,
  seed: int = 0,
  num_clients: int = 110,
  alpha: float | None = 0.3,
  unbalance: float = 0.0,
  validation: Literal['clients', 'test'] = 'clients',
  letters: int = 10,
) -> task_lib.Task:
  """Loads EMNIST letters; for other arguments, result and errors see `load`.

  Args:
    data_dir: The folder with `emnist_letters.npz` or `letters.npz` (labels 1 to 26). None uses
      TensorFlow Datasets.
    letters: How many letters are used, the first of the alphabet: 10 in AdaBest, or up to 26.
  """
  errors.check_range('letters', letters, 2, 26)
  parts = image_arrays.load(image_arrays.EMNIST_LETTERS, data_dir)
  train, test = (_first_classes(split, letters) for split in parts[:2])
  mean, deviation = pixel_statistics(train.x)
  labels = tuple(range(1, letters + 1))  # As the files have them.
  prepared = preparation.Preparation(mean=mean, deviation=deviation, classes=labels)
  return _divided(
    _prepared(train, prepared),
    _prepared(test, prepared),
    seed,
    num_clients,
    alpha,
    unbalance,
    validation,
    name='emnist_letters',
    build_model=functools.partial(build_model, name='emnist_letters', num_classes=letters),
    source=parts[2],
    preparation=prepared,
  )


def _first_classes(split: image_arrays.Split, count: int) -> image_arrays.Split:
  is_used = split.y < count
  return image_arrays.Split(split.x[is_used], split.y[is_used])


def _prepared(split: image_arrays.Split, prepared: preparation.Preparation) -> image_arrays.Split:
  return image_arrays.Split(prepared(split.x), split.y)


def _divided(
  train: image_arrays.Split,
  test: image_arrays.Split,
  seed: int,
  num_clients: int,
  alpha: float | None,
  unbalance: float,
  validation: str,
  **of_task: Any,
) -> task_lib.Task:
  """Divides the training images over the clients, some of which are held out."""
  if alpha is None or alpha == math.inf:
    indices = partition.iid(len(train.y), num_clients, seed, unbalance)
  else:
    indices = partition.label_dirichlet(train.y, num_clients, alpha, seed, unbalance)
  training, held_out = partition.hold_out(num_clients, seed)
  rows = np.concatenate([indices[i] for i in held_out])
  test_examples = task_lib.example_arrays(*test)
  if validation == 'test':
    validation_examples = test_examples
  else:
    validation_examples = task_lib.example_arrays(train.x[rows], train.y[rows])
  return task_lib.Task(
    train=task_lib.InMemoryClientData.from_partition(*train, [indices[i] for i in training]),
    validation=validation_examples,
    test=test_examples,
    **of_task,
  )


def pixel_statistics(x: np.ndarray) -> tuple[float, float]:
  """Returns mean and deviation of all pixels of uint8 images; a deviation of 0 becomes 1."""
  counts = np.bincount(x.reshape(-1), minlength=256)  # This avoids a floating-point copy of x.
  mean = np.average(np.arange(256), weights=counts)
  deviation = np.sqrt(np.average((np.arange(256) - mean) ** 2, weights=counts))
  return float(mean), float(deviation) or 1.0


def build_model(seed: int, name: str, num_classes: int | None = None) -> models.Model:
  """Builds AdaBest's CNN if the task `name` is of CIFAR, else its MLP with 100 and 100 units."""
  if num_classes is None:
    num_classes = _NUM_CLASSES.get(name, 10)
  if name.startswith('cifar'):
    return build_cnn(seed, num_classes)
  return layers.perceptron(seed, [784, 100, 100, num_classes], image_arrays.MNIST.shape)


def build_cnn(seed: int, num_classes: int) -> models.Model:
  """Builds AdaBest's CNN for CIFAR-10 or -100: two convolutions, dense layers of 394 and 192."""
  draw = layers.Initializer(seed)
  weights = [
    *(draw.glorot_uniform(5, 5, 3, 64), layers.zeros(64)),
    *(draw.glorot_uniform(5, 5, 64, 64), layers.zeros(64)),
  ]
  for n, m in ((1600, 394), (394, 192), (192, num_classes)):
    weights += [draw.glorot_uniform(n, m), layers.zeros(m)]
  mean, deviation = (np.array(s, np.float32) for s in _STATISTICS[num_classes])

  def forward(weights: Any, x: tf.Tensor, training: bool, seed: tf.Tensor | None) -> tf.Tensor:
    # With mixed precision the weights have 16 bits, and so must x.
    x = tf.cast((tf.cast(x, tf.float32) / 255 - mean) / deviation, weights[0].dtype)
    if training and seed is not None:
      x = distort(x, seed)
    for kernel, bias in (weights[:2], weights[2:4]):
      x = layers.max_pool(tf.nn.relu(layers.conv(x, kernel, bias)), 2, 2)
    h = layers.flatten(x)
    for i in (4, 6):
      h = tf.nn.relu(layers.dense(h, weights[i], weights[i + 1]))
    return layers.dense(h, *weights[8:])

  return layers.classifier(weights, forward, image_arrays.CIFAR10.shape, x_dtype=tf.uint8)


def distort(x: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
  """Flips each image with probability 0.5, and shifts it with probability 0.5 by up to 4 pixels.

  AdaBest does this (appendix D.1), and follows FedDyn. FedDyn's code pads the standardised image
  with 4 zeros (the mean colour) on each side and crops it. Images are [B, 32, 32, 3], or
  [G, B, 32, 32, 3] for a group of G clients; the seed is int32 [2] or [G, 2].
  """
  offsets = 2 * _PAD + 1

  def change(x: tf.Tensor, choice: tf.Tensor) -> tf.Tensor:
    x = resnet.flip(x, tf.equal(choice[:, 0] % 2, 0))
    shifted = tf.where(tf.equal(choice[:, 1:2] % 2, 0), choice[:, 2:] % offsets, _PAD)
    padded = tf.pad(x, [[0, 0], [_PAD, _PAD], [_PAD, _PAD], [0, 0]])
    return resnet.crop(padded, shifted, x.shape[-2])

  # Of numbers below a multiple of 2 and of `offsets` all remainders are equally likely.
  return layers.of_images(change, x, resnet.choices(x, seed, 4, offsets**2 * 4))
