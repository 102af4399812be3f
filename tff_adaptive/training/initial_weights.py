"""Weights to start from: those of an earlier run or of a file, and their hash."""

import hashlib
import os

import numpy as np

from tff_adaptive import models
from tff_adaptive.runs import run as run_lib


def initial_weights_from(path: str, model: 'models.Model') -> tuple[np.ndarray, ...]:
  """Weights for `models.with_initial_weights`, checked against the model.

  Args:
    path: A run's folder, of which the better of theta and theta-bar at the last evaluation is
      taken, by accuracy if it was measured, else by the loss; or a .keras or .npz file.
    model: The model that is to start from them. Where both have names, weights are found by
      name; otherwise they must have the model's shapes in the model's order.

  Returns:
    The weights in the model's order and dtypes.

  Raises:
    ValueError: If there is no such run or file, or its weights do not fit: the first difference is
      named; or a .keras file has other arrays that are not trained than the model.
  """
  path = os.path.expanduser(path)
  if os.path.isdir(path):
    return models.fitted_weights(path, dict(enumerate(_weights_of_run(path))), model)
  return models.read_weights_for(path, model)


def sha256(path: str) -> str:
  """SHA-256, in hex, of what `initial_weights_from` reads; it does not load TensorFlow.

  Args:
    path: A run's folder, of whose weights it is, or a file, of whose bytes it is.

  Raises:
    ValueError: If the run has no weights.
    OSError: If the file cannot be read.
  """
  path, digest = os.path.expanduser(path), hashlib.sha256()
  if os.path.isdir(path):
    for weight in _weights_of_run(path):
      digest.update(f'{weight.dtype.str} {weight.shape}'.encode())
      digest.update(weight.tobytes())
    return digest.hexdigest()
  with open(path, 'rb') as file:
    for piece in iter(lambda: file.read(1 << 20), b''):
      digest.update(piece)
  return digest.hexdigest()


def _weights_of_run(folder: str) -> tuple[np.ndarray, ...]:
  run = run_lib.load_run(folder)
  return run.chosen(run.best('accuracy' if 'validation_accuracy' in run.metrics else 'loss'))
