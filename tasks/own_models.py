"""Models for tasks on a user's own data: two built-in ones, Keras models, or a `Model`."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_adaptive import models
from tff_adaptive.models import named_metrics
from tff_adaptive_tasks import errors
from tff_adaptive_tasks.models import layers

_HIDDEN = {'logistic_regression': (), 'mlp': (100,)}


@dataclasses.dataclass(frozen=True)
class Problem:
  """The data for a model: training inputs, all targets, and class labels (None for numbers)."""

  x: np.ndarray
  y: np.ndarray
  classes: tuple[Any, ...] | None

  @property
  def num_outputs(self) -> int:
    """The number of classes, or of numbers to predict for an example."""
    return int(np.prod(self.y.shape[1:])) if self.classes is None else len(self.classes)


def builder(
  model: str | Callable,
  problem: Problem,
  loss: Any,
  metrics: Sequence[Any] | None,
  threshold: float | None,
) -> tuple[Callable[[int], models.Model], models.Model, float | None]:
  """Returns a function for `Task.build_model`, a model that it built, and the threshold or None.

  For other arguments than `problem` see `tasks.from_arrays`. A bad model raises DataError.
  """
  if isinstance(model, tf.keras.layers.Layer):
    raise errors.DataError('model is a Keras model: give a function that makes it anew')
  build: Callable[[int], models.Model]
  try:
    if callable(model) and (make := _keras_maker(model, problem)):
      build, threshold = _of_keras(make, problem, loss, metrics, threshold)
    elif loss is not None or not all(map(named_metrics.is_name, metrics or ())):
      raise ValueError(
        'loss and metrics of Keras are for Keras models: leave them out, or give metrics by name,'
        " such as 'f1_macro'"
      )
    elif callable(model):
      build = model
    elif model in _HIDDEN:
      build = functools.partial(_build_own, problem, _HIDDEN[model])
    else:
      raise ValueError(
        f'model is {model!r}; choose one of: {", ".join(_HIDDEN)}; or give a function that makes a'
        ' Keras model'
      )
    made = build(0)
    _check_fits(made, problem)
  except errors.DataError:
    raise
  except (AttributeError, TypeError, ValueError) as error:
    words = ' '.join(str(error).split())
    raise errors.DataError(f'the model cannot be built: {words}') from error
  return build, made, threshold


def _build_own(problem: Problem, hidden: Sequence[int], seed: int) -> models.Model:
  if problem.y.ndim > 1:
    _check_meaning(problem)
    raise ValueError(f'targets have shape {problem.y.shape}; give a Keras model and a loss')
  widths = [int(np.prod(problem.x.shape[1:])), *hidden, problem.num_outputs]
  perceptron = layers.perceptron(seed, widths, problem.x.shape[1:])
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
    outputs=models.Outputs(),
  )


def _keras_maker(model: Callable, problem: Problem) -> Callable[[], Any] | None:
  """Returns a function without arguments that makes a Keras model; None if `model` takes a seed."""
  parameters = inspect.signature(model).parameters
  several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
  needed = [n for n, p in parameters.items() if p.default is p.empty and p.kind not in several]
  if len(needed) > 1:
    return functools.partial(model, problem.x.shape[1:], problem.num_outputs)
  return None if needed or next(iter(parameters), None) == 'seed' else model


def _of_keras(
  make: Callable[[], Any],
  problem: Problem,
  loss: Any,
  metrics: Sequence[Any] | None,
  threshold: float | None,
) -> tuple[Callable[[int], models.Model], float | None]:
  """Returns a function (seed) -> `Model` of the Keras model, and the threshold or None."""
  keras = make()
  is_single = len(problem.classes or ()) == 2 and keras.output_shape[-1] == 1
  last = keras.layers[-1]
  passing = (tf.keras.layers.Reshape, tf.keras.layers.Flatten, tf.keras.layers.Dropout)
  while isinstance(last, (tf.keras.Model, *passing)):
    below = last.layers or [None] if hasattr(last, 'layers') else last.inbound_nodes or [None]
    last = getattr(below[-1], 'inbound_layers', below[-1])
  activation = getattr(getattr(last, 'activation', None), '__name__', '')
  is_softmax = activation in ('softmax', 'softmax_v2') or isinstance(last, tf.keras.layers.Softmax)
  gives_scores = not is_softmax and activation != 'sigmoid'
  if not is_single:
    threshold = None
  elif threshold is None:
    if gives_scores and (loss is not None or not hasattr(last, 'activation')):
      raise ValueError(
        'the model has one output for two classes: give threshold=, above which it means the'
        ' second: 0.0 for scores, 0.5 for probabilities, and their loss'
      )
    threshold = 0.0 if gives_scores else 0.5
  if metrics is None and problem.classes is None:
    metrics = ['mean_absolute_error'] if loss is None else []
  elif metrics is None:
    metrics = ['accuracy']
  if is_single:  # Keras's 'accuracy' expects that a single output is a probability.
    one = tf.keras.metrics.BinaryAccuracy('accuracy', threshold=threshold)
    metrics = [one if isinstance(m, str) and m in ('accuracy', 'acc') else m for m in metrics]
  if loss is None and problem.classes is not None:  # For scores or probabilities.
    name = 'BinaryCrossentropy' if is_single else 'SparseCategoricalCrossentropy'
    loss = getattr(tf.keras.losses, name)(from_logits=gives_scores)
  elif loss is None:
    _check_meaning(problem)
  if loss is None and problem.classes is None and problem.y.dtype.kind != 'f':
    raise ValueError('the targets have several whole numbers for each example: give a loss')
  loss = loss or tf.keras.losses.MeanSquaredError()
  dtype = tf.float32 if is_single else tf.dtypes.as_dtype(problem.y.dtype)
  y_spec = tf.TensorSpec([None, *problem.y.shape[1:]], dtype)

  def build(seed: int) -> models.Model:
    model = models.from_keras(make, loss, metrics, seed=seed, y_spec=y_spec)
    if problem.classes is not None:
      model.outputs = models.Outputs(len(problem.classes), not gives_scores, threshold)
    return model

  return build, None if threshold is None else float(threshold)


def _check_meaning(problem: Problem) -> None:
  """Raises ValueError for targets of zeros and ones [n, k], whose loss cannot be guessed."""
  y = problem.y
  if problem.classes is not None or y.ndim != 2 or y.shape[1] < 2 or not np.isin(y, (0, 1)).all():
    return
  shape = list(y.shape)
  if (y.sum(1) == 1).all():
    raise ValueError(
      f'the labels are one-hot, {shape}: give class numbers, y.argmax(1), or with a Keras model '
      "loss='categorical_crossentropy'"
    )
  raise ValueError(
    f'the labels are zeros and ones, {shape}: give a Keras model and a loss, such as '
    "'binary_crossentropy' for several labels of an example or 'mean_squared_error' for numbers"
  )


def _check_fits(model: Any, problem: Problem) -> None:
  if not isinstance(model, models.Model):
    raise TypeError(
      f'the function of a seed gave {type(model).__name__}: it must give a '
      'tff_adaptive.models.Model, or take no arguments and give a Keras model'
    )
  spec = model.input_spec['x']
  if not spec.shape[1:].is_compatible_with(problem.x.shape[1:]):
    raise ValueError(
      f'the model takes inputs of shape {list(spec.shape[1:])}, the data have '
      f'{list(problem.x.shape[1:])}'
    )
  x = tf.zeros([1, *problem.x.shape[1:]], spec.dtype)
  weights = tuple(map(tf.convert_to_tensor, model.initial_weights[0]))
  outputs = model.forward(weights, x, False, None).shape[-1]
  wanted = len(problem.classes or ())
  if outputs is not None and outputs < wanted and (wanted, outputs) != (2, 1):
    raise ValueError(
      f'the model has {outputs} outputs, the data have {wanted} classes: give it as many'
    )
