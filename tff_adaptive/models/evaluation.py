"""Evaluates a model on arrays of examples."""

import collections
import concurrent.futures as futures
import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from tff_adaptive.devices import threads
from tff_adaptive.models import model as model_lib

_MOST_OUTPUTS = 1_000_000  # Of a batch of constant outputs.

_Weights: TypeAlias = Sequence[tf.Tensor]
_SumsOf: TypeAlias = Callable[..., Mapping[str, tf.Tensor]]


def build_evaluation(
  model: model_lib.Model, batch_size: int = 500
) -> Callable[[Any, Any], dict[str, float]]:
  """Builds the centralised evaluation of a model on arrays of examples.

  Args:
    model: The model.
    batch_size: Number of examples evaluated at once. With `couples_examples` it is ignored.

  Returns:
    `(weights, data) -> {metric: float}`. `weights` are the trainable weights (tensors or arrays).
    `data` is an `OrderedDict(x=array[n, ...], y=array[n, ...])`, n >= 1, cast to the model's types.
  """

  weight_specs = tuple(tf.TensorSpec(w.shape, w.dtype) for w in model.initial_weights[0])

  @tf.function(input_signature=(weight_specs, *model.input_spec.values()), autograph=False)
  def batch_sums(weights: _Weights, x: tf.Tensor, y: tf.Tensor) -> collections.OrderedDict:
    return model.evaluation_sums(weights, x, y)

  # Concrete, because that of a program's fifth evaluation would warn of retracing.
  traced = functools.cache(batch_sums.get_concrete_function)

  def evaluate(weights: Any, data: Any) -> dict[str, float]:
    sums_of = traced()  # Not in the threads, each of which would trace.
    return _evaluate(model, sums_of, tuple(map(tf.convert_to_tensor, weights)), data, batch_size)

  return evaluate


def evaluate_constant(model: model_lib.Model, values: np.ndarray, data: Any) -> dict[str, float]:
  """Evaluates the same outputs for every example, in place of the model's.

  The metrics are computed without a graph, whose making would take longer.

  Args:
    model: The model, of whose outputs only the shape is used.
    values: The outputs for an example, as many as the model has.
    data: As for the function of `build_evaluation`.

  Returns:
    The metrics by name.
  """
  weights = tuple(map(tf.convert_to_tensor, model.initial_weights[0]))
  outputs = example_outputs(model)
  row = tf.reshape(tf.constant(np.ravel(values), outputs.dtype), [1, *outputs.shape[1:]])
  constant = copy.copy(model)
  constant.forward = lambda weights, x, training, seed: tf.repeat(row, tf.shape(x)[0], axis=0)
  batch_size = max(500, _MOST_OUTPUTS // max(1, np.size(values)))
  return _evaluate(constant, constant.evaluation_sums, weights, data, batch_size)


def example_outputs(model: model_lib.Model) -> Any:
  """Returns outputs for one example, of which only the dtype and the shape behind [0] count."""
  spec = model.input_spec['x']
  weights = tuple(map(tf.convert_to_tensor, model.initial_weights[0]))
  try:
    x = tf.zeros([size or 1 for size in spec.shape], spec.dtype)
    return model.forward(weights, x, False, None)
  except Exception:  # A model may refuse zeros. A trace takes longer, and needs no example.
    forward = tf.function(lambda x: model.forward(weights, x, False, None), autograph=False)
    return forward.get_concrete_function(spec).structured_outputs


def _evaluate(
  model: model_lib.Model, sums_of: _SumsOf, weights: _Weights, data: Any, batch_size: int
) -> dict[str, float]:
  """Returns the metrics by name; `sums_of` returns the sums of a batch (weights, x, y)."""
  n = len(data['y'])
  if n == 0:
    raise ValueError('the evaluation data are empty: at least one example is needed')
  size = batch_size
  if model.couples_examples:
    size = n

  def sums_from(start: int) -> dict[str, np.ndarray]:
    batch = (
      tf.cast(data[name][start : start + size], spec.dtype)
      for name, spec in model.input_spec.items()
    )
    return {k: np.asarray(v, np.float64) for k, v in sums_of(weights, *batch).items()}

  # In parallel, as an operation may have one thread; sums are added in order, for equal bits.
  with futures.ThreadPoolExecutor(threads.side_by_side()) as pool:
    batches = list(pool.map(sums_from, range(0, n, size)))
  values = {}
  for name, first in batches[0].items():
    total = sum((batch[name] for batch in batches), np.zeros_like(first))
    values[name] = float(model.metric_value(name, total))
  return values
