"""Which model learns a task on own data: two that are there, Keras models, or a `Model`."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tasks import errors
from tasks.models import layers
from tff_adaptive import models

_HIDDEN = {'logistic_regression': (), 'mlp': (100,)}


@dataclasses.dataclass(frozen=True)
class Problem:
  """What a model is to learn.

  Attributes:
    x_shape: The shape of an input.
    y: All targets.
    classes: Labels of the classes, or None.
  """

  x_shape: tuple[int, ...]
  y: np.ndarray
  classes: tuple[Any, ...] | None

  @property
  def num_outputs(self) -> int:
    """Classes, or numbers to predict of an example."""
    return int(np.prod(self.y.shape[1:])) if self.classes is None else len(self.classes)


def builder(
  model: str | Callable, problem: Problem, loss: Any, metrics: Sequence[Any] | None
) -> tuple[Callable[[int], models.Model], Any, Any, str]:
  """What builds the model, checked on the data.

  Args:
    model: As `tasks.from_arrays` takes it.
    problem: What it is to learn.
    loss: A loss of Keras, or None.
    metrics: Metrics of Keras, or None.

  Returns:
    `Task.build_model`, the dtypes of inputs and targets, and the metric to judge by.

  Raises:
    DataError: If there is no such model or it does not fit the data.
  """
  is_keras = callable(model) and len(inspect.signature(model).parameters) != 1
  if not is_keras and (loss is not None or metrics is not None):
    raise errors.DataError('loss and metrics are for Keras models: leave them out')
  if isinstance(model, tf.keras.layers.Layer):
    raise errors.DataError('model is a Keras model: give a function that makes it anew')
  build: Callable[[int], models.Model]
  if is_keras:
    build = functools.partial(_build_keras, model, problem, loss, metrics)
  elif callable(model):
    build = model
  elif model in _HIDDEN:
    build = functools.partial(_build_own, problem, _HIDDEN[model])
  else:
    raise errors.DataError(
      f'model is {model!r}; choose one of: {", ".join(_HIDDEN)}; or give a function that makes a '
      'Keras model'
    )
  try:
    made = build(0)
  except (TypeError, ValueError) as error:
    raise errors.DataError(f'the model cannot be built: {error}') from error
  _check_fits(made, problem)
  metric = 'accuracy' if 'accuracy' in made.metric_names else 'loss'
  specs = made.input_spec
  return build, specs['x'].dtype.as_numpy_dtype, specs['y'].dtype.as_numpy_dtype, metric


def threshold(model: str | Callable, problem: Problem, loss: Any) -> float | None:
  """Above which the one output of a Keras model for two classes means the second.

  Args:
    model: As `builder` takes it, and has checked it.
    problem: What it is to learn.
    loss: A loss of Keras, or None.

  Returns:
    0 for logits, 0.5 for others; None if each class has an output, or Keras has not made the model.
  """
  is_keras = callable(model) and len(inspect.signature(model).parameters) != 1
  if not is_keras:
    return None
  made = _maker(model, problem)()
  if not _is_single(made, problem):
    return None
  return 0.0 if _takes_logits(_default_loss(made, problem) if loss is None else loss) else 0.5


def _build_own(problem: Problem, hidden: Sequence[int], seed: int) -> models.Model:
  widths = [int(np.prod(problem.x_shape)), *hidden, problem.num_outputs]
  if problem.y.ndim > 1:
    raise errors.DataError(
      f'targets have shape {problem.y.shape}; for others than [n] give a Keras model and a loss'
    )
  perceptron = layers.perceptron(seed, widths, problem.x_shape)
  if problem.classes is not None:
    return perceptron

  def predict(weights: Any, x: Any, training: bool, seed: Any) -> tf.Tensor:
    return perceptron.forward(weights, x, training, seed)[..., 0]

  return models.Model(
    initial_weights=perceptron.initial_weights[0],
    forward=predict,
    example_loss=tf.math.squared_difference,
    metrics={'mean_absolute_error': lambda p, y: (tf.abs(p - y), None)},
    x_spec=perceptron.input_spec['x'],
    y_spec=tf.TensorSpec([None], tf.float32),
    client_axis=True,
  )


def _build_keras(
  model: Callable, problem: Problem, loss: Any, metrics: Sequence[Any] | None, seed: int
) -> models.Model:
  make = _maker(model, problem)
  if loss is None:
    loss = _default_loss(make(), problem)
  is_binary = isinstance(loss, tf.keras.losses.BinaryCrossentropy) or _is_single(make(), problem)
  if metrics is None:
    metrics = [_default_metric(loss, problem, is_binary)]
  dtype = tf.float32 if is_binary else tf.dtypes.as_dtype(problem.y.dtype)
  y_spec = tf.TensorSpec([None, *problem.y.shape[1:]], dtype)
  return models.from_keras(make, loss, metrics, seed=seed, y_spec=y_spec)


def _maker(model: Any, problem: Problem) -> Callable[[], Any]:
  """The function that makes the Keras model, without arguments."""
  if len(inspect.signature(model).parameters) == 2:
    return functools.partial(model, problem.x_shape, problem.num_outputs)
  return model


def _default_loss(keras: Any, problem: Problem) -> Any:
  """Cross-entropy of scores or probabilities, as the last layer gives them; squared error."""
  if not isinstance(keras, tf.keras.Model):
    raise TypeError(f'the function gave {type(keras).__name__}, no tf.keras.Model')
  if problem.classes is None:
    if problem.y.dtype.kind != 'f':
      raise ValueError('for targets of several whole numbers an example, give a loss')
    return tf.keras.losses.MeanSquaredError()
  last = keras.layers[-1]
  activation = getattr(getattr(last, 'activation', None), '__name__', '')
  is_probability = activation in ('softmax', 'sigmoid') or isinstance(last, tf.keras.layers.Softmax)
  if _is_single(keras, problem):
    return tf.keras.losses.BinaryCrossentropy(from_logits=not is_probability)
  return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=not is_probability)


def _is_single(keras: Any, problem: Problem) -> bool:
  """Whether one output says which of two classes it is."""
  is_keras = isinstance(keras, tf.keras.Model)
  return is_keras and len(problem.classes or ()) == 2 and keras.output_shape[-1] == 1


def _default_metric(loss: Any, problem: Problem, is_binary: bool) -> Any:
  if problem.classes is None:
    return 'mean_absolute_error'
  if is_binary and _takes_logits(loss):
    return tf.keras.metrics.BinaryAccuracy(
      'accuracy', threshold=0.0
    )  # Keras's is for probabilities.
  return 'accuracy'


def _takes_logits(loss: Any) -> bool:
  is_loss = isinstance(loss, tf.keras.losses.Loss)
  return is_loss and bool(loss.get_config().get('from_logits'))


def _check_fits(model: Any, problem: Problem) -> None:
  if not isinstance(model, models.Model):
    raise errors.DataError(
      f'the function of a seed gave {type(model).__name__}: it must give a '
      'tff_adaptive.models.Model, or take no arguments and give a Keras model'
    )
  spec = model.input_spec['x']
  if not spec.shape[1:].is_compatible_with(problem.x_shape):
    raise errors.DataError(
      f'the model takes inputs of shape {list(spec.shape[1:])}, the data have '
      f'{list(problem.x_shape)}'
    )
  x = tf.zeros([1, *problem.x_shape], spec.dtype)
  outputs = model.forward(model.initial_weights[0], x, False, None).shape
  is_binary = problem.num_outputs == 2 and outputs[-1] == 1
  if problem.classes is not None and outputs[-1] < problem.num_outputs and not is_binary:
    raise errors.DataError(
      f'the model has {outputs[-1]} outputs, the data have {problem.num_outputs} classes: give it '
      'as many'
    )
