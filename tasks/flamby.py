"""Two benchmarks of FLamby: heart disease in four hospitals, survival with cancer in six regions.

"FLamby: Datasets and Benchmarks for Cross-Silo Federated Learning in Realistic Healthcare Settings"
(Ogier du Terrail et al., NeurIPS 2022). Data, splits, models, losses and metrics are those of its
published code, `flamby/datasets/fed_heart_disease` and `flamby/datasets/fed_tcga_brca`.
"""

import functools
import os
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pandas as pd
import tensorflow as tf
from sklearn import model_selection

from tff_adaptive import models
from tff_adaptive_tasks import errors, task as task_lib
from tff_adaptive_tasks.data import files
from tff_adaptive_tasks.models import layers

HOSPITALS = ('cleveland', 'hungarian', 'switzerland', 'va')
# FLamby's, for each hospital's split.
_SEED = 43
_TRAIN_SHARE = 0.66


def load_heart(
  data_dir: str | None = None, standardized: Literal['client', 'pooled'] = 'client'
) -> task_lib.Task:
  """Loads heart disease in four hospitals: 740 patients, 486 of them for training.

  The 13 features are UCI's columns 0 to 9, where columns 2 and 6 are one-hot without their first
  level. Patients with a missing value are left out. The patients of each hospital are split 66 to
  34, stratified by diagnosis.

  Args:
    data_dir: The folder with `processed.HOSPITAL.data`, or with a subfolder `flamby` that has them.
    standardized: 'client' standardises a client's features by the mean and deviation of its own
      training data, 'pooled' by those of all clients' training data.

  Returns:
    The task. `validation` has all test parts, standardised with the pooled statistics, as FLamby's
    "Pooled Test". `test_clients` has each hospital's test part, standardised as `standardized`
    says.

  Raises:
    tasks.DataError: If `data_dir` is None, or a file is missing or not as expected.
  """
  frames = {}
  for name in HOSPITALS:
    path = _path(data_dir, f'processed.{name}.data')
    with files.border(path):
      reading: Any = dict(header=None, na_values='?', usecols=[*range(10), 13], dtype=np.float64)
      frames[name] = pd.read_csv(path, **reading).dropna().reset_index(drop=True)
  table = pd.concat(frames)
  # Of all hospitals together, so that all have the same inputs.
  x = pd.get_dummies(table.drop(columns=13), columns=[2, 6], drop_first=True).astype(np.float64)
  train: dict[str, Any] = {}
  test: dict[str, Any] = {}
  for name in HOSPITALS:
    sick = (table[13].loc[name].to_numpy() != 0).astype(np.float32)
    counts = np.bincount(sick.astype(int), minlength=2)
    stratify = None
    if counts.min() > 2:
      stratify = sick
    train_rows, test_rows = model_selection.train_test_split(
      np.arange(len(sick)),
      test_size=1 - _TRAIN_SHARE,
      train_size=_TRAIN_SHARE,
      random_state=_SEED,
      stratify=stratify,
    )
    features = x.loc[name].to_numpy()
    # Sorted, so that rows keep the file's order.
    for part, rows in ((train, np.sort(train_rows)), (test, np.sort(test_rows))):
      part[name] = (features[rows], sick[rows])
  pooled = _standardizer(np.concatenate([a for a, _ in train.values()]))
  standardizers = dict.fromkeys(train, pooled)
  if standardized == 'client':
    standardizers = {name: _standardizer(a) for name, (a, _) in train.items()}
  standardized_test = {n: (standardizers[n](a), y) for n, (a, y) in test.items()}
  return task_lib.Task(
    name='fed_heart',
    build_model=functools.partial(build_heart_model, columns=x.shape[1]),
    train=task_lib.InMemoryClientData({n: (standardizers[n](a), y) for n, (a, y) in train.items()}),
    validation=task_lib.InMemoryClientData(
      {n: (pooled(a), y) for n, (a, y) in test.items()}
    ).load_all(),
    test_clients=task_lib.InMemoryClientData(standardized_test),
    source=f'UCI heart disease of four hospitals in {data_dir}',
  )


def load_brca(data_dir: str | None = None) -> task_lib.Task:
  """Loads the survival of 1,088 patients with breast cancer in six regions, 866 for training.

  Args:
    data_dir: The folder with `brca.csv` (39 features, the event indicator E and the time T) and
      `train_test_split.csv`. 8 patients of `brca.csv` are not in the split.

  Returns:
    The task. y is [n, 2]: whether death was seen, and the days until death or until the patient was
    last seen. `validation` has all test parts, and `test_clients` each region's test part.

  Raises:
    tasks.DataError: If `data_dir` is None, or a file is missing or not as expected.
  """
  paths = [_path(data_dir, name) for name in ('brca.csv', 'train_test_split.csv')]
  with files.border(' or '.join(paths)):
    table = pd.read_csv(paths[0])
    folds = pd.read_csv(paths[1])
    # Patients that are not in the split have no fold, and are left out.
    fold = table['pid'].map(dict(zip(folds['pid'], folds['fold2']))).dropna().astype(str)
    numbers = table.loc[fold.index].drop(columns='pid').astype(np.float32)
    kinds = fold.str.extract('^(train|test)_(.+)$')
    if kinds.isna().any(axis=None) or {*kinds[0]} != {'train', 'test'}:
      raise ValueError('fold2 must be train_REGION or test_REGION, each for some patients')
    if not numbers['E'].isin([0, 1]).all() or numbers['T'].isna().any():
      raise ValueError('E must be 0 or 1, and T a number')
  parts: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {'train': {}, 'test': {}}
  for (kind, region), rows in numbers.groupby([kinds[0], kinds[1]]):
    parts[kind][region] = rows.drop(columns=['E', 'T']).to_numpy(), rows[['E', 'T']].to_numpy()
  test = task_lib.InMemoryClientData(parts['test'])
  return task_lib.Task(
    name='fed_tcga_brca',
    build_model=functools.partial(build_cox_model, columns=numbers.shape[1] - 2),
    train=task_lib.InMemoryClientData(parts['train']),
    validation=test.load_all(),
    test_clients=test,
    source=f'TCGA-BRCA by region in {data_dir}',
    metric='concordance',
  )


def build_heart_model(seed: int, columns: int = 13) -> models.Model:
  """Builds a logistic regression of `columns` inputs, with PyTorch's `Linear` initialisation."""

  def accuracy(logits: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, None]:
    return tf.cast(tf.equal(logits > 0, y > 0.5), tf.float32), None

  return _linear(
    seed,
    columns,
    example_loss=lambda logits, y: tf.nn.sigmoid_cross_entropy_with_logits(y, logits),
    metrics={'accuracy': accuracy},
    y_spec=tf.TensorSpec([None], tf.float32),
  )


def build_cox_model(seed: int, columns: int = 39) -> models.Model:
  """Builds a linear Cox model of `columns` inputs, with PyTorch's `Linear` initialisation."""
  return _linear(
    seed,
    columns,
    example_loss=cox_losses,
    metrics={'concordance': concordance},
    y_spec=tf.TensorSpec([None, 2], tf.float32),
    couples_examples=True,
  )


def cox_losses(scores: tf.Tensor, y: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
  """Returns each patient's term of Cox's negative partial log-likelihood; their mean is the loss.

  The term of patient i is E_i (log sum_j exp(s_j) - s_i). The sum is over the patients j of the
  batch who lived longer, and over those with the same time who do not come after i in the batch.

  Args:
    scores: s, float [..., B]. Larger scores mean a shorter life.
    y: [..., B, 2], the event E and the time T.
    counts: bool [..., B], False for padding.

  Returns:
    float [..., B].
  """
  event = y[..., 0]
  mine, other = _pairs(y[..., 1])
  row = tf.range(tf.shape(scores)[-1])
  is_before = row[tf.newaxis, :] <= row[:, tf.newaxis]
  at_risk = ((other > mine) | (tf.equal(other, mine) & is_before)) & counts[..., tf.newaxis, :]
  at_risk |= tf.equal(row[tf.newaxis, :], row[:, tf.newaxis])  # For padding too, to avoid log(0).
  below = tf.constant(-np.inf, scores.dtype)
  # Differences make a vanishing gradient exactly 0: Adam would turn its rounding into steps.
  difference = scores[..., tf.newaxis, :] - scores[..., :, tf.newaxis]
  return event * tf.reduce_logsumexp(tf.where(at_risk, difference, below), -1)


def concordance(scores: tf.Tensor, y: tf.Tensor, counts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
  """Computes Harrell's concordance index: the share of comparable pairs in the right order.

  For the arguments see `cox_losses`. A pair (i, j) is comparable if i's event was seen, and j lived
  longer or was last seen at the time of i's event. A pair with equal scores counts half.

  Returns:
    Two float [..., B]: for each i the number of comparable pairs in the right order, and of all.
  """
  event = y[..., 0] > 0.5
  mine, other = _pairs(y[..., 1])
  is_later = (mine < other) | (tf.equal(mine, other) & ~event[..., tf.newaxis, :])
  pair = event[..., :, tf.newaxis] & is_later & counts[..., tf.newaxis, :]
  difference = scores[..., :, tf.newaxis] - scores[..., tf.newaxis, :]
  pairs = tf.cast(pair, scores.dtype)
  return tf.reduce_sum(pairs * (tf.sign(difference) + 1) / 2, -1), tf.reduce_sum(pairs, -1)


def _pairs(time: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns times [..., B] along rows and along columns, whose comparison is [..., B, B]."""
  return time[..., :, tf.newaxis], time[..., tf.newaxis, :]


def _linear(seed: int, columns: int, **measures: Any) -> models.Model:
  draw = layers.Initializer(seed)
  limit = 1 / np.sqrt(columns)

  def forward(weights: Any, x: tf.Tensor, training: bool, seed: tf.Tensor | None) -> tf.Tensor:
    del training, seed
    return tf.squeeze(layers.dense(x, *weights), -1)

  return models.Model(
    initial_weights=(draw.uniform(limit, columns, 1), draw.uniform(limit, 1)),
    forward=forward,
    x_spec=tf.TensorSpec([None, columns], tf.float32),
    client_axis=True,
    **measures,
  )


def _standardizer(x: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
  """Returns a function that standardises features by the mean and deviation of x [n, columns]."""
  mean = x.mean(0)
  deviation = x.std(0, ddof=1)
  return lambda a: ((a - mean) / (deviation + 1e-9)).astype(np.float32)


def _path(data_dir: str | None, name: str) -> str:
  places = [os.path.join(data_dir or '', folder, name) for folder in ('', 'flamby')]
  path = next(filter(os.path.isfile, places), None)
  if data_dir is None or path is None:
    raise errors.DataError(
      f'{name} is neither in data_dir={data_dir!r} nor in flamby/ below it: give the right folder'
    )
  return path
