"""Losses and metrics of Keras, an example each."""

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tff_adaptive._utils import private_apis
from tff_adaptive.models import keras_targets, model as model_lib

_Measure = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]  # (y_true, y_pred) -> [B, ...]


def example_loss(
  loss: Any, y_spec: tf.TensorSpec, output_shape: tf.TensorShape
) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
  """A loss of Keras as `Model` takes it.

  Args:
    loss: A `tf.keras.losses.Loss`, its name, or a function `(y_true, y_pred) -> [B, ...]`.
    y_spec: Spec of the targets.
    output_shape: The shape of the predictions.

  Returns:
    `(predictions, y) -> [B]`.

  Raises:
    ValueError: If Keras knows no loss of that name, it sums or leaves a class out, gives one number
      for a batch, or targets and output do not fit it.
  """
  # `call` gives the examples' losses, `__call__` their mean.
  found = _known(tf.keras.losses.get, 'loss', loss)
  what, is_of_keras = f'the loss {_name(found)!r}', _is_of_keras(found)
  _check_counts_all(found, what)
  measure = found.call if isinstance(found, tf.keras.losses.Loss) else found

  def losses(predictions: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    values = _values(measure, is_of_keras, predictions, y, what)
    return tf.reduce_mean(values, list(range(1, values.shape.rank)))

  if is_of_keras:
    keras_targets.check_loss(_name(found), _is_sparse(found), y_spec.shape, output_shape)
  else:
    keras_targets.check_alone(losses, what, y_spec, output_shape)
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
    ValueError: If a metric is unknown or no mean over examples, leaves a class out or does not fit
      targets and output, or two have the same name.
  """
  found: dict[str, model_lib.MetricFn] = {}
  for metric in metrics:
    name, measure = _measure(metric, y_spec, output_shape)
    if name in found:
      raise ValueError(f'two metrics are called {name!r}: give one of them another name')
    what = f'the metric {name!r}'
    found[name] = functools.partial(_sums, measure, _is_of_keras(measure), what)
    keras_targets.check_alone(found[name], what, y_spec, output_shape)
  return found


def target_spec(loss: Any, output_shape: tf.TensorShape) -> tf.TensorSpec:
  """The spec of the targets that a loss takes: class numbers if it is a sparse one."""
  if _is_sparse(_known(tf.keras.losses.get, 'loss', loss)):
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
  """The accuracy that Keras's `compile` would take."""
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
  """A metric's sum over what each example has of values, and how many these are."""
  values = _values(measure, is_of_keras, predictions, y, what)
  per_example = tf.reshape(values, [tf.shape(values)[0], -1])
  return tf.reduce_sum(per_example, 1), tf.reduce_sum(tf.ones_like(per_example), 1)


def _values(
  measure: _Measure, is_of_keras: bool, predictions: tf.Tensor, y: tf.Tensor, what: str
) -> tf.Tensor:
  y, predictions = tf.convert_to_tensor(y), tf.convert_to_tensor(predictions)
  if is_of_keras and predictions.shape.rank == y.shape.rank == 1:
    y, predictions = y[:, tf.newaxis], predictions[:, tf.newaxis]  # Its mean is over the last axis.
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
  """Refuses what Keras would apply to a whole batch: sums, and labels that count for nothing."""
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
  """Whether its shapes are known, as Keras wrote it and the function that it may wrap."""
  while isinstance(measure, functools.partial):
    measure = measure.func
  parts = [measure if hasattr(measure, '__name__') else type(measure)]
  parts += [part for part in (getattr(measure, 'fn', None),) if part is not None]
  return all(str(part.__module__).split('.')[0] == 'keras' for part in parts)


def _name(measure: Any) -> str:
  return str(getattr(measure, 'name', None) or getattr(measure, '__name__', measure))
