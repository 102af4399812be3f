"""Models that compute in 16 bits with weights in 32 bits (Micikevicius et al., 2018)."""

import copy
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tff_adaptive import models

DTYPES = ('bfloat16', 'float16')
LOSS_SCALE = 1024.0  # For float16: its smallest normal number is 6e-5.


def convert(model: models.Model, dtype: str) -> models.Model:
  """Returns the model with predictions, and their gradient, computed in 16 bits.

  `forward` gets floating-point weights and inputs cast to 16 bits, and its predictions are cast
  back to the weights' dtype. Losses, metrics, the penalty and the final gradients have the
  weights' dtype. With float16, gradients are scaled by 1024 inside the model. A client with
  gradients that overflow counts as diverged.

  Args:
    model: The model. Its `forward` must accept weights of the 16-bit dtype.
    dtype: 'bfloat16' or 'float16'.

  Returns:
    A model with the same weights. TFF's own algorithms ignore the conversion and use 32 bits.

  Raises:
    ValueError: If the dtype is neither 'bfloat16' nor 'float16', or the model moves statistics.
  """
  if dtype not in DTYPES:
    raise ValueError(f'dtype is {dtype!r}; it must be one of {", ".join(DTYPES)}')
  if model.statistics:
    raise ValueError(
      'a model with moving statistics computes in 32 bits: leave mixed precision out.'
    )
  compute = tf.dtypes.as_dtype(dtype)
  scale = 1.0
  if dtype == 'float16':
    scale = LOSS_SCALE
  forward = model.forward

  def forward_in_16_bits(weights: Any, x: Any, training: bool, seed: tf.Tensor | None) -> Any:
    dtype_of_weights = weights[0].dtype
    # Divided again where the gradients leave the 16 bits: after the cast, backwards.
    narrow = tuple(tf.cast(_scale_gradient(w, 1 / scale), compute) for w in weights)
    x = tf.nest.map_structure(lambda t: _narrow(t, compute), x)
    predictions = forward(narrow, x, training, seed)

    def widened(prediction: tf.Tensor) -> tf.Tensor:
      return _scale_gradient(tf.cast(prediction, dtype_of_weights), scale)

    return tf.nest.map_structure(widened, predictions)

  converted = copy.copy(model)
  converted.forward = forward_in_16_bits
  return converted


def _narrow(tensor: Any, compute: tf.DType) -> tf.Tensor:
  tensor = tf.convert_to_tensor(tensor)
  if tensor.dtype.is_floating:
    return tf.cast(tensor, compute)
  return tensor


def _scale_gradient(tensor: tf.Tensor, factor: float) -> tf.Tensor:
  """Returns the tensor unchanged, but multiplies its gradient by `factor`."""
  if factor == 1:
    return tensor

  @tf.custom_gradient
  def run(tensor: tf.Tensor) -> tuple[tf.Tensor, Callable[[Any], tf.Tensor]]:
    return tf.identity(tensor), lambda d: tf.convert_to_tensor(d) * tf.cast(factor, tensor.dtype)

  return run(tensor)
