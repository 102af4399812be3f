"""What a run starts from, without TensorFlow: an earlier run's weights, and their hash."""

import hashlib
import os

import numpy as np

from tff_adaptive.runs import run as run_lib


def weights_of_run(folder: str) -> tuple[np.ndarray, ...]:
  """The weights of a run that another starts from: the better one of theta and theta-bar.

  Raises:
    ValueError: If the folder is no run's, or the run has no weights.
  """
  run = run_lib.load_run(folder)
  return run.chosen(run.best('accuracy' if 'validation_accuracy' in run.metrics else 'loss'))


def sha256(path: str) -> str:
  """SHA-256, in hex, of what `initial_weights_from` reads.

  Args:
    path: A run's folder, of whose weights it is, or a file, of whose bytes it is.

  Raises:
    ValueError: If the run has no weights.
    OSError: If the file cannot be read.
  """
  path, digest = os.path.expanduser(path), hashlib.sha256()
  if os.path.isdir(path):
    for weight in weights_of_run(path):
      digest.update(f'{weight.dtype.str} {weight.shape}'.encode())
      digest.update(weight.tobytes())
    return digest.hexdigest()
  with open(path, 'rb') as file:
    for piece in iter(lambda: file.read(1 << 20), b''):
      digest.update(piece)
  return digest.hexdigest()
