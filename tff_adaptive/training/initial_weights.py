"""Weights to start from: those of an earlier run or of a file, and their hash."""

import hashlib
import os
import pathlib

import numpy as np

from tff_adaptive import models
from tff_adaptive.reports import tables
from tff_adaptive.runs import run as run_lib


def initial_weights_from(path: str, model: 'models.Model') -> tuple[np.ndarray, ...]:
  """Weights for `models.with_initial_weights`, checked against the model.

  Args:
    path: A run's folder, of which the better of theta and theta-bar at the last evaluation is
      taken, by what reports compare runs by; or a .keras or .npz file, or the folder in which
      scripts/export.py wrote one.
    model: The model that is to start from them. Where both have names, weights are found by
      name; otherwise they must have the model's shapes in the model's order.

  Returns:
    The weights in the model's order and dtypes.

  Raises:
    ValueError: If there is no such run or file, or its weights do not fit: the first difference is
      named; or a .keras file has other arrays that are not trained than the model.
  """
  path = file_of(path)
  if os.path.isdir(path):
    return models.fitted_weights(path, dict(enumerate(_weights_of_run(path))), model)
  return models.read_weights_for(path, model)


def file_of(path: str) -> str:
  """The file that is meant by a path, ~ resolved: of an export's folder that of its weights."""
  path = os.path.expanduser(path)
  files = (os.path.join(path, name) for name in ('model.keras', 'model.npz'))
  return next(filter(os.path.isfile, files), path)


def sha256(path: str) -> str:
  """SHA-256, in hex, of what `initial_weights_from` reads; it does not load TensorFlow.

  Args:
    path: A run's folder, of whose weights it is, or a file, of whose bytes it is.

  Raises:
    ValueError: If the run has no weights.
    OSError: If the file cannot be read.
  """
  path, digest = file_of(path), hashlib.sha256()
  if os.path.isdir(path):
    for weight in _weights_of_run(path):
      digest.update(f'{weight.dtype.str} {weight.shape}'.encode())
      digest.update(weight.tobytes())
    return digest.hexdigest()
  digest.update(pathlib.Path(path).read_bytes())
  return digest.hexdigest()


def _weights_of_run(folder: str) -> tuple[np.ndarray, ...]:
  run = run_lib.load_run(folder)
  return run.chosen(run.best(tables.default_metric([run]).removeprefix('validation_')))
