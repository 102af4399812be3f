"""Two tasks whose data come with the packages: sonnets, and a table of tumours.

The bench names them as FILE.py:FUNCTION. Both divide each client's, or all, examples into three
parts: those that train, those by which rates are chosen, and those for the values that count.
"""

import functools
import pathlib
from typing import Literal

import numpy as np

from tff_adaptive_tasks import task as task_lib
from tff_adaptive_tasks.data import partition
from tff_adaptive_tasks.models import layers

_LETTERS = " 'abcdefghijklmnopqrstuvwxyz,.-\n"  # Other signs become a comma or a full stop.
_SIGNS = str.maketrans(';:?!', ',,..')
_CONTEXT = 6  # Letters from which the next one is predicted.
_HIDDEN = 64
_LINES = {'train': slice(0, 10), 'tuning': slice(10, 12), 'test': slice(12, 14)}
_FIELDS = 30  # Columns of the table of tumours.
_SHARES = (0.6, 0.8)  # Where the rows for tuning and those for testing begin.


def load_sonnets(
  data_dir: str | None = None, seed: int = 0, part: Literal['tuning', 'test'] = 'test'
) -> task_lib.Task:
  """Loads the task of predicting the next letter in sixteen sonnets, each of which is a client.

  Args:
    data_dir: Not used.
    seed: Not used: the data are the same for all seeds.
    part: Whether lines 11 and 12 ('tuning') or 13 and 14 ('test') of each sonnet are evaluated.
      Lines 1 to 10 train.

  Returns:
    The task. Inputs are the six letters before, each as 0/1 numbers.
  """
  del data_dir, seed
  text = pathlib.Path(__file__).with_name('sonnets.txt').read_text(encoding='utf-8')
  sonnets = [sonnet.splitlines() for sonnet in text.strip().split('\n\n')]
  train = {}
  evaluated = {}
  for number, lines in enumerate(sonnets):
    train[f'{number:02d}'] = _examples(lines[_LINES['train']])
    evaluated[f'{number:02d}'] = _examples(lines[_LINES[part]])
  widths = [_CONTEXT * len(_LETTERS), _HIDDEN, len(_LETTERS)]
  return task_lib.Task(
    name='sonnets',
    build_model=functools.partial(layers.perceptron, widths=widths),
    train=task_lib.InMemoryClientData(train),
    validation=task_lib.InMemoryClientData(evaluated).load_all(),
    source='sixteen sonnets by William Shakespeare (1609), embedded',
  )


def _examples(lines: list[str]) -> tuple[np.ndarray, np.ndarray]:
  """Returns inputs float32 [n, context * letters] and the numbers int32 [n] of the next letters."""
  text = '\n'.join(lines).lower().translate(_SIGNS)
  numbers = np.array([_LETTERS.index(letter) for letter in text], np.int32)
  windows = np.lib.stride_tricks.sliding_window_view(numbers, _CONTEXT + 1)
  one_hot = np.eye(len(_LETTERS), dtype=np.float32)[windows[:, :-1]]
  # A copy: the last column is a view, which would keep all windows in memory.
  return one_hot.reshape(len(windows), -1), windows[:, -1].copy()


def load_tumours(
  data_dir: str | None = None,
  seed: int = 0,
  num_clients: int = 8,
  alpha: float = 0.5,
  part: Literal['tuning', 'test'] = 'test',
) -> task_lib.Task:
  """Loads the task of telling benign from malignant tumours: scikit-learn's breast cancer table.

  Args:
    data_dir: Not used.
    seed: The seed of the split and of the partition.
    num_clients: Number of hospitals.
    alpha: Concentration of the labels' Dirichlet distribution; small values make clients differ.
    part: Which fifth of the rows is evaluated. The other three fifths train.

  Returns:
    The task. The 30 inputs have mean 0 and deviation 1 over the rows that train.
  """
  from sklearn import datasets  # Slow to import and needed here only.

  del data_dir

  x, y = datasets.load_breast_cancer(return_X_y=True)
  # The 8 makes it another draw than the partition's, which has the same seed.
  order = np.random.default_rng([seed, 8]).permutation(len(y))
  first, second = (int(share * len(y)) for share in _SHARES)
  rows = {'train': order[:first], 'tuning': order[first:second], 'test': order[second:]}
  # By the rows that train alone, so that the inputs say nothing of those that are evaluated.
  inputs = x[rows['train']]
  x = ((x - inputs.mean(axis=0)) / inputs.std(axis=0)).astype(np.float32)
  y = y.astype(np.int32)
  in_train = rows['train']
  indices = partition.label_dirichlet(y[in_train], num_clients, alpha, seed)
  return task_lib.Task(
    name='tumours',
    build_model=functools.partial(layers.perceptron, widths=[_FIELDS, 2]),
    train=task_lib.InMemoryClientData.from_partition(x[in_train], y[in_train], indices),
    validation=task_lib.example_arrays(x[rows[part]], y[rows[part]]),
    source="scikit-learn's breast cancer table (embedded)",
  )
