"""The task that needs no download: scikit-learn's handwritten digits, split over clients.

The data are 1,797 images of 8 x 8 pixels in 17 grey levels, the test set of UCI's "Optical
Recognition of Handwritten Digits", enlarged to 28 x 28. As in EMNIST, 1 is background and 0 is ink.
"""

import numpy as np

from tff_adaptive import models
from tff_adaptive_tasks import task as task_lib
from tff_adaptive_tasks.data import partition
from tff_adaptive_tasks.models import layers

SOURCE = 'scikit-learn digits (embedded)'


def load(seed: int = 0, num_clients: int = 60, alpha: float = 0.5) -> task_lib.Task:
  """Loads the task of recognising the digits.

  Args:
    seed: The seed of the split into training and validation data and of the partition.
    num_clients: Number of clients.
    alpha: Concentration of the labels' Dirichlet distribution; small values make clients differ.

  Returns:
    The task. Four fifths of the images belong to the clients, one fifth is for validation.

  Raises:
    tasks.DataError: If there are more clients than training images, or alpha is out of range.
  """
  x, y, held_out, train_rows = split(seed)
  indices = partition.label_dirichlet(y[train_rows], num_clients, alpha, seed)
  return task_lib.Task(
    name='digits',
    build_model=build_model,
    train=task_lib.InMemoryClientData.from_partition(x[train_rows], y[train_rows], indices),
    validation=task_lib.example_arrays(x[held_out], y[held_out]),
    source=SOURCE,
  )


def split(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
  """Returns images, labels, row numbers of a random fifth (to evaluate), and those of the rest."""
  from sklearn import datasets  # Slow to import and needed here only.

  data = datasets.load_digits()
  order = np.random.default_rng([seed, 8]).permutation(len(data.target))
  held_out, train_rows = np.split(order, [len(order) // 5])
  return enlarge(data.images / 16), data.target.astype(np.int32), held_out, train_rows


def enlarge(ink: np.ndarray) -> np.ndarray:
  """Enlarges images [n, 8, 8], where 1 is ink, to float32 [n, 28, 28, 1], where 1 is background.

  Each side is interpolated linearly from 8 to 24 pixels, with a margin of two pixels of background.
  """
  # Where the middle of each large pixel lies among the small ones.
  centre = (np.arange(24) + 0.5) / 3 - 0.5
  low = np.maximum(np.floor(centre).astype(int), 0)
  high = np.minimum(low + 1, 7)
  share = np.maximum(centre - low, 0)
  weight = np.zeros((24, 8))
  weight[np.arange(24), low] += 1 - share
  weight[np.arange(24), high] += share
  large = weight @ ink @ weight.T
  return (1 - np.pad(large, ((0, 0), (2, 2), (2, 2)))).astype(np.float32)[..., np.newaxis]


def build_model(seed: int) -> models.Model:
  """Builds a perceptron 784-100-10 (79,510 parameters) that first inverts pixels to 1 - pixels."""
  return layers.perceptron(seed, [784, 100, 10], [28, 28, 1], prepare=lambda x: 1 - x)
