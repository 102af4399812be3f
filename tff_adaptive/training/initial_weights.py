"""Reads the weights of a run or a file, with which another run starts, and computes their hash."""

import hashlib
import os
import pathlib

import numpy as np

from tff_adaptive import models
from tff_adaptive.reports import tables
from tff_adaptive.runs import run as run_lib


def initial_weights_from(path: str, model: 'models.Model') -> tuple[np.ndarray, ...]:
  """Returns weights for `models.with_initial_weights`, in the model's order and dtypes.

  Args:
    path: A run's folder, a .keras or .npz file, or the folder in which scripts/export.py wrote one.
      A run gives its global model or its weights for inference, whichever had the better value of
      the run's metric in the last evaluation.
    model: The model that starts from the weights. Weights are matched by name if they have names in
      the file and the model. Otherwise they must have the model's shapes in the model's order.

  Raises:
    ValueError: If there is no such run or file, if its weights do not fit (the message names the
      first difference), or if a .keras file's arrays that are not trained differ from the model's.
  """
  path = file_of(path)
  if os.path.isdir(path):
    return models.fitted_weights(path, dict(enumerate(_weights_of_run(path))), model)
  return models.read_weights_for(path, model)


def file_of(path: str) -> str:
  """Returns the path of the weights in a folder that export.py wrote, else `path`; expands ~."""
  path = os.path.expanduser(path)
  files = (os.path.join(path, name) for name in ('model.keras', 'model.npz'))
  return next(filter(os.path.isfile, files), path)


def sha256(path: str) -> str:
  """Returns the SHA-256, in hex, of weights for `initial_weights_from`. Loads no TensorFlow.

  Args:
    path: A run's folder, whose weights are hashed, or a file, whose bytes are hashed.

  Raises:
    ValueError: If the run has no weights.
    OSError: If the file cannot be read.
  """
  path = file_of(path)
  digest = hashlib.sha256()
  if os.path.isdir(path):
    for weight in _weights_of_run(path):
      # Else other shapes with the same bytes would have the same hash.
      digest.update(f'{weight.dtype.str} {weight.shape}'.encode())
      digest.update(weight.tobytes())
    return digest.hexdigest()
  digest.update(pathlib.Path(path).read_bytes())
  return digest.hexdigest()


def _weights_of_run(folder: str) -> tuple[np.ndarray, ...]:
  run = run_lib.load_run(folder)
  return run.chosen(run.best(tables.default_metric([run]).removeprefix('validation_')))
