"""Two tasks of the bench whose data are in files of the user: Fashion-MNIST, and UCI's Adult.

The bench names them as FILE.py:FUNCTION. As in embedded.py there are three parts: examples that
train, those by which rates are chosen, and those for the values that count.
"""

import csv
import functools
import os
from collections.abc import Sequence
from typing import Literal

import numpy as np

from tff_adaptive_tasks import errors, task as task_lib
from tff_adaptive_tasks.data import image_arrays, partition
from tff_adaptive_tasks.models import layers

_HIDDEN = 100
_LARGEST_PIXEL = 255.0
_SHARE_FOR_TUNING = 0.1

# The columns of adult.data and adult.test in their order, but for the last one, the income.
_NUMBERS = ('age', 'fnlwgt', 'education-num', 'capital-gain', 'capital-loss', 'hours-per-week')
_ADULT = (
  *('age', 'workclass', 'fnlwgt', 'education', 'education-num', 'marital-status', 'occupation'),
  *('relationship', 'race', 'sex', 'capital-gain', 'capital-loss', 'hours-per-week'),
  'native-country',
)
_CLIENT = 'education'
_UNKNOWN = '?'
_ADULT_FILES = ('adult.data', 'adult.test')


def load_fashion(
  data_dir: str | None = None,
  seed: int = 0,
  num_clients: int = 100,
  alpha: float = 0.3,
  part: Literal['tuning', 'test'] = 'test',
) -> task_lib.Task:
  """Loads Fashion-MNIST with a perceptron.

  Args:
    data_dir: The folder with the four files of Fashion-MNIST or with `fashion_mnist.npz`.
    seed: The seed of the partition, and of the tenth of the training split that only tunes.
    num_clients: Number of clients.
    alpha: Concentration of the labels' Dirichlet distribution; small values make clients differ.
    part: Whether that tenth or the test split is evaluated. The other nine tenths train.

  Returns:
    The task. Inputs are pixels in [0, 1].
  """
  of_training, of_test, source = image_arrays.load(image_arrays.FASHION_MNIST, data_dir)
  in_train, in_tuning = _parted(len(of_training.y), seed)
  x, y = of_training.x[in_train] / np.float32(_LARGEST_PIXEL), of_training.y[in_train]
  if part == 'tuning':
    evaluated = image_arrays.Split(of_training.x[in_tuning], of_training.y[in_tuning])
  else:
    evaluated = of_test
  indices = partition.label_dirichlet(y, num_clients, alpha, seed)
  widths = [int(np.prod(x.shape[1:])), _HIDDEN, image_arrays.FASHION_MNIST.num_classes]
  return task_lib.Task(
    name='fashion',
    build_model=functools.partial(layers.perceptron, widths=widths),
    train=task_lib.InMemoryClientData.from_partition(_flat(x), y, indices),
    validation=task_lib.example_arrays(
      _flat(evaluated.x / np.float32(_LARGEST_PIXEL)), evaluated.y
    ),
    source=source,
  )


def _flat(images: np.ndarray) -> np.ndarray:
  return images.reshape(len(images), -1)


def _parted(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
  """Returns the rows of a training split that train, and those that tune."""
  # The 8 makes it another draw than the partition's, which has the same seed.
  order = np.random.default_rng([seed, 8]).permutation(count)
  tuning = int(_SHARE_FOR_TUNING * count)
  return order[tuning:], order[:tuning]


def load_adult(
  data_dir: str | None = None, seed: int = 0, part: Literal['tuning', 'test'] = 'test'
) -> task_lib.Task:
  """Loads UCI's Adult: whether an income is above 50,000, by logistic regression.

  The clients are the 16 values of the column education.

  Args:
    data_dir: The folder with UCI's files `adult.data` and `adult.test`.
    seed: The seed of the tenth of adult.data that only tunes.
    part: Whether that tenth or adult.test is evaluated. The other nine tenths train.

  Returns:
    The task. Inputs are six numbers with mean 0 and deviation 1 over the rows that train, and an
    indicator of each value of the eight other columns but '?'.

  Raises:
    tasks.DataError: If the files are missing or are not UCI's.
  """
  if data_dir is None:
    raise errors.DataError(f'adult needs {" and ".join(_ADULT_FILES)}: give --data_dir')
  rows, test_rows = (_read_adult(os.path.join(data_dir, name)) for name in _ADULT_FILES)
  in_train, in_tuning = _parted(len(rows), seed)
  train = [rows[number] for number in in_train]
  evaluated = test_rows
  if part == 'tuning':
    evaluated = [rows[number] for number in in_tuning]
  x, x_evaluated = _inputs(rows, train, evaluated)
  clients = np.array([row[_ADULT.index(_CLIENT)] for row in train])
  names = np.unique(clients)
  y = _incomes(train)
  by_client = {str(name): (x[clients == name], y[clients == name]) for name in names}
  return task_lib.Task(
    name='adult',
    build_model=functools.partial(layers.perceptron, widths=[x.shape[1], 2]),
    train=task_lib.InMemoryClientData(by_client),
    validation=task_lib.example_arrays(x_evaluated, _incomes(evaluated)),
    source=f"UCI's Adult from {data_dir}",
  )


def _read_adult(path: str) -> list[list[str]]:
  """Returns the rows of one of UCI's files; its first line may be a comment."""
  try:
    with open(path, encoding='utf-8', newline='') as file:
      rows = list(csv.reader(file, skipinitialspace=True))
  except FileNotFoundError:
    raise errors.DataError(
      f'{path} is missing: --data_dir needs {" and ".join(_ADULT_FILES)}'
    ) from None
  except (OSError, UnicodeDecodeError, csv.Error) as error:
    raise errors.DataError(f'{path} cannot be read: {error}') from None
  rows = [row for row in rows if row and not row[0].startswith('|')]
  for row in rows:
    if len(row) != len(_ADULT) + 1:
      raise errors.DataError(f"{path} is not UCI's Adult: a row has {len(row)} columns, not 15")
  if not rows:
    raise errors.DataError(f'{path} is empty')
  return rows


def _incomes(rows: Sequence[Sequence[str]]) -> np.ndarray:
  """Returns 1 where the income is above 50,000; adult.test has a full stop after it."""
  return np.array([row[-1].startswith('>') for row in rows], np.int32)


def _inputs(
  of_file: Sequence[Sequence[str]],
  train: Sequence[Sequence[str]],
  evaluated: Sequence[Sequence[str]],
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the inputs of two parts, float32; the categories are those of adult.data."""
  columns: list[list[np.ndarray]] = [[], []]
  for place, name in enumerate(_ADULT):
    values = [np.array([row[place] for row in rows]) for rows in (train, evaluated)]
    if name in _NUMBERS:
      numbers = [of_part.astype(np.float64) for of_part in values]
      mean, deviation = numbers[0].mean(), numbers[0].std()
      for inputs, of_part in zip(columns, numbers):
        inputs.append((of_part - mean) / deviation)
    else:
      for category in sorted({row[place] for row in of_file} - {_UNKNOWN}):
        for inputs, of_part in zip(columns, values):
          inputs.append(of_part == category)
  x, x_evaluated = (np.stack(inputs, axis=1).astype(np.float32) for inputs in columns)
  return x, x_evaluated
