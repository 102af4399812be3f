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
from tff_adaptive_tasks import errors, own_targets
from tff_adaptive_tasks.models import layers

_HIDDEN = {'logistic_regression': (), 'mlp': (100,)}


@dataclasses.dataclass(frozen=True)
class Problem:
  """The data for a model: training inputs, and the targets of all examples."""

  x: np.ndarray
  targets: own_targets.Targets

  @property
  def y(self) -> np.ndarray:
    """The targets as an array."""
    return self.targets.y

  @property
  def classes(self) -> tuple[Any, ...] | None:
    """The labels of the classes; None if targets are no class numbers."""
    return self.targets.classes

  @property
  def num_outputs(self) -> int:
    """The number of classes, or of numbers or labels to predict for an example."""
    if self.classes is None:
      return int(np.prod(self.y.shape[1:]))
    return len(self.classes)


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
  # One model object would be shared by all who build it, with its weights.
  if isinstance(model, tf.keras.layers.Layer):
    raise errors.DataError('model is a Keras model: give a function that makes it anew')
  build: Callable[[int], models.Model]
  try:
    make = _keras_maker(model, problem)
    if make is not None:
      build, threshold = _of_keras(make, problem, loss, metrics, threshold)
    elif loss is not None or not all(map(named_metrics.is_name, metrics or ())):
      for metric in metrics or ():
        if isinstance(metric, str) and not named_metrics.is_name(metric):
          raise ValueError(f"{metric!r:.80} is no name of a metric, such as 'f1_macro'")
      raise ValueError(
        'loss and metrics of Keras are for Keras models: leave them out, or give metrics by name,'
        " such as 'f1_macro'"
      )
    elif callable(model):
      build = model
    elif model in _HIDDEN:
      build = functools.partial(_build_own, problem, _HIDDEN[model])
      if problem.targets.has_labels:
        threshold = 0.0  # Its outputs are scores.
    else:
      raise ValueError(
        f'model is {model!r}; choose one of: {", ".join(_HIDDEN)}; or give a function that makes a'
        ' Keras model'
      )
    # Built once here, so that what does not fit is said before any training.
    built = build(0)
    _check_fits(built, problem)
  except errors.DataError:
    raise
  # Keras and TensorFlow raise these for layers that do not fit, in many lines.
  except (AttributeError, TypeError, ValueError) as error:
    words = ' '.join(str(error).split())
    raise errors.DataError(f'the model cannot be built: {words}') from error
  return build, built, threshold


def _build_own(problem: Problem, hidden: Sequence[int], seed: int) -> models.Model:
  targets = problem.targets
  if problem.y.ndim > 2 or not (targets.classes or targets.has_labels or targets.are_numbers):
    _check_meaning(problem)
    raise ValueError(f'targets have shape {problem.y.shape}; give a Keras model and a loss')
  _check_meaning(problem)
  widths = [int(np.prod(problem.x.shape[1:])), *hidden, problem.num_outputs]
  perceptron = layers.perceptron(seed, widths, problem.x.shape[1:])
  if targets.classes is not None:
    return perceptron
  if targets.has_labels:
    model = _with_loss(perceptron, problem, _mean_cross_entropy, {'accuracy': _mean_accuracy})
    model.outputs = models.Outputs(threshold=0.0, num_labels=problem.num_outputs)
    return model
  metrics = {'mean_absolute_error': _mean_absolute_error}
  model = _with_loss(perceptron, problem, _mean_squared_error, metrics)
  model.outputs = models.Outputs(num_numbers=problem.num_outputs, target_rank=problem.y.ndim)
  return model


def _with_loss(
  perceptron: models.Model,
  problem: Problem,
  example_loss: Callable[..., tf.Tensor],
  metrics: dict[str, Callable[..., Any]],
) -> models.Model:
  """Returns the model with another loss, whose predictions have the last axis of the outputs."""
  is_single = problem.y.ndim == 1

  def forward(weights: Any, x: Any, training: bool, seed: Any) -> tf.Tensor:
    outputs = perceptron.forward(weights, x, training, seed)
    if is_single:
      return outputs[..., 0]
    return outputs

  def of_outputs(function: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """Gives predictions and targets of a single output an axis of outputs."""
    if not is_single:
      return function
    return lambda p, y: function(p[..., tf.newaxis], y[..., tf.newaxis])

  def metric(function: Callable[..., tf.Tensor]) -> Callable[..., Any]:
    value = of_outputs(function)
    return lambda p, y: (value(p, y), None)

  def to_keras(weights: Sequence[Any]) -> tf.keras.Model:
    column = perceptron.to_keras(weights)
    return tf.keras.Sequential([column, tf.keras.layers.Reshape([])])

  model = models.Model(
    initial_weights=perceptron.initial_weights[0],
    forward=forward,
    example_loss=of_outputs(example_loss),
    metrics={name: metric(function) for name, function in metrics.items()},
    x_spec=perceptron.input_spec['x'],
    y_spec=tf.TensorSpec([None, *problem.y.shape[1:]], tf.float32),
    client_axis=True,
  )
  model.to_keras = to_keras
  return model


def _mean_squared_error(p: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
  return tf.reduce_mean(tf.math.squared_difference(p, y), -1)


def _mean_absolute_error(p: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
  return tf.reduce_mean(tf.abs(p - y), -1)


def _mean_cross_entropy(p: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
  return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(y, p), -1)


def _mean_accuracy(p: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
  is_right = tf.equal(p > 0, y > 0.5)
  return tf.reduce_mean(tf.cast(is_right, tf.float32), -1)


def _keras_maker(model: str | Callable, problem: Problem) -> Callable[[], Any] | None:
  """Returns a function without arguments that makes a Keras model; None for other models."""
  if not callable(model):
    return None
  # A function with two arguments or none makes a Keras model, one with a seed a `Model`.
  parameters = inspect.signature(model).parameters
  several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
  needed = [n for n, p in parameters.items() if p.default is p.empty and p.kind not in several]
  if len(needed) > 1:
    return functools.partial(model, problem.x.shape[1:], problem.num_outputs)
  if needed or next(iter(parameters), None) == 'seed':
    return None
  return model


def _of_keras(
  make: Callable[[], Any],
  problem: Problem,
  loss: Any,
  metrics: Sequence[Any] | None,
  threshold: float | None,
) -> tuple[Callable[[int], models.Model], float | None]:
  """Returns a function (seed) -> `Model` of the Keras model, and the threshold or None."""
  keras = make()
  if problem.targets.has_labels:  # Keras would say in its own words what does not fit.
    _check_outputs(keras.output_shape[-1], problem)
  ending = _ending(keras)
  targets = problem.targets
  is_single = len(problem.classes or ()) == 2 and keras.output_shape[-1] == 1
  is_binary = is_single or targets.has_labels
  # It would train, and never say that two labels hold.
  if targets.has_labels and ending.is_softmax:
    raise ValueError(
      'the model ends with a softmax, of which the outputs exclude each other: for several labels '
      'end with a sigmoid or with scores'
    )
  threshold = _threshold(ending, loss, threshold) if is_binary else None
  if metrics is None:
    metrics = _default_metrics(problem, loss)
  if is_binary:  # Keras's 'accuracy' expects that an output is a probability.
    accuracy = tf.keras.metrics.BinaryAccuracy('accuracy', threshold=threshold)
    is_named = [isinstance(metric, str) and metric in ('accuracy', 'acc') for metric in metrics]
    metrics = [accuracy if named else metric for named, metric in zip(is_named, metrics)]
  if loss is None:
    loss = _default_loss(problem, is_binary, ending.gives_scores)
  dtype = tf.float32 if is_binary else tf.dtypes.as_dtype(problem.y.dtype)
  y_spec = tf.TensorSpec([None, *problem.y.shape[1:]], dtype)

  def build(seed: int) -> models.Model:
    model = models.from_keras(make, loss, metrics, seed=seed, y_spec=y_spec)
    if problem.classes is not None:
      model.outputs = models.Outputs(len(problem.classes), not ending.gives_scores, threshold)
    elif targets.has_labels:
      model.outputs = models.Outputs(
        are_probabilities=not ending.gives_scores,
        threshold=threshold,
        num_labels=problem.num_outputs,
      )
    return model

  if threshold is None:
    return build, None
  return build, float(threshold)


@dataclasses.dataclass(frozen=True)
class _Ending:
  """How a Keras model ends: `has_activation` says whether its last layer has one at all."""

  is_softmax: bool
  gives_scores: bool
  has_activation: bool


def _ending(keras: Any) -> _Ending:
  """Finds the last layer that computes something."""
  last = keras.layers[-1]
  # These layers pass on what the activation of one before them gave.
  passing = (tf.keras.layers.Reshape, tf.keras.layers.Flatten, tf.keras.layers.Dropout)
  while isinstance(last, (tf.keras.Model, *passing)):
    below = last.layers if hasattr(last, 'layers') else last.inbound_nodes
    if not below:
      last = None
      break
    last = getattr(below[-1], 'inbound_layers', below[-1])
  activation = getattr(getattr(last, 'activation', None), '__name__', '')
  is_softmax = activation in ('softmax', 'softmax_v2') or isinstance(last, tf.keras.layers.Softmax)
  gives_scores = not is_softmax and activation != 'sigmoid'
  return _Ending(is_softmax, gives_scores, hasattr(last, 'activation'))


def _threshold(ending: _Ending, loss: Any, threshold: float | None) -> float:
  """Returns the threshold of outputs that say yes or no. Raises ValueError if it is needed."""
  if threshold is not None:
    return threshold
  if not ending.gives_scores:
    return 0.5
  if loss is not None or not ending.has_activation:
    raise ValueError(
      'the model has one output for two classes: give threshold=, above which it means the'
      ' second: 0.0 for scores, 0.5 for probabilities, and their loss'
    )
  return 0.0


def _default_metrics(problem: Problem, loss: Any) -> list[str]:
  if problem.classes is not None or problem.targets.has_labels:
    return ['accuracy']
  if loss is None:
    return ['mean_absolute_error']
  return []


def _default_loss(problem: Problem, is_binary: bool, gives_scores: bool) -> Any:
  """Returns Keras's loss for scores or probabilities, or for numbers."""
  if is_binary:
    return tf.keras.losses.BinaryCrossentropy(from_logits=gives_scores)
  if problem.classes is not None:
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=gives_scores)
  _check_meaning(problem)
  if problem.y.dtype.kind != 'f':
    raise ValueError('the targets have several whole numbers for each example: give a loss')
  return tf.keras.losses.MeanSquaredError()


def _check_meaning(problem: Problem) -> None:
  """Raises ValueError for targets of zeros and ones [n, k], whose loss cannot be guessed."""
  y = problem.y
  if problem.classes is not None or len(problem.targets.names or ()) > 1:
    return
  if y.ndim != 2 or y.shape[1] < 2 or not np.isin(y, (0, 1)).all():
    return
  shape = list(y.shape)
  # One-hot labels exclude each other, and need another loss than several labels.
  if (y.sum(1) == 1).all():
    raise ValueError(
      f'the labels are one-hot, {shape}: give class numbers, y.argmax(1), or with a Keras model '
      "loss='categorical_crossentropy'"
    )
  raise ValueError(
    f"the labels are zeros and ones, {shape}: name them by targets=['first', ...] if they are "
    "several labels of an example, or give a Keras model and a loss, such as 'binary_crossentropy' "
    "for labels or 'mean_squared_error' for numbers"
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
  # The number of outputs may be known only after a forward pass.
  x = tf.zeros([1, *problem.x.shape[1:]], spec.dtype)
  weights = tuple(map(tf.convert_to_tensor, model.initial_weights[0]))
  outputs = model.forward(weights, x, False, None).shape[-1]
  _check_outputs(outputs, problem)


def _check_outputs(outputs: int | None, problem: Problem) -> None:
  """Raises ValueError if a model has too few outputs for the classes, or other than targets."""
  wanted = len(problem.classes or ())
  if outputs is not None and outputs < wanted and (wanted, outputs) != (2, 1):
    raise ValueError(
      f'the model has {outputs} outputs, the data have {wanted} classes: give it as many'
    )
  names = problem.targets.names or ()
  if outputs is not None and len(names) > 1 and outputs != len(names):
    raise ValueError(
      f'the model has {outputs} outputs, the data have {len(names)} targets: give it as many'
    )
