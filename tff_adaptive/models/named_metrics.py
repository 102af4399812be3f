"""Metrics by name, such as 'f1' and 'auc_pr', for a model whose outputs are known."""

import copy
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from tff_adaptive.models import evaluation, model as model_lib, sum_metrics

Metric: TypeAlias = model_lib.MetricFn | sum_metrics.SumMetric

OF_TWO_CLASSES = ('precision', 'recall', 'f1', 'auc_roc', 'auc_pr')
OF_CLASSES = (
  'accuracy',
  'balanced_accuracy',
  'precision_macro',
  'recall_macro',
  'f1_macro',
  'auc_roc_macro',
  'auc_pr_macro',
  'top_K_accuracy',
)
OF_LABELS = (
  'accuracy',
  'exact_match',
  'precision_macro',
  'recall_macro',
  'f1_macro',
  'precision_micro',
  'recall_micro',
  'f1_micro',
  'auc_roc_macro',
  'auc_pr_macro',
)
OF_NUMBERS = (
  'mean_absolute_error',
  'mean_squared_error',
  'root_mean_squared_error',
  'r2',
  'quantile_loss_Q',
)
_TOP = re.compile(r'top_([1-9]\d*)_accuracy')
_AREAS = {'auc_roc_macro': 'roc', 'auc_pr_macro': 'pr'}
_QUANTILE = re.compile(r'quantile_loss_(0?\.\d+)')


@dataclasses.dataclass(frozen=True)
class Outputs:
  """What a model's predictions and targets mean.

  Attributes:
    num_classes: The number of classes; None if numbers, or several labels, are predicted.
    are_probabilities: Whether predictions are probabilities; else they are scores (logits).
    threshold: For two classes and a single output: an output above it means class 1. None if there
      is an output for each class. For several labels: an output above it means 1.
    num_numbers: The number of numbers that are predicted for an example.
    target_rank: The number of axes of a batch of predicted numbers, 1 for [B].
    center: A number near the mean of targets that are numbers; see `sum_metrics.r2`.
    positive: Which of two classes is the positive one, 0 or 1.
    num_labels: The number of labels of 0 and 1 that do not exclude each other; None if there are
      none.
  """

  num_classes: int | None = None
  are_probabilities: bool = False
  threshold: float | None = None
  num_numbers: int = 1
  target_rank: int = 1
  center: float = 0.0
  positive: int = 1
  num_labels: int | None = None

  def classes(self, predictions: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the predicted and the true classes, int32 [B] or [B, ...]."""
    if self.threshold is not None:
      predicted = _without_last(predictions) > self.threshold
      return tf.cast(predicted, tf.int32), tf.cast(_without_last(y), tf.int32)
    return tf.argmax(predictions, -1, output_type=tf.int32), self.labels(predictions, y)

  def labels(self, predictions: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Returns the true classes, int32, of class numbers or one-hot targets."""
    if y.shape.rank == predictions.shape.rank:
      if y.shape[-1] != 1:  # One-hot.
        return tf.argmax(y, -1, output_type=tf.int32)
      y = y[..., 0]
    return tf.cast(y, tf.int32)

  def log_odds(self, predictions: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the log odds of the positive of two classes, and whether that is the true class."""
    _, actual = self.classes(predictions, y)
    scores = self._log_odds_of_second(predictions)
    if self.positive == 0:
      scores = -scores
    return scores, actual == self.positive

  def _log_odds_of_second(self, predictions: tf.Tensor) -> tf.Tensor:
    """Returns the log odds of the second of two classes."""
    if self.threshold is not None:
      return _without_last(self._log_odds_of_outputs(predictions))
    scores = self._scores(predictions)
    return scores[..., 1] - scores[..., 0]

  def _log_odds_of_outputs(self, predictions: tf.Tensor) -> tf.Tensor:
    """Returns the log odds that each output, alone, stands for."""
    scores = self._scores(predictions)
    if not self.are_probabilities:
      return scores
    return scores - self._scores(1 - tf.cast(predictions, tf.float32))

  def _scores(self, predictions: tf.Tensor) -> tf.Tensor:
    """Returns scores, float32, or the logarithms of probabilities."""
    predictions = tf.cast(predictions, tf.float32)
    if not self.are_probabilities:
      return predictions
    # A probability that float32 has rounded to 0 or 1 goes to an outermost bin.
    return tf.math.log(tf.maximum(predictions, np.finfo(np.float32).tiny))

  def by_class(self, predictions: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the log odds of each class against all others, and whether it is the true one.

    Both are [B, ..., k]; for several labels they are those of each label.
    """
    if self.num_labels is not None:
      return self._log_odds_of_outputs(predictions), y > 0.5
    _, actual = self.classes(predictions, y)
    is_class = tf.one_hot(actual, self.num_classes or 0, True, False)
    if self.threshold is not None:
      second = self._log_odds_of_second(predictions)
      return tf.stack([-second, second], -1), is_class
    scores = self._scores(predictions)
    # Row c has the scores of the classes other than c.
    others = scores[..., tf.newaxis, :] - tf.linalg.diag(tf.fill([self.num_classes or 0], np.inf))
    return scores - tf.reduce_logsumexp(others, -1), is_class

  def indicators(self, predictions: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns for several labels the predicted and the true ones, float32 [..., k] of 0 and 1."""
    return tf.cast(predictions > self.threshold, tf.float32), tf.cast(y > 0.5, tf.float32)

  def one_hot(self, predictions: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the predicted and the true classes, float32 [..., k], one-hot."""
    predicted, actual = self.classes(predictions, y)
    size = self.num_classes or 0
    return tf.one_hot(predicted, size), tf.one_hot(actual, size)

  def numbers(self, predictions: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns predicted and true numbers, float32 and of one shape."""
    predictions = tf.cast(predictions, tf.float32)
    y = tf.cast(y, tf.float32)
    if predictions.shape.rank == y.shape.rank + 1:
      return predictions[..., 0], y
    if y.shape.rank == predictions.shape.rank + 1:
      return predictions, y[..., 0]
    return predictions, y

  def rows(self, predictions: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns predicted and true numbers, float32 [B, k]."""
    predicted, actual = self.numbers(predictions, y)
    shape = [-1, self.num_numbers]
    return tf.reshape(predicted, shape), tf.reshape(actual, shape)

  def constant(self, shares: Sequence[float]) -> np.ndarray:
    """Returns the outputs, float32 [classes], [1] or [labels], that give each class its share.

    Metrics of this constant prediction are a baseline: the most frequent class is predicted. For
    several labels the shares are those of the examples that have a label.
    """
    tiny = np.finfo(np.float32).tiny
    # A class that training has not has a finite score all the same.
    probabilities = np.maximum(np.asarray(shares, np.float64), tiny)
    if self.threshold is not None:
      if self.num_labels is None:
        probabilities = probabilities[1:]
      if not self.are_probabilities:
        return np.log(probabilities / np.maximum(1 - probabilities, tiny)).astype(np.float32)
    elif not self.are_probabilities:
      return np.log(probabilities).astype(np.float32)
    return probabilities.astype(np.float32)


def named(name: str, outputs: Outputs) -> Metric:
  """Returns the metric of a name.

  Args:
    name: For classes 'accuracy', 'balanced_accuracy', 'precision_macro', 'recall_macro',
      'f1_macro', 'auc_roc_macro', 'auc_pr_macro' (each class against the others) or
      'top_K_accuracy', such as 'top_5_accuracy'. For two classes also 'precision', 'recall' and
      'f1' of the positive class, 'auc_roc' and 'auc_pr'. For several labels 'accuracy' (the share
      of right labels), 'exact_match' (all of an example are right), precision, recall and F1 as
      '..._macro' (mean over labels) or '..._micro' (of all labels together), and the areas as
      '..._macro'. For numbers 'mean_absolute_error', 'mean_squared_error',
      'root_mean_squared_error', 'r2' or 'quantile_loss_Q', the loss of quantile Q, such as
      'quantile_loss_0.9'.
    outputs: What the model's predictions mean.

  Raises:
    ValueError: If there is no such metric for these outputs.
  """
  metric: Metric | None
  if outputs.num_labels is not None:
    metric = _of_labels(name, outputs, outputs.num_labels)
  elif outputs.num_classes is None:
    metric = _of_numbers(name, outputs)
  else:
    metric = _of_classes(name, outputs, outputs.num_classes)
  if metric is None:
    raise ValueError(f'{name!r:.80} is no metric here; {_choice(outputs)}')
  return metric


def is_name(name: object) -> bool:
  """Returns whether this is the name of a metric of `named`, for whatever outputs."""
  if not isinstance(name, str):
    return False
  is_pattern = bool(_TOP.fullmatch(name) or _QUANTILE.fullmatch(name))
  return is_pattern or name in {*OF_TWO_CLASSES, *OF_CLASSES, *OF_LABELS, *OF_NUMBERS}


def _choice(outputs: Outputs) -> str:
  """Returns the last half of an error message: the names that there are."""
  if outputs.num_labels is not None:
    return f'for several labels there are: {", ".join(OF_LABELS)}'
  if outputs.num_classes is None:
    return f'for numbers there are: {", ".join(OF_NUMBERS)} (Q is between 0 and 1)'
  if outputs.num_classes == 2:
    return f'for two classes there are: {", ".join([*OF_TWO_CLASSES, *OF_CLASSES])} (K is a number)'
  return (
    f'for {outputs.num_classes} classes there are: {", ".join(OF_CLASSES)} (K is a number);'
    f' {", ".join(OF_TWO_CLASSES)} are for two classes'
  )


def _of_classes(name: str, outputs: Outputs, num_classes: int) -> Metric | None:
  base, _, suffix = name.partition('_')
  if name == 'accuracy':
    return _hits(outputs)
  if name == 'balanced_accuracy':
    return sum_metrics.macro('recall', outputs.one_hot, num_classes)
  if suffix == 'macro' and base in sum_metrics.OF_COUNTS:
    return sum_metrics.macro(base, outputs.one_hot, num_classes)
  if name in _AREAS:
    return sum_metrics.macro_area(_AREAS[name], outputs.by_class, num_classes)
  top = _TOP.fullmatch(name)
  if top is not None and int(top[1]) < num_classes and outputs.threshold is None:
    return _top(int(top[1]), outputs)
  if num_classes != 2:
    return None
  if name in sum_metrics.OF_COUNTS:
    return sum_metrics.of_class(name, outputs.classes, outputs.positive)
  if name == 'auc_roc':
    return sum_metrics.roc_auc(outputs.log_odds)
  if name == 'auc_pr':
    return sum_metrics.average_precision(outputs.log_odds)
  return None


def _of_labels(name: str, outputs: Outputs, num_labels: int) -> Metric | None:
  base, _, suffix = name.partition('_')
  if name in ('accuracy', 'exact_match'):
    return _right_labels(outputs, tf.reduce_mean if name == 'accuracy' else tf.reduce_min)
  if name in _AREAS:
    return sum_metrics.macro_area(_AREAS[name], outputs.by_class, num_labels)
  if base not in sum_metrics.OF_COUNTS:
    return None
  if suffix == 'macro':
    return sum_metrics.macro(base, outputs.indicators, num_labels)
  if suffix == 'micro':
    return sum_metrics.micro(base, outputs.indicators, num_labels)
  return None


def _of_numbers(name: str, outputs: Outputs) -> Metric | None:
  if name == 'mean_absolute_error':
    return _mean_of(outputs, lambda predicted, actual: tf.abs(predicted - actual))
  if name == 'mean_squared_error':
    return _mean_of(outputs, tf.math.squared_difference)
  if name == 'root_mean_squared_error':
    return sum_metrics.root_mean_squared_error(outputs.rows)
  if name == 'r2':
    return sum_metrics.r2(outputs.rows, outputs.num_numbers, outputs.center)
  quantile = _QUANTILE.fullmatch(name)
  if quantile is None or float(quantile[1]) == 0:
    return None
  q = float(quantile[1])

  def pinball(predicted: tf.Tensor, actual: tf.Tensor) -> tf.Tensor:
    above = actual - predicted
    return tf.maximum(q * above, (q - 1) * above)

  return _mean_of(outputs, pinball)


def _hits(outputs: Outputs) -> model_lib.MetricFn:
  def hits(predictions: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, None]:
    predicted, actual = outputs.classes(predictions, y)
    return tf.cast(predicted == actual, tf.float32), None

  return hits


def _right_labels(outputs: Outputs, reduce: Callable[..., tf.Tensor]) -> model_lib.MetricFn:
  def right(predictions: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, None]:
    predicted, actual = outputs.indicators(predictions, y)
    return reduce(tf.cast(predicted == actual, tf.float32), -1), None

  return right


def _top(k: int, outputs: Outputs) -> model_lib.MetricFn:
  """Returns the share of examples with fewer than k scores above that of the true class."""

  def hits(predictions: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, None]:
    # Not a sort: a tie with the true class does not count against it.
    actual = tf.one_hot(outputs.labels(predictions, y), outputs.num_classes, True, False)
    score = tf.reduce_max(tf.where(actual, predictions, predictions.dtype.min), -1, keepdims=True)
    above = tf.reduce_sum(tf.cast(predictions > score, tf.float32), -1)
    return tf.cast(above < k, tf.float32), None

  return hits


def _mean_of(
  outputs: Outputs, error: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
) -> model_lib.MetricFn:
  def mean(predictions: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, None]:
    errors = error(*outputs.numbers(predictions, y))
    # From the end, as groups of clients have an axis before that of examples.
    axes = list(range(1 - outputs.target_rank, 0))
    return tf.reduce_mean(errors, axes), None

  return mean


def with_metrics(
  model: model_lib.Model,
  metrics: Sequence[str] | Mapping[str, Metric],
  outputs: Outputs | None = None,
) -> model_lib.Model:
  """Returns a copy of the model that has further metrics.

  TFF's own algorithms and evaluations do not see these metrics.

  Args:
    model: The model.
    metrics: Names, as for `named`, or metrics by name. Those that the model has stay as they are.
    outputs: What the model's predictions mean; by default what the model says or, for a classifier
      with the metric `models.accuracy`, scores of classes.

  Raises:
    ValueError: If there is no such metric for the model.
  """
  known: dict[str, Metric] = {}
  if isinstance(metrics, Mapping):
    known.update(metrics)
  new = [name for name in metrics if name not in model.metric_names]
  if new and model.couples_examples:
    raise ValueError(f'{new[0]!r}: the metrics of a model that couples examples are fixed')
  for name in new:
    if name not in known:
      outputs = outputs or outputs_of(model)
      if outputs is None:
        raise ValueError(
          f'{name!r:.80} is no metric of this model, which has {", ".join(model.metric_names)}, and'
          ' what its outputs mean is not known: give one of these, or a model with outputs='
        )
      known[name] = named(name, outputs)
  # A copy, because a task may give the model without these metrics to others.
  extended = copy.copy(model)
  extended.outputs = outputs or model.outputs
  extended.set_metrics({**model.metric_fns, **model.sum_metrics, **{n: known[n] for n in new}})
  return extended


def outputs_of(model: model_lib.Model) -> Outputs | None:
  """Returns what a model's predictions mean; None if that is not known."""
  if model.outputs is not None:
    return model.outputs
  if model.metric_fns.get('accuracy') is not model_lib.accuracy:
    return None
  # `accuracy` takes the scores of classes, so it says all but their number.
  return Outputs(num_classes=int(evaluation.example_outputs(model).shape[-1]))


def _without_last(values: tf.Tensor) -> tf.Tensor:
  """Removes a last axis of size 1, as an output has in [B, 1]."""
  if values.shape.rank > 1 and values.shape[-1] == 1:
    return values[..., 0]
  return values
