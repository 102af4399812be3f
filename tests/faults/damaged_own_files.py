"""More kinds of `damaged_data`: a user's own tables, and files of weights to start from."""

import os
import types

import numpy as np
import pandas as pd
import tensorflow as tf

import tff_adaptive_tasks as tasks
from tests.helpers import small_problem
from tff_adaptive import models, training
from tff_adaptive_tasks import errors

_ROWS = 40


def table(folder: str, ending: str) -> tuple[str, types.FunctionType]:
  """Writes a table; returns its path and the function that makes a task of it and checks that.

  Neither format has checksums here: a digit that became another is read.
  """
  path, load = os.path.join(folder, f'own.{ending}'), getattr(tasks, f'from_{ending}')
  rng = np.random.default_rng(1)
  rows = pd.DataFrame(
    {
      'who': [f'client {i % 6}' for i in range(_ROWS)],
      'age': rng.integers(20, 90, _ROWS),
      'dose': rng.normal(size=_ROWS),
      'kind': rng.choice(['f', 'm'], _ROWS),
      'outcome': rng.choice(['good', 'poor'], _ROWS),
    }
  )
  if ending == 'csv':
    rows.to_csv(path, index=False)
  else:
    rows.to_parquet(path)

  def read():
    task = load(path, 'who', 'outcome')
    found = task.train.load_all()
    assert found['x'].dtype == np.float32
    assert np.isfinite(found['x']).all()
    assert set(found['y']) <= set(range(len(task.preparation.classes)))
    assert len(found['y']) + len(task.validation['y']) <= 2 * _ROWS

  return path, read


def weights(folder: str, ending: str) -> tuple[str, types.FunctionType]:
  """As `table`, of weights to start from: both formats have checksums."""
  path = os.path.join(folder, f'start.{ending}')
  if ending == 'keras':
    layers = [tf.keras.Input([4]), tf.keras.layers.Dense(3), tf.keras.layers.Dense(2)]
    model = models.from_keras(lambda: tf.keras.Sequential(layers), 'mse')
    model.to_keras(model.initial_weights[0]).save(path)
  else:
    model = small_problem.model()
    np.savez(path, *model.initial_weights[0])

  def read():
    try:
      found = training.initial_weights_from(path, model)
    except ValueError as error:
      raise errors.DataError(str(error)) from error
    for a, b in zip(found, model.initial_weights[0]):
      np.testing.assert_array_equal(a, b)

  return path, read
