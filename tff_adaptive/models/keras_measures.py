"""Converts losses and metrics of Keras to functions with one value for each example."""

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_adaptive._utils import private_apis
from tff_adaptive.models import eager_constants, model as model_lib

_EXAMPLES = 3  # The size of the batch on which `_check_alone` tries a loss or metric.
_KERAS = ('tf_keras', 'keras')  # The packages of Keras 2, which is `tf.keras` here, and of Keras 3.
_Measure = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]  # Loss or metric: (y, output) -> [B, ...]


def example_loss(
  loss: Any, y_spec: tf.TensorSpec, output_shape: tf.TensorShape
) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
  """Converts the `loss` of `from_keras` to a function (predictions, y) -> [B] for `Model`."""
  # `call` gives the examples' losses, `__call__` their mean.
  found = tf.keras.losses.get(loss)
  what, is_of_keras = f'the loss {_name(found)!r}', _is_of_keras(found)
  _check_counts_all(found, what)
  measure = found.call if isinstance(found, tf.keras.losses.Loss) else found

  def losses(predictions: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    values = _values(measure, is_of_keras, predictions, y, what)
    return tf.reduce_mean(values, list(range(1, values.shape.rank)))

  _check_alone(losses, what, y_spec, output_shape)
  y_shape, is_compared = y_spec.shape, is_of_keras and not _is_sparse(found)
  is_same_rank = y_shape.rank == output_shape.rank
  if is_compared and is_same_rank and not y_shape.is_compatible_with(output_shape):
    raise ValueError(
      f'{what} would broadcast targets {_shown(y_shape)} with an output {_shown(output_shape)}: '
      'bring both to one shape'
    )
  return _lifted(losses, y_spec, output_shape)


def metric_fns(
  metrics: Sequence[Any], y_spec: tf.TensorSpec, output_shape: tf.TensorShape
) -> dict[str, model_lib.MetricFn]:
  """Converts the `metrics` of `from_keras` to those of `Model`, functions by name.

  'accuracy' becomes the Keras accuracy that fits the shapes of targets and output.
  """
  found: dict[str, model_lib.MetricFn] = {}
  for metric in metrics:
    name, measure = _measure(metric, y_spec, output_shape)
    name = re.sub(r'\W+', '_', name).strip('_')  # TFF does not take '<lambda>'.
    if name in found:
      raise ValueError(f'two metrics are called {name!r}: give one of them another name')
    what = f'the metric {name!r}'
    found[name] = functools.partial(_sums, measure, _is_of_keras(measure), what)
    _check_alone(found[name], what, y_spec, output_shape)
    found[name] = _lifted(found[name], y_spec, output_shape)
  return found


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


def _measure(
  metric: Any, y_spec: tf.TensorSpec, output_shape: tf.TensorShape
) -> tuple[str, _Measure]:
  """Returns a metric's name and the function that computes its values."""
  if metric in ('accuracy', 'acc'):
    return 'accuracy', _accuracy(y_spec, output_shape)
  found = tf.keras.metrics.get(metric)
  name = _name(found)
  if isinstance(metric, str):
    name = re.sub(r'_\d+$', '', name)  # Keras numbers the metrics of one class, as in 'auc_1'.
  if isinstance(found, tf.keras.metrics.MeanMetricWrapper):
    _check_counts_all(found, f'the metric {name!r}')
    return name, private_apis.metric_values(found)
  if isinstance(found, tf.keras.metrics.Metric):
    raise ValueError(
      f'the metric {name!r} is no mean over examples, which clients could sum up: give an '
      'accuracy, a mean error or a function (y_true, y_pred) -> [B], and compute this one from the '
      'exported model'
    )
  return (metric if isinstance(metric, str) else _name(found)), found


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
  y, predictions = tf.convert_to_tensor(y), tf.convert_to_tensor(predictions)
  if is_of_keras and predictions.shape.rank == y.shape.rank == 1:
    y, predictions = y[:, tf.newaxis], predictions[:, tf.newaxis]  # Keras averages the last axis.
  elif (
    (is_of_keras or y.shape.rank == 1)
    and predictions.shape.rank == y.shape.rank + 1
    and predictions.shape[-1] == 1
  ):
    y = y[..., tf.newaxis]  # As Keras's `fit` does.
  values = tf.convert_to_tensor(measure(y, predictions))
  if values.shape.rank == 0:
    raise ValueError(f'{what} gives one number for a batch: it must give one for each example')
  return tf.cast(values, tf.float32) if values.dtype == tf.bool else values


def _check_counts_all(measure: Any, what: str) -> None:
  """Raises ValueError for Keras options that change a mean: `ignore_class`, `reduction='sum'`."""
  options = measure.get_config() if hasattr(measure, 'get_config') else {}
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
  parts = [measure if hasattr(measure, '__name__') else type(measure)]
  parts += [part for part in (getattr(measure, 'fn', None),) if part is not None]
  return all(str(part.__module__).split('.')[0] in _KERAS for part in parts)


def _name(measure: Any) -> str:
  return str(getattr(measure, 'name', None) or getattr(measure, '__name__', measure))


def _check_alone(
  measure: Callable[[tf.Tensor, tf.Tensor], Any],
  what: str,
  y_spec: tf.TensorSpec,
  output_shape: tf.TensorShape,
) -> None:
  """Raises ValueError if an example's loss or metric depends on the other examples of its batch.

  `measure` is a function (predictions, y) -> [B]. Broadcasting [B] with [B, T, 1] has this effect.
  """
  if y_spec.shape.rank is None or output_shape.rank is None or y_spec.dtype == tf.string:
    return
  rng = np.random.default_rng(0)
  # These values are valid probabilities, and every model has the classes 0 and 1.
  predictions = tf.constant(rng.uniform(0.1, 0.9, _sizes(output_shape)), tf.float32)
  sizes = _sizes(y_spec.shape)
  is_floating = y_spec.dtype.is_floating
  numbers: Any = rng.uniform(0.1, 0.9, sizes) if is_floating else np.arange(np.prod(sizes)) % 2
  y = tf.cast(tf.reshape(numbers, sizes), y_spec.dtype)
  shapes = f'targets {_shown(y_spec.shape)} and an output {_shown(output_shape)}'
  try:
    together = tf.nest.flatten(measure(predictions, y))
    singles = [
      tf.nest.flatten(measure(predictions[i : i + 1], y[i : i + 1])) for i in range(_EXAMPLES)
    ]
  except Exception as error:  # Whatever a user's function raises.
    if str(error).startswith(what):
      raise
    reason = ' '.join(str(error).split())[:200]
    raise ValueError(f'{what} fails for {shapes}: {reason}') from error
  for values, alone in zip(together, zip(*singles)):
    if values.shape != [_EXAMPLES] or not np.allclose(
      values, tf.concat(alone, 0), rtol=1e-3, atol=1e-5, equal_nan=True
    ):
      raise ValueError(
        f'{what} of an example depends on the rest of its batch, with {shapes}: it must return one '
        'value for each example, [B] or [B, ...]; give targets and outputs one shape'
      )


def _sizes(shape: tf.TensorShape) -> list[int]:
  return [_EXAMPLES, *(4 if size is None else size for size in shape[1:])]


def _shown(shape: Sequence[Any]) -> str:
  """Formats a shape, such as [B, 4, classes]; an unknown dimension is a question mark."""
  return f'[{", ".join(["B", *("?" if size is None else str(size) for size in list(shape)[1:])])}]'
