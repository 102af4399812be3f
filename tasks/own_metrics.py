"""Metrics and class weights of tasks on a user's own data."""

import dataclasses
import functools
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tff_adaptive import models
from tff_adaptive.models import named_metrics
from tff_adaptive_tasks import errors, own_models, task as task_lib

# The names that Keras has too, so that a Keras model's own metric counts.
_OF_KERAS = ('accuracy', 'mean_absolute_error', 'mean_squared_error')
_MOST_CLASSES = 100  # With more classes, macro means are computed only if they are asked for.


def of_keras(metrics: Sequence[Any] | None) -> list[Any] | None:
  """Returns the metrics that are Keras's; None, the default ones, for None."""
  if metrics is None:
    return None
  return [metric for metric in metrics if metric in _OF_KERAS or not _is_ours(metric)]


def _is_ours(metric: Any) -> bool:
  return isinstance(metric, str) and named_metrics.is_name(metric)


def extended(
  build: Callable[[int], models.Model],
  built: models.Model,
  problem: own_models.Problem,
  metrics: Sequence[Any] | None,
  metric: str | None,
  weights: Sequence[float] | None,
  positive: int = 1,
) -> tuple[Callable[[int], models.Model], models.Model]:
  """Returns a function for `Task.build_model` with further metrics and class weights, and a model.

  Args:
    build: The function for the model with the metrics of `of_keras`.
    built: A model that it built.
    problem: The data.
    metrics: The `metrics` of `tasks.from_arrays`; None for the default ones.
    metric: A metric that the model must have, or None.
    weights: The weight of each class in the training loss, or None.
    positive: The number of the positive one of two classes.

  Raises:
    DataError: If there is no such metric for the model, or class weights do not suit it.
  """
  outputs = models.outputs_of(built)
  if outputs is not None:
    outputs = dataclasses.replace(outputs, center=float(np.mean(problem.y)), positive=positive)
  names = [name for name in metrics or () if _is_ours(name)]
  if metrics is None and outputs is not None:
    names = _default_names(outputs)
  if metric is not None and metric not in built.metric_names:
    names.append(metric)
  change = functools.partial(_changed, build, tuple(names), outputs, weights)
  try:
    return change, change(0)
  except ValueError as error:
    raise errors.DataError(f'the model cannot be built: {error}') from error


def _changed(
  build: Callable[[int], models.Model],
  names: Sequence[str],
  outputs: models.Outputs | None,
  weights: Sequence[float] | None,
  seed: int,
) -> models.Model:
  model = models.with_metrics(build(seed), names, outputs)
  if weights is not None:
    model = models.with_class_weight(model, weights)
  return model


def _default_names(outputs: models.Outputs) -> list[str]:
  if outputs.num_labels is not None:
    if outputs.num_labels > _MOST_CLASSES:
      return []
    return ['f1_macro', 'auc_roc_macro']
  if outputs.num_classes is None:
    return ['r2']
  if outputs.num_classes == 2:
    return ['balanced_accuracy', 'f1', 'auc_roc', 'auc_pr']
  if outputs.num_classes <= _MOST_CLASSES:
    return ['balanced_accuracy', 'f1_macro']
  return []


def with_metric(task: task_lib.Task, metric: str) -> task_lib.Task:
  """Returns the task with another metric to judge by, which its model gets if it lacks it.

  `build_model` raises ValueError if there is no such metric for the model; see
  `models.with_metrics`.
  """
  build = functools.partial(_changed, task.build_model, (metric,), None, None)
  return dataclasses.replace(task, metric=metric, build_model=build)


def positive_class(positive: Any, classes: Sequence[Any] | None) -> int:
  """Returns the number of the positive class, 1 by default.

  Args:
    positive: Its label, or None.
    classes: The labels of the classes; None if the targets are no classes.

  Raises:
    DataError: If there are not two classes, or `positive` is neither.
  """
  if positive is None:
    return 1
  positive = _composed(positive)
  if classes is None or len(classes) != 2:
    raise errors.DataError(
      f'positive is {positive!r:.80}, which is for two classes, as precision, recall, F1 and the'
      ' areas under curves are: leave it out'
    )
  if positive not in classes:
    raise errors.DataError(
      f'positive is {positive!r:.80}; the classes are: {classes[0]!r}, {classes[1]!r}'
    )
  return list(classes).index(positive)


def class_weights(
  class_weight: Mapping[Any, float] | str | None,
  classes: Sequence[Any] | None,
  targets: np.ndarray,
) -> tuple[float, ...] | None:
  """Returns the weight of each class in the training loss; None for `class_weight` None.

  Args:
    class_weight: Weights by label, 1 for a label that is left out; or 'balanced', as in
      scikit-learn: n / (k n_c) for a class with n_c of the n training examples.
    classes: The labels of the classes; None if the targets are numbers.
    targets: The class numbers of the training examples of all clients.

  Raises:
    DataError: If the targets are no classes, or a label or weight is none.
  """
  if class_weight is None:
    return None
  if classes is None:
    raise errors.DataError(
      f'class_weight is {class_weight!r:.80}, but the labels are numbers to predict, or several '
      'labels of an example: leave it out'
    )
  if class_weight == 'balanced':
    counts = np.bincount(targets, minlength=len(classes))
    return models.balanced_class_weights(counts.tolist())
  if not isinstance(class_weight, Mapping):
    raise errors.DataError(
      f"class_weight is {class_weight!r:.80}; give 'balanced' or weights by label, such as"
      f' {{{classes[-1]!r}: 10.0}}'
    )
  class_weight = {_composed(label): weight for label, weight in class_weight.items()}
  unknown = [label for label in class_weight if label not in classes]
  if unknown:
    known = ', '.join(repr(label) for label in classes[:20])
    raise errors.DataError(f'class_weight has {unknown[0]!r:.80}; the classes are: {known}')
  weights = [class_weight.get(label, 1.0) for label in classes]
  try:
    return tuple(float(weight) for weight in weights)
  except (TypeError, ValueError):
    raise errors.DataError(
      f'class_weight is {class_weight!r:.80}; weights must be numbers'
    ) from None


def _composed(label: Any) -> Any:
  """Returns a label in the form that the classes have, which are composed texts."""
  if isinstance(label, str):
    return unicodedata.normalize('NFC', label)
  return label
