"""Weights to start from: those of an earlier run or of a file."""

import os

import numpy as np

from tff_adaptive import models
from tff_adaptive.runs import warm_start


def initial_weights_from(path: str, model: models.Model) -> tuple[np.ndarray, ...]:
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
    return models.fitted_weights(path, dict(enumerate(warm_start.weights_of_run(path))), model)
  return models.read_weights_for(path, model)
