"""Which model learns a task on own data: two that are there, Keras models, or a `Model`."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_adaptive import models
from tff_adaptive_tasks import errors
from tff_adaptive_tasks.models import layers

_HIDDEN = {'logistic_regression': (), 'mlp': (100,)}
# Of Keras's losses, which take targets 0 and 1 for scores around 0, and which for numbers from 0 to
# 1: cross-entropies of probabilities, and distances, which are as far from either at 0.5.
_OF_SCORES = ('hinge', 'squaredhinge')
_OF_PROBABILITIES = (
  *('binarycrossentropy', 'binaryfocalcrossentropy', 'meansquarederror', 'meanabsoluteerror'),
  *('huber', 'logcosh'),
)


@dataclasses.dataclass(frozen=True)
class Problem:
  """What a model is to learn.

  Attributes:
    x_shape: The shape of an input.
    y: All targets.
    classes: Labels of the classes, or None.
    x_range: The smallest and the largest number of all inputs, or None.
  """

  x_shape: tuple[int, ...]
  y: np.ndarray
  classes: tuple[Any, ...] | None
  x_range: tuple[float, float] | None = None

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
  if isinstance(model, tf.keras.layers.Layer):
    raise errors.DataError('model is a Keras model: give a function that makes it anew')
  is_keras = _makes_keras(model)
  if not is_keras and (loss is not None or metrics is not None):
    raise errors.DataError('loss and metrics are for Keras models: leave them out')
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
  if problem.x_range is not None:
    check_tokens(made, *problem.x_range)
  metric = 'accuracy' if 'accuracy' in made.metric_names else 'loss'
  specs = made.input_spec
  return build, specs['x'].dtype.as_numpy_dtype, specs['y'].dtype.as_numpy_dtype, metric


def threshold(
  model: str | Callable, problem: Problem, loss: Any, metrics: Sequence[Any] | None
) -> float | None:
  """Above which the one output of a Keras model for two classes means the second.

  Args:
    model: As `builder` takes it, and has checked it.
    problem: What it is to learn.
    loss: A loss of Keras, or None.
    metrics: Metrics of Keras, or None.

  Returns:
    That of a `BinaryAccuracy` among the metrics; else 0 for scores, 0.5 for probabilities; None if
    the loss and the last activation say neither, each class has an output, or Keras has not made
    the model.
  """
  if not _makes_keras(model):
    return None
  made = _maker(model, problem)()
  if not _is_single(made, problem):
    return None
  for metric in metrics or ():
    if isinstance(metric, tf.keras.metrics.BinaryAccuracy):
      return float(metric.get_config()['threshold'])
  return _threshold(made, _default_loss(made, problem) if loss is None else loss)


def predicts_numbers(problem: Problem, loss: Any) -> bool:
  """Whether outputs are predicted numbers themselves, no scores of which the largest counts."""
  is_one_hot = 'categorical' in _loss_name(loss)
  return problem.classes is None and problem.y.dtype.kind == 'f' and not is_one_hot


def check_tokens(model: Any, low: float, high: float) -> None:
  """Refuses inputs that a Keras model's first layer, an Embedding, has no row for.

  Args:
    model: A model; only one of `models.from_keras` is looked at.
    low: The smallest number of the inputs.
    high: The largest.

  Raises:
    DataError: If one of them is outside the rows.
  """
  rows = getattr(model, 'num_tokens', None)
  if rows is not None and not 0 <= low <= high < rows:
    raise errors.DataError(
      f'the inputs go from {low:.10g} to {high:.10g}, but the Embedding behind the input has '
      f'input_dim={rows}, for 0 to {rows - 1}: raise its input_dim to {int(high) + 1} at least, or '
      'number the inputs from 0'
    )


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
  keras = make()
  if not isinstance(keras, tf.keras.Model):
    raise TypeError(f'the function gave {type(keras).__name__}, no tf.keras.Model')
  if not getattr(keras, 'outputs', None):
    raise ValueError(
      f'the Keras model {keras.name!r} does not know its input: make it with the functional API, '
      'or begin a Sequential model with tf.keras.Input(shape)'
    )
  if loss is None:
    loss = _default_loss(keras, problem)
  is_single = _is_single(keras, problem)
  _check_classes(keras.output_shape[-1], problem)
  is_binary = isinstance(loss, tf.keras.losses.BinaryCrossentropy) or is_single
  if metrics is None:
    metrics = _default_metrics(keras, loss, problem, is_single)
  dtype = tf.float32 if is_binary else tf.dtypes.as_dtype(problem.y.dtype)
  y_spec = tf.TensorSpec([None, *problem.y.shape[1:]], dtype)
  return models.from_keras(make, loss, metrics, seed=seed, y_spec=y_spec)


def _makes_keras(model: Any) -> bool:
  """Whether it is a function that makes a Keras model, none of a seed."""
  if not callable(model):
    return False
  needed = _needed(model)
  if len(needed) > 2:
    raise errors.DataError(
      f'the function of the model needs {", ".join(needed)}: it may need nothing, or (shape of an '
      'input, outputs), for a Keras model, or a seed, for a models.Model; give others a default'
    )
  first = next(iter(inspect.signature(model).parameters), None)
  return len(needed) != 1 and not (not needed and first == 'seed')


def _needed(function: Callable) -> list[str]:
  """The arguments that a function has no default for."""
  parameters = inspect.signature(function).parameters.values()
  several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
  return [p.name for p in parameters if p.default is p.empty and p.kind not in several]


def _maker(model: Any, problem: Problem) -> Callable[[], Any]:
  """The function that makes the Keras model, without arguments."""
  if len(_needed(model)) == 2:
    return functools.partial(model, problem.x_shape, problem.num_outputs)
  return model


def _default_loss(keras: Any, problem: Problem) -> Any:
  """Cross-entropy of scores or probabilities, as the last layer gives them; squared error."""
  if problem.classes is None:
    if problem.y.dtype.kind != 'f':
      raise ValueError('for targets of several whole numbers an example, give a loss')
    return tf.keras.losses.MeanSquaredError()
  is_softmax = isinstance(keras.layers[-1], tf.keras.layers.Softmax)
  is_probability = is_softmax or _last_activation(keras) in ('softmax', 'sigmoid')
  if _is_single(keras, problem):
    return tf.keras.losses.BinaryCrossentropy(from_logits=not is_probability)
  return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=not is_probability)


def _is_single(keras: Any, problem: Problem) -> bool:
  """Whether one output says which of two classes it is."""
  return len(problem.classes or ()) == 2 and keras.output_shape[-1] == 1


def _last_activation(keras: tf.keras.Model) -> str:
  return getattr(getattr(keras.layers[-1], 'activation', None), '__name__', '')


def _default_metrics(
  keras: tf.keras.Model, loss: Any, problem: Problem, is_single: bool
) -> list[Any]:
  if problem.classes is None:
    y, output = problem.y.shape[1:], tuple(keras.output_shape[1:])
    if 'sparse' in _loss_name(loss):
      return ['accuracy']
    # A loss of one's own may take targets of which there is no plain error.
    return ['mean_absolute_error'] if output in (y, (*y, 1)) else []
  if not is_single:
    return ['accuracy']
  limit = _threshold(keras, loss)
  if limit is None:
    raise ValueError(
      'the model has one output for two classes, and neither its last activation nor the loss '
      f'{loss!r:.60} says whether that is a score or a probability: give metrics, such as '
      "[tf.keras.metrics.BinaryAccuracy('accuracy', threshold=0.0)] for scores, whose threshold "
      'the labels have too'
    )
  # Keras's 'accuracy' is for probabilities.
  return [tf.keras.metrics.BinaryAccuracy('accuracy', threshold=limit)]


def _loss_name(loss: Any) -> str:
  return str(getattr(loss, 'name', None) or getattr(loss, '__name__', loss)).lower()


def _threshold(keras: tf.keras.Model, loss: Any) -> float | None:
  """0 if the loss is known to take scores, 0.5 for probabilities, None if neither is known."""
  try:
    found = tf.keras.losses.get(loss)
  except (TypeError, ValueError):  # `from_keras` says which there are.
    return None
  options = found.get_config() if isinstance(found, tf.keras.losses.Loss) else {}
  if options.get('from_logits'):
    return 0.0
  if _last_activation(keras) == 'sigmoid':
    return 0.5
  kind = found if hasattr(found, '__name__') else type(found)
  if str(kind.__module__).split('.')[0] != 'keras':
    return None
  name = kind.__name__.lower().replace('_', '')
  return 0.0 if name in _OF_SCORES else 0.5 if name in _OF_PROBABILITIES else None


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
  _check_classes(outputs[-1], problem)


def _check_classes(outputs: int | None, problem: Problem) -> None:
  is_binary = problem.num_outputs == 2 and outputs == 1
  if problem.classes is None or outputs is None or is_binary:
    return
  if outputs < problem.num_outputs:
    raise errors.DataError(
      f'the model has {outputs} outputs, the data have {problem.num_outputs} classes: give it as '
      'many'
    )
