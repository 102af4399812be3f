"""Weights of classes in the training loss, for data in which some classes are rare."""

import copy
from collections.abc import Sequence

import numpy as np

from tff_adaptive.models import model as model_lib


def with_class_weight(model: model_lib.Model, class_weights: Sequence[float]) -> model_lib.Model:
  """Returns a copy of the model in whose training loss each class has a weight.

  A batch's loss is sum_i w_{y_i} loss_i / B, as for the `class_weight` of Keras's `fit`. Metrics,
  the loss among them, do not have the weights, so training and validation stay comparable. TFF's
  own algorithms ignore the weights.

  Args:
    model: The model. Its targets are class numbers [B].
    class_weights: The weight of each class, 0 or more, in the order of class numbers; see
      `balanced_class_weights`.

  Raises:
    ValueError: If the targets are not [B], or a weight is negative or not finite.
  """
  weights = tuple(float(weight) for weight in class_weights)
  if not np.all(np.isfinite(weights)) or min(weights) < 0:
    raise ValueError(f'class weights are {weights}; they must be finite numbers, 0 or more')
  if model.input_spec['y'].shape.rank != 1:
    raise ValueError(
      'class weights are for targets that are class numbers [B]; those of this model have the '
      f'shape {list(model.input_spec["y"].shape)}'
    )
  if model.couples_examples:
    raise ValueError('class weights are not for a loss that couples the examples of a batch')
  # A copy, because a task may give the model without weights to others.
  weighted = copy.copy(model)
  weighted.class_weights = weights
  return weighted


def balanced_class_weights(counts: Sequence[int]) -> tuple[float, ...]:
  """Returns n / (k n_c) for each class, as scikit-learn's `class_weight='balanced'`.

  Args:
    counts: The number n_c of training examples of each class, of n in all. k is the number of
      classes that have examples; a class without examples has weight 0.
  """
  counts_by_class = np.asarray(counts, np.float64)
  is_there = counts_by_class > 0
  weights = np.zeros(len(counts_by_class))
  weights[is_there] = counts_by_class.sum() / (is_there.sum() * counts_by_class[is_there])
  return tuple(weights.tolist())
