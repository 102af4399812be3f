"""Digits over clients of unlike labels: AdaBest's partition and perceptron on data at hand.

AdaBest's easy task is EMNIST letters; `images.load_letters` has it. These two tasks are the same
setting (110 clients of which 10 are held out, label Dirichlet or IID, two hidden layers of 100) on
MNIST's digits and on scikit-learn's. 0 is background and 1 is ink.
"""

from typing import Literal

import numpy as np

from tff_adaptive import models
from tff_adaptive_tasks import digits, images, task as task_lib
from tff_adaptive_tasks.data import image_arrays
from tff_adaptive_tasks.models import layers

_SHAPE = (28, 28, 1)
_TEST_SHARE = 0.2


def load(
  name: str,
  data_dir: str | None = None,
  seed: int = 0,
  num_clients: int = 110,
  alpha: float | None = 0.3,
  unbalance: float = 0.0,
  validation: Literal['clients', 'test'] = 'clients',
) -> task_lib.Task:
  """Loads 'mnist_skewed' or 'digits_skewed'.

  Args:
    name: The task.
    data_dir: For MNIST the folder with `mnist.npz` or `mnist_digits.npz`; None uses TensorFlow
      Datasets. Scikit-learn's digits need none.
    seed: Seeds the partition and, for scikit-learn's digits, which fifth is the test split.
    num_clients: Clients, of which one in 11 is held out for tuning.
    alpha: Concentration of the label Dirichlet; infinity or None for IID.
    unbalance: Log-normal spread of the clients' sizes.
    validation: What to evaluate on during training: 'clients', the examples of the held-out
      clients; or 'test', the test split, for curves over rounds by which nothing is chosen.

  Returns:
    The task.

  Raises:
    tasks.DataError: If the data cannot be used or an option is out of range.
  """
  if name == 'digits_skewed':
    train, test, source = _split_digits(seed)
  else:
    files = ['mnist.npz', 'mnist_digits.npz']
    train, test, source = image_arrays.load(data_dir, files, 'mnist', _SHAPE, 10)
  return images.ada_best_task(
    name,
    build_model,
    train,
    test,
    source,
    _keep if name == 'digits_skewed' else images.to_ink,
    num_clients,
    alpha,
    unbalance,
    seed,
    validation=validation,
    preparation=None if name == 'digits_skewed' else images.INK,
  )


def build_model(seed: int) -> models.Model:
  """AdaBest's perceptron for ten classes, 784-100-100-10 (89,610 parameters).

  Args:
    seed: Draws the initial weights.

  Returns:
    A `tff_adaptive.models.Model` of inputs [28, 28, 1] that takes a leading client axis.
  """
  return layers.perceptron(seed, [784, 100, 100, 10], _SHAPE)


def _split_digits(seed: int) -> tuple[image_arrays.Split, image_arrays.Split, str]:
  """Scikit-learn's digits: four fifths to train, one fifth to test."""
  from sklearn import datasets  # Slow to import and needed here only.

  data = datasets.load_digits()
  x, y = 1 - digits.enlarge(data.images / 16), data.target.astype(np.int32)
  order = np.random.default_rng([seed, 8]).permutation(len(y))
  test, train = np.split(order, [int(_TEST_SHARE * len(y))])
  return (
    image_arrays.Split(x[train], y[train]),
    image_arrays.Split(x[test], y[test]),
    'scikit-learn digits (embedded)',
  )


def _keep(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  return x, y
