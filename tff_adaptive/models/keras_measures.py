"""Converts losses and metrics of Keras to functions with one value for each example."""

import dataclasses
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_adaptive._utils import private_apis
from tff_adaptive.models import (
  eager_constants,
  keras_sums,
  named_metrics,
  sum_metrics,
)

_EXAMPLES = 3  # The size of the batch on which `_check_alone` tries a loss or metric.
_KERAS = ('tf_keras', 'keras')  # The packages of Keras 2, which is `tf.keras` here, and of Keras 3.
_Measure = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]  # Loss or metric: (y, output) -> [B, ...]


def example_loss(
  loss: Any, y_spec: tf.TensorSpec, output_shape: tf.TensorShape
) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
  """Converts the `loss` of `from_keras` to a function (predictions, y) -> [B] for `Model`."""
  keras_loss = tf.keras.losses.get(loss)
  what = f'the loss {_name(keras_loss)!r}'
  is_of_keras = _is_of_keras(keras_loss)
  _check_counts_all(keras_loss, what)
  measure = keras_loss
  if isinstance(keras_loss, tf.keras.losses.Loss):
    measure = keras_loss.call  # It gives the examples' losses, `__call__` their mean.

  def losses(predictions: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    values = _values(measure, is_of_keras, predictions, y, what)
    return tf.reduce_mean(values, list(range(1, values.shape.rank)))

  _check_alone(losses, what, y_spec, output_shape)
  y_shape = y_spec.shape
  is_compared = is_of_keras and not _is_sparse(keras_loss)
  is_same_rank = y_shape.rank == output_shape.rank
  if is_compared and is_same_rank and not y_shape.is_compatible_with(output_shape):
    raise ValueError(
      f'{what} would broadcast targets {_shape_text(y_shape)} with an output '
      f'{_shape_text(output_shape)}: bring both to one shape'
    )
  return _lifted(losses, y_spec, output_shape)


def metrics_of(
  metrics: Sequence[Any],
  y_spec: tf.TensorSpec,
  output_shape: tf.TensorShape,
  outputs: named_metrics.Outputs | None = None,
) -> dict[str, named_metrics.Metric]:
  """Converts the `metrics` of `from_keras` to those of `Model`, by name.

  'accuracy' becomes the Keras accuracy that fits the shapes of targets and output. Other names of
  `named_metrics` need to know what the `outputs` mean.
  """
  by_name: dict[str, named_metrics.Metric] = {}
  for metric in metrics:
    name, converted = _converted(metric, y_spec, output_shape, outputs)
    if name in by_name:
      raise ValueError(f'two metrics are called {name!r}: give one of them another name')
    what = f'the metric {name!r}'
    if isinstance(converted, sum_metrics.SumMetric):
      _check_alone(converted.contribution, what, y_spec, output_shape, converted.size)
      contribution = _lifted(converted.contribution, y_spec, output_shape)
      by_name[name] = dataclasses.replace(converted, contribution=contribution)
    else:
      _check_alone(converted, what, y_spec, output_shape)
      by_name[name] = _lifted(converted, y_spec, output_shape)
  return by_name


def outputs_of(
  loss: Any, y_spec: tf.TensorSpec, output_shape: tf.TensorShape
) -> named_metrics.Outputs | None:
  """Returns what a Keras model's outputs mean, as its loss says; None if that is not known."""
  keras_loss = tf.keras.losses.get(loss)
  options = {}
  if isinstance(keras_loss, tf.keras.losses.Loss):
    options = keras_loss.get_config()
  are_probabilities = not options.get('from_logits', False)
  # Keras names a loss as a class, a function or a shorter function.
  name = _name(keras_loss).replace('_', '').lower()
  last = None
  size = None
  if output_shape.rank:
    last = output_shape[-1]
    size = output_shape[1:].num_elements()
  if name in ('sparsecategoricalcrossentropy', 'categoricalcrossentropy') and last:
    return named_metrics.Outputs(last, are_probabilities)
  is_single = output_shape.rank == 1 or (output_shape.rank == 2 and last == 1)
  if name == 'binarycrossentropy' and is_single:
    threshold = 0.5 if are_probabilities else 0.0
    return named_metrics.Outputs(2, are_probabilities, threshold)
  is_of_numbers = re.search('error|huber|logcosh|^(mse|mae|mape|msle)$', name)
  if is_of_numbers and y_spec.dtype.is_floating and y_spec.shape.rank and size:
    target_rank = min(y_spec.shape.rank, output_shape.rank)
    return named_metrics.Outputs(num_numbers=size, target_rank=target_rank)
  return None


def _lifted(
  measure: Callable[..., Any], y_spec: tf.TensorSpec, output_shape: tf.TensorShape
) -> Callable[..., Any]:
  """Makes constant tensors that a loss or metric (predictions, y) uses a part of it."""
  predictions = tf.TensorSpec([None, *output_shape[1:]], tf.float32)
  return eager_constants.lifted_if_needed(measure, predictions, y_spec)


def target_spec(loss: Any, output_shape: tf.TensorShape) -> tf.TensorSpec:
  """Returns the default spec of targets: int32 classes for sparse losses, else like the output."""
  if _is_sparse(tf.keras.losses.get(loss)):
    return tf.TensorSpec([None, *output_shape[1:-1]], tf.int32)
  return tf.TensorSpec([None, *output_shape[1:]], tf.float32)


def _converted(
  metric: Any,
  y_spec: tf.TensorSpec,
  output_shape: tf.TensorShape,
  outputs: named_metrics.Outputs | None,
) -> tuple[str, named_metrics.Metric]:
  """Returns a metric's name, and the metric as one of `Model`."""
  if metric in ('accuracy', 'acc'):
    accuracy = _accuracy(y_spec, output_shape)
    return 'accuracy', functools.partial(_sums, accuracy, True, "the metric 'accuracy'")
  is_function = callable(metric) and not isinstance(metric, tf.keras.metrics.Metric)
  if not is_function and named_metrics.is_name(metric) and not _is_keras_name(metric):
    if outputs is None:
      raise ValueError(
        f'the metric {metric!r} depends on what the outputs mean, which this loss does not say: '
        'give a metric of Keras'
      )
    return metric, named_metrics.named(metric, outputs)
  keras_metric = tf.keras.metrics.get(metric)
  name = _name(keras_metric)
  if isinstance(metric, str):
    if isinstance(keras_metric, tf.keras.metrics.Metric):
      # Keras numbers the metrics of one class, as in 'auc_1'.
      name = re.sub(r'_\d+$', '', name)
    else:
      name = metric
  name = re.sub(r'\W+', '_', name).strip('_')  # TFF does not take '<lambda>'.
  what = f'the metric {name!r}'
  if isinstance(keras_metric, tf.keras.metrics.MeanMetricWrapper):
    _check_counts_all(keras_metric, what)
    keras_metric = private_apis.metric_values(keras_metric)
  elif isinstance(keras_metric, tf.keras.metrics.Metric):
    sums = keras_sums.converted(keras_metric, what, output_shape)
    if sums is None:
      raise ValueError(
        f'{what} is neither a mean over examples nor one of these, whose sums clients can add up: '
        f'{keras_sums.NAMES}: give one of them, a function (y_true, y_pred) -> [B] or a '
        'tff_adaptive.models.SumMetric, or compute this one from the exported model'
      )
    return name, sums
  return name, functools.partial(_sums, keras_metric, _is_of_keras(keras_metric), what)


def _is_keras_name(name: str) -> bool:
  """Returns whether a name is one of Keras too, such as 'mean_absolute_error'."""
  return hasattr(tf.keras.metrics, name)


def _accuracy(y_spec: tf.TensorSpec, output_shape: tf.TensorShape) -> _Measure:
  """Returns the Keras accuracy that `compile` would choose for these shapes."""
  y_shape = y_spec.shape
  if output_shape[-1] == 1 or output_shape.rank == 1:
    return tf.keras.metrics.binary_accuracy
  # Keras takes labels [B, 1] for class numbers too.
  if y_shape.rank == output_shape.rank and y_shape[-1] != 1:
    return tf.keras.metrics.categorical_accuracy
  return tf.keras.metrics.sparse_categorical_accuracy


def _sums(
  measure: _Measure, is_of_keras: bool, what: str, predictions: tf.Tensor, y: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns, for each example [B], the sum of a metric's values and the number of values."""
  values = _values(measure, is_of_keras, predictions, y, what)
  per_example = tf.reshape(values, [tf.shape(values)[0], -1])
  return tf.reduce_sum(per_example, 1), tf.reduce_sum(tf.ones_like(per_example), 1)


def _values(
  measure: _Measure, is_of_keras: bool, predictions: tf.Tensor, y: tf.Tensor, what: str
) -> tf.Tensor:
  y = tf.convert_to_tensor(y)
  predictions = tf.convert_to_tensor(predictions)
  if is_of_keras and predictions.shape.rank == y.shape.rank == 1:
    # Keras averages the last axis.
    y = y[:, tf.newaxis]
    predictions = predictions[:, tf.newaxis]
  elif (
    (is_of_keras or y.shape.rank == 1)
    and predictions.shape.rank == y.shape.rank + 1
    and predictions.shape[-1] == 1
  ):
    y = y[..., tf.newaxis]  # As Keras's `fit` does.
  values = tf.convert_to_tensor(measure(y, predictions))
  if values.shape.rank == 0:
    raise ValueError(f'{what} gives one number for a batch: it must give one for each example')
  if values.dtype == tf.bool:
    return tf.cast(values, tf.float32)
  return values


def _check_counts_all(measure: Any, what: str) -> None:
  """Raises ValueError for Keras options that change a mean: `ignore_class`, `reduction='sum'`."""
  options = {}
  if hasattr(measure, 'get_config'):
    options = measure.get_config()
  if options.get('ignore_class') is not None:
    raise ValueError(
      f'{what} has ignore_class={options["ignore_class"]}, but a mean here counts every label: '
      'give a function (y_true, y_pred) -> [B] that leaves them out'
    )
  if getattr(measure, 'reduction', None) == 'sum':
    raise ValueError(
      f"{what} has reduction='sum', but a client's loss is the mean over a batch's examples: leave "
      'the reduction out, and raise the learning rate by the batch size'
    )


def _is_sparse(measure: Any) -> bool:
  kind = tf.keras.losses.SparseCategoricalCrossentropy
  return isinstance(measure, kind) or 'sparse' in _name(measure).lower()


def _is_of_keras(measure: Any) -> bool:
  """Returns whether a loss or metric, with any function that it wraps, is part of Keras."""
  while isinstance(measure, functools.partial):
    measure = measure.func
  parts = [type(measure)]
  if hasattr(measure, '__name__'):
    parts = [measure]
  wrapped = getattr(measure, 'fn', None)
  if wrapped is not None:
    parts.append(wrapped)
  return all(str(part.__module__).split('.')[0] in _KERAS for part in parts)


def _name(measure: Any) -> str:
  return str(getattr(measure, 'name', None) or getattr(measure, '__name__', measure))


def _check_alone(
  measure: Callable[[tf.Tensor, tf.Tensor], Any],
  what: str,
  y_spec: tf.TensorSpec,
  output_shape: tf.TensorShape,
  size: int | None = None,
) -> None:
  """Raises ValueError if an example's loss or metric depends on the other examples of its batch.

  `measure` is a function (predictions, y) -> [B], or [B, size] if that is given. Broadcasting [B]
  with [B, T, 1] has this effect.
  """
  if y_spec.shape.rank is None or output_shape.rank is None or y_spec.dtype == tf.string:
    return
  rng = np.random.default_rng(0)
  # These values are valid probabilities, and every model has the classes 0 and 1.
  predictions = tf.constant(rng.uniform(0.1, 0.9, _sizes(output_shape)), tf.float32)
  sizes = _sizes(y_spec.shape)
  numbers: Any = np.arange(np.prod(sizes)) % 2
  if y_spec.dtype.is_floating:
    numbers = rng.uniform(0.1, 0.9, sizes)
  y = tf.cast(tf.reshape(numbers, sizes), y_spec.dtype)
  shapes = f'targets {_shape_text(y_spec.shape)} and an output {_shape_text(output_shape)}'
  singles = []
  try:
    together = tf.nest.flatten(measure(predictions, y))
    for i in range(_EXAMPLES):
      singles.append(tf.nest.flatten(measure(predictions[i : i + 1], y[i : i + 1])))
  except Exception as error:  # Whatever a user's function raises.
    if str(error).startswith(what):
      raise
    reason = ' '.join(str(error).split())[:200]
    raise ValueError(f'{what} fails for {shapes}: {reason}') from error
  shape = [_EXAMPLES]
  if size is not None:
    shape.append(size)
  for values, alone in zip(together, zip(*singles)):
    if values is None:  # A denominator of 1.
      continue
    if values.shape != shape or not np.allclose(
      values, tf.concat(alone, 0), rtol=1e-3, atol=1e-5, equal_nan=True
    ):
      raise ValueError(
        f'{what} of an example depends on the rest of its batch, with {shapes}: it must return one '
        'value for each example, [B] or [B, ...]; give targets and outputs one shape'
      )


def _sizes(shape: tf.TensorShape) -> list[int]:
  """Returns the sizes of a batch for a trial; unknown ones become 4."""
  sizes = [_EXAMPLES]
  for size in shape[1:]:
    if size is None:
      size = 4
    sizes.append(size)
  return sizes


def _shape_text(shape: Sequence[Any]) -> str:
  """Formats a shape, such as [B, 4, classes]; an unknown dimension is a question mark."""
  names = ['B']
  for size in list(shape)[1:]:
    names.append('?' if size is None else str(size))
  return f'[{", ".join(names)}]'
