"""Predictions without a model, which a model should beat: the most frequent class, or the mean."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tff_adaptive import models
from tff_adaptive_tasks import errors, task as task_lib

_MOST_CLIENTS = 1000  # Of more clients, the labels of the first ones are counted.


@dataclasses.dataclass(frozen=True)
class Baseline:
  """A constant prediction and its metrics on the validation data.

  Attributes:
    prediction: What is predicted, such as "'no'" or '3.2'.
    text: What that is, such as 'the most frequent class (94.5 % of the training examples)'.
    metrics: The values by name. A metric that is not defined, such as the precision of a class that
      is never predicted, is NaN.
  """

  prediction: str
  text: str
  metrics: dict[str, float]


def of_task(task: task_lib.Task, model: models.Model) -> Baseline | None:
  """Returns the constant prediction of a task.

  For classes all examples have the classes' shares in training as probabilities, so that the most
  frequent class is predicted. For numbers the mean of the training targets is predicted, and for
  several labels the more frequent value of each.

  Args:
    task: The task. The labels of at most 1,000 training clients are used.
    model: Its model, with the metrics to compute.

  Returns:
    The baseline; None if it is not known what the model's predictions mean.

  Raises:
    DataError: If a training label is none of the model's classes.
  """
  outputs = models.outputs_of(model)
  if outputs is None or task.validation['y'].dtype.kind not in 'biuf':
    return None
  targets = _targets(task)
  clients = 'the training examples'
  if len(task.train.client_ids) > _MOST_CLIENTS:
    clients = f'the examples of {_MOST_CLIENTS:,} clients'
  if outputs.num_labels is not None:
    shares = targets.mean(0, dtype=np.float64)
    prediction = ', '.join(str(int(share > 0.5)) for share in shares)
    text = f'the more frequent value of each label in {clients}'
    metrics = models.evaluate_constant(model, outputs.constant(shares.tolist()), task.validation)
    return Baseline(prediction, text, metrics)
  if outputs.num_classes is None:
    mean = targets.mean(0, dtype=np.float64)
    prediction = ', '.join(f'{number:.4g}' for number in np.ravel(mean))
    metrics = models.evaluate_constant(model, mean, task.validation)
    return Baseline(prediction, f'the mean of {clients}', metrics)
  # One-hot targets become class numbers.
  if targets.ndim == 2 and targets.shape[1] == outputs.num_classes > 1:
    targets = targets.argmax(1)
  least, largest = targets.min(), targets.max()
  if least < 0 or largest >= outputs.num_classes:
    raise errors.DataError(
      f'{task.name}: the labels of the training clients are {least:.6g} to {largest:.6g}, but'
      f' the model has the classes 0 to {outputs.num_classes - 1}: correct the labels, or give the'
      ' model more outputs'
    )
  counts = np.bincount(targets.astype(int).ravel(), minlength=outputs.num_classes)
  shares = counts / counts.sum()
  most = int(counts.argmax())
  labels: Any = getattr(task.preparation, 'classes', None)
  name = most if labels is None else labels[most]
  text = f'the most frequent class ({100 * shares[most]:.1f} % of {clients})'
  metrics = models.evaluate_constant(model, outputs.constant(shares.tolist()), task.validation)
  return Baseline(repr(name), text, metrics)


def _targets(task: task_lib.Task) -> np.ndarray:
  ids: Sequence[str] = task.train.client_ids[:_MOST_CLIENTS]
  return np.concatenate([task.train.load(client)['y'] for client in ids])
