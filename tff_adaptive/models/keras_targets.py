"""Which targets fit a Keras model's output: others are broadcast without a word."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

_EXAMPLES = 3


def check_loss(name: str, is_sparse: bool, y: tf.TensorShape, output: tf.TensorShape) -> None:
  """Refuses targets that one of Keras's losses would compare with other examples' outputs.

  Args:
    name: The loss's name.
    is_sparse: Whether it takes class numbers.
    y: The shape of a batch of targets.
    output: That of the predictions.

  Raises:
    ValueError: If class numbers have not the output's shape without its last dimension, [..., C];
      or other targets not the output's. A last dimension of 1 may be left out.
  """
  if y.rank is None or output.rank is None:
    return
  if is_sparse:
    classes = output[:-1]
    fits = output.rank > 1 and any(map(y.is_compatible_with, (classes, [*classes, 1])))
    wanted = f'an output of shape {_shown([*y, "classes"])}'
  else:
    is_one_less = output.rank == y.rank + 1 and output[-1] == 1
    fits = y.is_compatible_with(output) or (is_one_less and y.is_compatible_with(output[:-1]))
    also = ' or [B, 1]' if y.rank == 1 else ''
    wanted = f'an output of shape {_shown(y)}{also}'
  if not fits:
    raise ValueError(
      f'the targets have shape {_shown(y)} and the output of the Keras model has {_shown(output)}: '
      f'the loss {name!r} takes {wanted} for these; change the last layers (return_sequences, '
      'Flatten, Dense), or give targets that fit them'
    )


def check_alone(
  measure: Callable[[tf.Tensor, tf.Tensor], Any],
  what: str,
  y_spec: tf.TensorSpec,
  output_shape: tf.TensorShape,
) -> None:
  """Refuses a loss or a metric that gives an example another value in a batch than alone.

  Args:
    measure: `(predictions, y) -> tensor or tensors [B]`.
    what: It, for the message.
    y_spec: Spec of the targets.
    output_shape: The shape of the predictions.

  Raises:
    ValueError: If it does, such as by broadcasting [B] with [B, T, 1], or fails on such shapes.
  """
  if y_spec.shape.rank is None or output_shape.rank is None or y_spec.dtype == tf.string:
    return
  rng = np.random.default_rng(0)
  # Numbers that are probabilities too; classes that every model has.
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
    if values.shape[:1] != [_EXAMPLES] or not np.allclose(
      values, tf.concat(alone, 0), rtol=1e-3, atol=1e-5, equal_nan=True
    ):
      raise ValueError(
        f'{what} gives an example another value in a batch than alone, with {shapes}: it must give '
        'each example its own, [B] or [B, ...], of its own target; bring both to one shape'
      )


def _sizes(shape: tf.TensorShape) -> list[int]:
  return [_EXAMPLES, *(4 if size is None else size for size in shape[1:])]


def _shown(shape: Sequence[Any]) -> str:
  """[B, 4, classes]; a dimension of any size is a question mark."""
  return f'[{", ".join(["B", *("?" if size is None else str(size) for size in list(shape)[1:])])}]'
