"""Metrics that are functions of sums over examples, such as F1, AUC and R2.

The sums of batches, and those of clients, add up. So the metric of all clients is a function of the
sums of their sums, and is not the mean of the clients' metrics.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

# (predictions, y) -> predicted and true classes, int [B] or [B, ...].
Classes: TypeAlias = Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
# (predictions, y) -> the log odds of the second class and whether it is the true one, both [B].
LogOdds: TypeAlias = Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
# (predictions, y) -> the same of k classes or labels, both [B, k] or [B, ..., k].
LogOddsByClass: TypeAlias = Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
# (predictions, y) -> which of k classes or labels are predicted and true, 0 or 1, [B, ..., k].
Indicators: TypeAlias = Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
# (predictions, y) -> predicted and true numbers, both [B, k].
Numbers: TypeAlias = Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]

# The bins of `roc_auc` and `average_precision` are equally wide in the log odds: 0.05 each. A bin
# in probabilities would hold nearly all examples if positives are rare.
BINS = 640
FARTHEST = 16.0
# Below this share of the sum of squares, the variance of targets is lost in float32's rounding.
_ROUNDING = 1e-6


@dataclasses.dataclass(frozen=True)
class SumMetric:
  """A metric of `Model` that is a function of sums over examples.

  Evaluations compute it, on pooled examples and client by client. Training does not: there a metric
  is the ratio of two sums.

  Attributes:
    size: The number K of sums.
    contribution: `(predictions, y) -> float [B, K]`, what each example adds to the sums.
    result: The metric of sums [..., K], a tensor [...] of the same dtype, float32 or float64. It is
      NaN where the metric is not defined, such as the recall without positive examples.
    is_error: Whether small values are good. The metric's name must say so too, because a name is
      all that metrics.csv has: it has a word such as 'loss' or 'error' if and only if this is True.
  """

  size: int
  contribution: Callable[..., tf.Tensor]
  result: Callable[[tf.Tensor], tf.Tensor]
  is_error: bool = False

  def value(self, sums: Any) -> np.ndarray:
    """Returns the metric of sums [..., K], computed in float64."""
    # Sums of many examples would lose units in float32.
    return np.asarray(self.result(tf.constant(sums, tf.float64)))


def counted(function: Callable, rank: int) -> Callable:
  """Makes the third argument, bool [B], of a loss or metric optional; by default it is all True.

  Args:
    function: `(predictions, y, is_counted) -> values`, of examples that their batch couples.
    rank: The number of axes of a batch's labels.
  """

  def of_counted(predictions: Any, y: tf.Tensor, counts: tf.Tensor | None = None) -> Any:
    if counts is None:
      counts = tf.ones(tf.shape(y)[: len(y.shape) - rank + 1], tf.bool)
    return function(predictions, y, counts)

  return of_counted


def counted_metric(metric: Any, rank: int) -> Any:
  """Does the same for a metric, a function or a `SumMetric`."""
  if isinstance(metric, SumMetric):
    return dataclasses.replace(metric, contribution=counted(metric.contribution, rank))
  return counted(metric, rank)


def ratio(numerator: tf.Tensor, denominator: tf.Tensor) -> tf.Tensor:
  """Returns numerator / denominator, and NaN where the denominator is not above 0."""
  is_defined = denominator > 0
  # The division is by 1 where it is not defined, so that no tool that looks for NaN stops there.
  quotient = numerator / tf.where(is_defined, denominator, tf.ones_like(denominator))
  return tf.where(is_defined, quotient, tf.cast(np.nan, quotient.dtype))


def mean_of_defined(values: tf.Tensor) -> tf.Tensor:
  """Returns the mean over the last axis of the values that are not NaN; NaN if all are."""
  is_defined = ~tf.math.is_nan(values)
  total = tf.reduce_sum(tf.where(is_defined, values, tf.zeros_like(values)), -1)
  return ratio(total, tf.reduce_sum(tf.cast(is_defined, values.dtype), -1))


def by_example(values: tf.Tensor) -> tf.Tensor:
  """Returns the sums [B, K] of values [B, ..., K], such as those of the steps of a sequence."""
  return tf.reduce_sum(values, list(range(1, values.shape.rank - 1)))


def _precision(hits: tf.Tensor, predicted: tf.Tensor, actual: tf.Tensor) -> tf.Tensor:
  del actual
  return ratio(hits, predicted)


def _recall(hits: tf.Tensor, predicted: tf.Tensor, actual: tf.Tensor) -> tf.Tensor:
  del predicted
  return ratio(hits, actual)


def _f1(hits: tf.Tensor, predicted: tf.Tensor, actual: tf.Tensor) -> tf.Tensor:
  return ratio(2 * hits, predicted + actual)


# By name, the function of three counts of a class: examples of it that were predicted as it,
# examples that were predicted as it, examples of it.
OF_COUNTS = {'precision': _precision, 'recall': _recall, 'f1': _f1}


def of_class(name: str, classes: Classes, positive: int = 1) -> SumMetric:
  """Returns precision, recall or F1 of the class with the number `positive`.

  Precision is NaN if nothing was predicted as this class, recall if no example is of it, and F1 if
  both are so.
  """

  def contribution(predictions: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    predicted, actual = (tf.cast(ids == positive, tf.float32) for ids in classes(predictions, y))
    return by_example(tf.stack([predicted * actual, predicted, actual], -1))

  def result(sums: tf.Tensor) -> tf.Tensor:
    return OF_COUNTS[name](*tf.unstack(sums, axis=-1))

  return SumMetric(3, contribution, result)


def macro(name: str, indicators: Indicators, size: int) -> SumMetric:
  """Returns the mean of precision, recall or F1 over `size` classes or labels.

  That of recall over classes is balanced accuracy. Classes for which it is not defined are left
  out, as by scikit-learn with `zero_division=nan`.
  """

  def result(sums: tf.Tensor) -> tf.Tensor:
    return mean_of_defined(OF_COUNTS[name](*tf.split(sums, 3, axis=-1)))

  return SumMetric(3 * size, _counts(indicators), result)


def micro(name: str, indicators: Indicators, size: int) -> SumMetric:
  """Returns precision, recall or F1 of `size` labels together, whose counts are added up."""

  def result(sums: tf.Tensor) -> tf.Tensor:
    counts = [tf.reduce_sum(part, -1) for part in tf.split(sums, 3, axis=-1)]
    return OF_COUNTS[name](*counts)

  return SumMetric(3 * size, _counts(indicators), result)


def _counts(indicators: Indicators) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
  """Returns a contribution: the arguments of a function of `OF_COUNTS` for each class."""

  def contribution(predictions: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    predicted, actual = indicators(predictions, y)
    return by_example(tf.concat([predicted * actual, predicted, actual], -1))

  return contribution


def _histograms(log_odds: LogOdds) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
  """Returns a contribution: the bins of the scores of positive, and then of negative examples."""

  def contribution(predictions: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return by_example(_in_bins(*log_odds(predictions, y)))

  return contribution


def _in_bins(scores: tf.Tensor, is_positive: tf.Tensor) -> tf.Tensor:
  """Returns [..., 2 * BINS] for scores [...]: a 1 in the bin of each, of the one kind or other."""
  # A score on the border of two bins belongs to the upper one.
  places = (tf.clip_by_value(scores, -FARTHEST, FARTHEST) + FARTHEST) * (BINS / 2 / FARTHEST)
  bins = tf.minimum(tf.cast(tf.floor(places), tf.int32), BINS - 1)
  in_bin = tf.one_hot(bins, BINS)
  positive = tf.cast(is_positive, tf.float32)[..., tf.newaxis]
  return tf.concat([in_bin * positive, in_bin * (1 - positive)], -1)


def roc_auc(log_odds: LogOdds) -> SumMetric:
  """Returns the area under the ROC curve for two classes, from scores in `BINS` bins.

  It is the share of pairs of a positive and a negative example in which the positive one has the
  higher score; pairs in one bin count one half. Its error is at most half the share of the pairs
  that are in one bin; `auc_error_bound` computes it. NaN without positive or negative examples.
  """

  return SumMetric(2 * BINS, _histograms(log_odds), _roc_area)


def _roc_area(sums: tf.Tensor) -> tf.Tensor:
  positive, negative = tf.split(sums, 2, axis=-1)
  # The first bin has the lowest scores.
  below = tf.cumsum(negative, axis=-1, exclusive=True)
  won = tf.reduce_sum(positive * (below + negative / 2), -1)
  return ratio(won, tf.reduce_sum(positive, -1) * tf.reduce_sum(negative, -1))


def average_precision(log_odds: LogOdds) -> SumMetric:
  """Returns the area under the precision-recall curve for two classes, from scores in `BINS` bins.

  As in scikit-learn it is the sum over thresholds of the precision times the increase of the
  recall; the scores of a bin count as one score. NaN without positive examples.
  """

  return SumMetric(2 * BINS, _histograms(log_odds), _precision_recall_area)


def _precision_recall_area(sums: tf.Tensor) -> tf.Tensor:
  positive, negative = tf.split(sums, 2, axis=-1)
  hits = tf.cumsum(positive, axis=-1, reverse=True)
  predicted = hits + tf.cumsum(negative, axis=-1, reverse=True)
  precision = tf.math.divide_no_nan(hits, predicted)  # Without examples its factor is 0.
  return ratio(tf.reduce_sum(positive * precision, -1), tf.reduce_sum(positive, -1))


_AREAS = {'roc': _roc_area, 'pr': _precision_recall_area}


def macro_area(curve: str, by_class: LogOddsByClass, size: int) -> SumMetric:
  """Returns the mean over classes, each against all others, or over labels, of a binned area.

  Classes for which the area is not defined are left out.

  Args:
    curve: 'roc' for `roc_auc`, 'pr' for `average_precision`.
    by_class: The function of predictions and y.
    size: The number k of classes or labels.
  """

  def contribution(predictions: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    in_bins = _in_bins(*by_class(predictions, y))
    flat = tf.concat([tf.shape(in_bins)[:-2], [size * 2 * BINS]], 0)
    return by_example(tf.reshape(in_bins, flat))

  def result(sums: tf.Tensor) -> tf.Tensor:
    shape = tf.concat([tf.shape(sums)[:-1], [size, 2 * BINS]], 0)
    return mean_of_defined(_AREAS[curve](tf.reshape(sums, shape)))

  return SumMetric(size * 2 * BINS, contribution, result)


def auc_error_bound(sums: Any, curve: str) -> float:
  """Returns by how much a binned area can differ at most from the one of the exact scores.

  Args:
    sums: The sums [2 * BINS] of `roc_auc` or `average_precision`. Scores beyond the outermost bins
      count as if they were in them.
    curve: 'roc' or 'pr'.

  Returns:
    The bound. With P_b positive and N_b negative examples in bin b, P and N in all, and TP_b and
    A_b positive and all examples in the bins above b, it is sum_b P_b N_b / (2 P N) for 'roc', and
    sum_b P_b / P ((TP_b + P_b) / (A_b + P_b) - (TP_b + 1) / (A_b + N_b + 1)) for 'pr': within a bin
    a positive example has at best all others of the bin below it, and at worst above it.
  """
  positive, negative = np.split(np.asarray(sums, np.float64), 2)
  if curve == 'roc':
    return float((positive * negative).sum() / (2 * positive.sum() * negative.sum()))
  # The highest bin is first.
  positive = positive[::-1]
  negative = negative[::-1]
  hits = np.cumsum(positive) - positive
  above = hits + np.cumsum(negative) - negative
  has_positive = positive > 0
  best = (hits + positive) / np.maximum(above + positive, 1)
  worst = (hits + 1) / (above + negative + 1)
  return float((positive * (best - worst))[has_positive].sum() / positive.sum())


def r2(numbers: Numbers, size: int, center: float = 0.0) -> SumMetric:
  """Returns R2, the share of the targets' variance that predictions explain, the mean over outputs.

  Args:
    numbers: The function of predictions and y.
    size: The number k of outputs.
    center: A number near the targets' mean. In exact arithmetic it does not matter; in float32 it
      keeps digits if the mean is large compared with the deviation.

  Returns:
    The metric. It is NaN for fewer than two examples or for targets without variance.
  """

  def contribution(predictions: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    predicted, actual = numbers(predictions, y)
    # Else the squares below would cancel in float32 where the mean is large.
    deviation = actual - tf.cast(center, actual.dtype)
    squared_error = tf.math.squared_difference(actual, predicted)
    count = tf.ones_like(deviation[:, :1])
    return tf.concat([count, deviation, deviation**2, squared_error], -1)

  def result(sums: tf.Tensor) -> tf.Tensor:
    count, deviations, squares, errors = tf.split(sums, [1, size, size, size], axis=-1)
    variation = squares - ratio(deviations**2, count)
    has_variance = (count > 1) & (variation > _ROUNDING * squares)
    # `ratio` makes NaN of the zeros.
    variation = tf.where(has_variance, variation, tf.zeros_like(variation))
    return tf.reduce_mean(1 - ratio(errors, variation), -1)

  return SumMetric(1 + 3 * size, contribution, result)


def root_mean_squared_error(numbers: Numbers) -> SumMetric:
  """Returns the square root of the mean squared error over examples and outputs."""

  def contribution(predictions: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    squared_error = tf.math.squared_difference(*numbers(predictions, y))
    sums = [squared_error, tf.ones_like(squared_error)]
    return tf.stack([tf.reduce_sum(values, -1) for values in sums], -1)

  def result(sums: tf.Tensor) -> tf.Tensor:
    return tf.sqrt(ratio(sums[..., 0], sums[..., 1]))

  return SumMetric(2, contribution, result, is_error=True)
