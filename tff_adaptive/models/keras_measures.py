"""Losses and metrics of Keras, an example each."""

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tff_adaptive._utils import private_apis
from tff_adaptive.models import model as model_lib

_Measure = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]  # (y_true, y_pred) -> [B, ...]


def example_loss(loss: Any) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
  """A loss of Keras as `Model` takes it.

  Args:
    loss: A `tf.keras.losses.Loss`, its name, or a function `(y_true, y_pred) -> [B, ...]`.

  Returns:
    `(predictions, y) -> [B]`.

  Raises:
    ValueError: If Keras knows no loss of that name, or it gives one number for a batch.
  """
  # `call` gives the examples' losses, `__call__` their mean.
  found = _known(tf.keras.losses.get, 'loss', loss)
  measure = found.call if isinstance(found, tf.keras.losses.Loss) else found

  def losses(predictions: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    values = _values(measure, predictions, y, f'the loss {_name(found)!r}')
    return tf.reduce_mean(values, list(range(1, values.shape.rank)))

  return losses


def metric_fns(
  metrics: Sequence[Any], y_spec: tf.TensorSpec, output_shape: tf.TensorShape
) -> dict[str, model_lib.MetricFn]:
  """Metrics of Keras as `Model` takes them.

  Args:
    metrics: Names, `tf.keras.metrics.MeanMetricWrapper`s, or functions of (y_true, y_pred) that
      give [B, ...].
    y_spec: Spec of the targets, by which 'accuracy' is one of Keras's accuracies.
    output_shape: The shape of the predictions, likewise.

  Returns:
    name -> `(predictions, y) -> (numerator [B], denominator [B])`.

  Raises:
    ValueError: If a metric is unknown or no mean over examples, or two have the same name.
  """
  found: dict[str, model_lib.MetricFn] = {}
  for metric in metrics:
    name, measure = _measure(metric, y_spec, output_shape)
    if name in found:
      raise ValueError(f'two metrics are called {name!r}: give one of them another name')
    found[name] = functools.partial(_sums, measure, f'the metric {name!r}')
  return found


def target_spec(loss: Any, output_shape: tf.TensorShape) -> tf.TensorSpec:
  """The spec of the targets that a loss takes: class numbers if it is a sparse one."""
  if 'sparse' in _name(tf.keras.losses.get(loss)).lower():
    return tf.TensorSpec([None, *output_shape[1:-1]], tf.int32)
  return tf.TensorSpec([None, *output_shape[1:]], tf.float32)


def _known(get: Callable[[Any], Any], kind: str, wanted: Any) -> Any:
  """What Keras has for a name, or the thing itself."""
  try:
    found = get(wanted)
  except (TypeError, ValueError):
    found = None
  if not callable(found):
    raise ValueError(
      f'Keras has no {kind} {wanted!r}: give one of tf.keras.{kind}{"e" * (kind == "loss")}s'
    )
  return found


def _measure(
  metric: Any, y_spec: tf.TensorSpec, output_shape: tf.TensorShape
) -> tuple[str, _Measure]:
  """A metric's name and values."""
  if metric in ('accuracy', 'acc'):
    return 'accuracy', _accuracy(y_spec, output_shape)
  found = _known(tf.keras.metrics.get, 'metric', metric)
  name = _name(found)
  if isinstance(metric, str):
    name = re.sub(r'_\d+$', '', name)  # Keras numbers those of one class that it makes: 'auc_1'.
  if isinstance(found, tf.keras.metrics.MeanMetricWrapper):
    return name, private_apis.metric_values(found)
  if isinstance(found, tf.keras.metrics.Metric):
    raise ValueError(
      f'the metric {name!r} is no mean over examples, which clients could sum up: give an '
      'accuracy, a mean error or a function (y_true, y_pred) -> [B], and compute this one from the '
      'exported model'
    )
  return (metric if isinstance(metric, str) else _name(found)), found


def _accuracy(y_spec: tf.TensorSpec, output_shape: tf.TensorShape) -> _Measure:
  """The accuracy that Keras's `compile` would take."""
  if output_shape[-1] == 1:
    return tf.keras.metrics.binary_accuracy
  if y_spec.shape.rank == output_shape.rank:
    return tf.keras.metrics.categorical_accuracy
  return tf.keras.metrics.sparse_categorical_accuracy


def _sums(
  measure: _Measure, what: str, predictions: tf.Tensor, y: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
  """A metric's sum over what each example has of values, and how many these are."""
  values = _values(measure, predictions, y, what)
  per_example = tf.reshape(values, [tf.shape(values)[0], -1])
  return tf.reduce_sum(per_example, 1), tf.reduce_sum(tf.ones_like(per_example), 1)


def _values(measure: _Measure, predictions: tf.Tensor, y: tf.Tensor, what: str) -> tf.Tensor:
  y, predictions = tf.convert_to_tensor(y), tf.convert_to_tensor(predictions)
  if y.shape.rank == 1 and predictions.shape.rank == 2 and predictions.shape[-1] == 1:
    y = y[:, tf.newaxis]  # As Keras's `fit` does.
  values = tf.convert_to_tensor(measure(y, predictions))
  if values.shape.rank == 0:
    raise ValueError(f'{what} gives one number for a batch: it must give one for each example')
  return tf.cast(values, tf.float32) if values.dtype == tf.bool else values


def _name(measure: Any) -> str:
  return str(getattr(measure, 'name', None) or getattr(measure, '__name__', measure))
