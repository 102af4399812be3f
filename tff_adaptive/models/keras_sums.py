"""Converts metrics of Keras whose state is a sum, such as AUC and F1Score, to `SumMetric`."""

from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow as tf

from tff_adaptive._utils import private_apis
from tff_adaptive.models import sum_metrics

# (targets, output) -> the values of a batch.
_Values: TypeAlias = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]

_METRICS = tf.keras.metrics
_COUNTS = {
  _METRICS.TruePositives: 'true positives',
  _METRICS.TrueNegatives: 'true negatives',
  _METRICS.FalsePositives: 'false positives',
  _METRICS.FalseNegatives: 'false negatives',
}
_IOUS = (
  _METRICS.MeanIoU,
  _METRICS.IoU,
  _METRICS.BinaryIoU,
  _METRICS.OneHotIoU,
  _METRICS.OneHotMeanIoU,
)
CONVERTED = (
  _METRICS.AUC,
  _METRICS.Precision,
  _METRICS.Recall,
  _METRICS.F1Score,
  _METRICS.FBetaScore,
  *_COUNTS,
  *_IOUS,
  _METRICS.RootMeanSquaredError,
  _METRICS.R2Score,
)
NAMES = ', '.join(kind.__name__ for kind in CONVERTED)


def converted(metric: Any, what: str, output_shape: tf.TensorShape) -> sum_metrics.SumMetric | None:
  """Returns a metric of Keras as a `SumMetric` with the same value; None if it is another metric.

  Where Keras gives 0 for 0 / 0, the metric is NaN.

  Args:
    metric: The metric. An object of a subclass counts as another metric.
    what: The metric in words, for error messages.
    output_shape: The shape of the model's output.

  Raises:
    ValueError: If the metric has an option that is not supported here.
  """
  # Not isinstance: a subclass may compute something else.
  kind = type(metric)
  if kind is _METRICS.AUC:
    return _auc(metric, what)
  if kind in (_METRICS.Precision, _METRICS.Recall) or kind in _COUNTS:
    return _of_confusion(metric, what)
  if kind in (_METRICS.F1Score, _METRICS.FBetaScore):
    return _f_score(metric, what, output_shape)
  if kind in _IOUS:
    return _iou(metric)
  if kind is _METRICS.RootMeanSquaredError:
    return sum_metrics.root_mean_squared_error(_rows)
  if kind is _METRICS.R2Score:
    return _r2(metric, what, output_shape)
  return None


def _refused(what: str, option: str, instead: str) -> ValueError:
  return ValueError(f'{what} has {option}, which is not supported here: {instead}')


def _same_shape(y: tf.Tensor, predictions: tf.Tensor, what: str) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns float32 targets and outputs of one shape, [B, ...]."""
  y = tf.cast(y, tf.float32)
  predictions = tf.cast(predictions, tf.float32)
  # As Keras's `fit` does for a single output.
  if predictions.shape.rank == y.shape.rank + 1 and predictions.shape[-1] == 1:
    y = y[..., tf.newaxis]
  if not y.shape.is_compatible_with(predictions.shape):
    raise ValueError(
      f'{what} compares each output with a target of its own, but targets have the shape'
      f' {list(y.shape)} and outputs {list(predictions.shape)}: give a metric by name, such as'
      " 'f1_macro', or one-hot targets"
    )
  return y, predictions


def _per_example(values: tf.Tensor) -> tf.Tensor:
  """Returns values [B, ...] as [B, n]."""
  size = values.shape[1:].num_elements()
  # A batch may be empty, and then nothing could be inferred from -1.
  if size is None:
    size = -1
  return tf.reshape(values, [tf.shape(values)[0], size])


def _of_confusion(metric: Any, what: str) -> sum_metrics.SumMetric:
  """Returns precision, recall, or a count of the confusion matrix, at one threshold."""
  if getattr(metric, 'top_k', None) is not None:
    raise _refused(what, f'top_k={metric.top_k}', 'leave it out')
  thresholds = list(metric.thresholds)
  if len(thresholds) != 1:
    raise _refused(what, f'{len(thresholds)} thresholds', 'give a metric for each')
  threshold = thresholds[0]
  class_id = getattr(metric, 'class_id', None)

  def contribution(predictions: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    y, predictions = _same_shape(y, predictions, what)
    if class_id is not None:
      y = y[..., class_id]
      predictions = predictions[..., class_id]
    is_positive = tf.cast(_per_example(y) != 0, tf.float32)
    is_predicted = tf.cast(_per_example(predictions) > threshold, tf.float32)
    # Sequences and several outputs count as so many examples, as in Keras.
    cells = [
      is_predicted * is_positive,
      is_predicted * (1 - is_positive),
      (1 - is_predicted) * is_positive,
      (1 - is_predicted) * (1 - is_positive),
    ]
    return tf.stack([tf.reduce_sum(cell, -1) for cell in cells], -1)

  kind = type(metric)

  def result(sums: tf.Tensor) -> tf.Tensor:
    hits, false_alarms, misses, others = tf.unstack(sums, axis=-1)
    if kind is _METRICS.Precision:
      return sum_metrics.ratio(hits, hits + false_alarms)
    if kind is _METRICS.Recall:
      return sum_metrics.ratio(hits, hits + misses)
    counts = {
      'true positives': hits,
      'false positives': false_alarms,
      'false negatives': misses,
      'true negatives': others,
    }
    return counts[_COUNTS[kind]]

  is_error = kind in (_METRICS.FalsePositives, _METRICS.FalseNegatives)
  return sum_metrics.SumMetric(4, contribution, result, is_error)


def _auc(metric: Any, what: str) -> sum_metrics.SumMetric:
  """Returns Keras's AUC, from the numbers of scores between its thresholds."""
  if metric.multi_label:
    raise _refused(what, 'multi_label=True', 'leave it out, and all outputs are counted together')
  thresholds = [float(threshold) for threshold in metric.thresholds]
  num_bins = len(thresholds) + 1
  curve = metric.curve.value
  method = metric.summation_method.value
  from_logits = private_apis.takes_logits(metric)

  def contribution(predictions: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    y, predictions = _same_shape(y, predictions, what)
    if from_logits:
      predictions = tf.sigmoid(predictions)
    scores = _per_example(predictions)
    is_positive = _per_example(y)[..., tf.newaxis]
    # A score counts as positive at the thresholds below it.
    below = tf.searchsorted(tf.constant(thresholds), tf.reshape(scores, [-1]), side='left')
    in_bin = tf.one_hot(tf.reshape(below, tf.shape(scores)), num_bins)
    parts = tf.concat([in_bin * is_positive, in_bin * (1 - is_positive)], -1)
    return sum_metrics.by_example(parts)

  def result(sums: tf.Tensor) -> tf.Tensor:
    positive, negative = tf.split(sums, 2, axis=-1)
    # By threshold, how many scores are above it.
    hits = tf.cumsum(positive, axis=-1, reverse=True)[..., 1:]
    false_alarms = tf.cumsum(negative, axis=-1, reverse=True)[..., 1:]
    num_positive = tf.reduce_sum(positive, -1, keepdims=True)
    num_negative = tf.reduce_sum(negative, -1, keepdims=True)
    recall = sum_metrics.ratio(hits, num_positive)
    if curve == 'ROC':
      return _area(sum_metrics.ratio(false_alarms, num_negative), recall, method)
    if method != 'interpolation':
      return _area(recall, tf.math.divide_no_nan(hits, hits + false_alarms), method)
    return _interpolated(hits, false_alarms, num_positive[..., 0])

  return sum_metrics.SumMetric(2 * num_bins, contribution, result)


def _area(x: tf.Tensor, y: tf.Tensor, method: str) -> tf.Tensor:
  """Returns the area below a curve whose points are in descending order of x."""
  left = y[..., 1:]
  right = y[..., :-1]
  height = (left + right) / 2
  if method == 'minoring':
    height = tf.minimum(left, right)
  if method == 'majoring':
    height = tf.maximum(left, right)
  return tf.reduce_sum((x[..., :-1] - x[..., 1:]) * height, -1)


def _interpolated(hits: tf.Tensor, false_alarms: tf.Tensor, num_positive: tf.Tensor) -> tf.Tensor:
  """Returns the area of a precision-recall curve as Keras interpolates it (Davis, Goadrich, 2006).

  Between thresholds true positives are linear in the number of predicted positives.
  """
  predicted = hits + false_alarms
  more_hits = hits[..., :-1] - hits[..., 1:]
  more_predicted = predicted[..., :-1] - predicted[..., 1:]
  slope = tf.math.divide_no_nan(more_hits, more_predicted)
  intercept = hits[..., 1:] - slope * predicted[..., 1:]
  is_between = (predicted[..., :-1] > 0) & (predicted[..., 1:] > 0)
  quotient = tf.math.divide_no_nan(predicted[..., :-1], predicted[..., 1:])
  quotient = tf.where(is_between, quotient, tf.ones_like(quotient))
  areas = slope * (more_hits + intercept * tf.math.log(quotient))
  return sum_metrics.ratio(tf.reduce_sum(areas, -1), num_positive)


def _f_score(metric: Any, what: str, output_shape: tf.TensorShape) -> sum_metrics.SumMetric:
  """Returns Keras's F score, for outputs [B, classes]."""
  if metric.average is None:
    raise _refused(what, 'average=None', "give 'macro', 'micro' or 'weighted'")
  size = 1
  if output_shape.rank > 1:
    size = output_shape[-1]
  average = metric.average
  threshold = metric.threshold
  square = float(metric.beta) ** 2

  def contribution(predictions: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    y, predictions = _same_shape(y, predictions, what)
    y = tf.reshape(y, [-1, size])
    predictions = tf.reshape(predictions, [-1, size])
    if threshold is None:
      highest = tf.reduce_max(predictions, -1, keepdims=True)
      # As in Keras, an output of 0 is never predicted.
      is_predicted = (predictions >= highest) & (tf.abs(predictions) > 1e-9)
    else:
      is_predicted = predictions > threshold
    predicted = tf.cast(is_predicted, tf.float32)
    return tf.concat([predicted * y, predicted, y], -1)

  def result(sums: tf.Tensor) -> tf.Tensor:
    hits, predicted, actual = tf.split(sums, 3, axis=-1)
    weights = actual
    if average == 'micro':
      hits = tf.reduce_sum(hits, -1, keepdims=True)
      predicted = tf.reduce_sum(predicted, -1, keepdims=True)
      actual = tf.reduce_sum(actual, -1, keepdims=True)
    scores = tf.math.divide_no_nan((1 + square) * hits, square * actual + predicted)
    if average == 'weighted':
      return sum_metrics.ratio(tf.reduce_sum(scores * weights, -1), tf.reduce_sum(weights, -1))
    # Keras's mean counts a class that is nowhere as 0. If all are so, there is no score.
    is_defined = tf.reduce_sum(actual + predicted, -1) > 0
    mean = tf.reduce_mean(scores, -1)
    return tf.where(is_defined, mean, tf.fill(tf.shape(mean), tf.cast(float('nan'), mean.dtype)))

  return sum_metrics.SumMetric(3 * size, contribution, result)


def _iou(metric: Any) -> sum_metrics.SumMetric:
  """Returns Keras's intersection over union, the mean over classes, from the confusion matrix."""
  size = metric.num_classes
  targets = list(metric.target_class_ids)
  threshold = getattr(metric, 'threshold', None)

  def contribution(predictions: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    if not metric.sparse_y_true:
      y = tf.argmax(y, axis=metric.axis)
    if threshold is not None:
      predictions = predictions >= threshold
    elif not metric.sparse_y_pred:
      predictions = tf.argmax(predictions, axis=metric.axis)
    actual = tf.cast(_per_example(y), tf.int32)
    predicted = tf.cast(_per_example(predictions), tf.int32)
    rows = tf.one_hot(actual, size)
    if metric.ignore_class is not None:
      is_counted = tf.cast(actual != metric.ignore_class, tf.float32)
      rows *= is_counted[..., tf.newaxis]
    # One matrix for each example, because a batch may hold examples of several clients.
    matrix = tf.einsum('bni,bnj->bij', rows, tf.one_hot(predicted, size))
    return tf.reshape(matrix, [-1, size * size])

  def result(sums: tf.Tensor) -> tf.Tensor:
    matrix = tf.reshape(sums, tf.concat([tf.shape(sums)[:-1], [size, size]], 0))
    hits = tf.linalg.diag_part(matrix)
    union = tf.reduce_sum(matrix, -1) + tf.reduce_sum(matrix, -2) - hits
    return sum_metrics.mean_of_defined(tf.gather(sum_metrics.ratio(hits, union), targets, axis=-1))

  return sum_metrics.SumMetric(size * size, contribution, result)


def _rows(predictions: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns predicted and true numbers [B, k]."""
  y, predictions = _same_shape(y, predictions, 'the metric')
  return _per_example(predictions), _per_example(y)


def _r2(metric: Any, what: str, output_shape: tf.TensorShape) -> sum_metrics.SumMetric:
  if metric.class_aggregation != 'uniform_average':
    option = f'class_aggregation={metric.class_aggregation!r}'
    raise _refused(what, option, "give 'uniform_average'")
  if metric.num_regressors:
    raise _refused(what, f'num_regressors={metric.num_regressors}', 'leave it out')
  # The number of sums is fixed when the model is built.
  size = output_shape[1:].num_elements()
  if size is None:
    raise ValueError(f'{what} needs outputs of a known shape, these are {list(output_shape)}')
  return sum_metrics.r2(_rows, size)
