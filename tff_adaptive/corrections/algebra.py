"""Arithmetic with weights, which are tuples of tensors, for the formulas of parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from tff_adaptive._utils.lazy_tensorflow import tf

if TYPE_CHECKING:
  from tff_adaptive.corrections.base import ClientRound

  Weights: TypeAlias = tuple[tf.Tensor, ...]
else:  # Its use in annotations must not import TensorFlow.
  Weights = tuple


def estimate(state: Any) -> Weights:
  """Returns the drift estimate of a server's state (h) or a client's (h_i); () if it has none.

  It is the entry or field `h` of the state, weights or one tensor, or those of the states of a
  chain's parts. Metrics use it, and count a client whose h_i is zero as one that takes part for the
  first time.
  """
  if isinstance(state, Mapping):
    return tuple(tf.nest.flatten(state.get('h', ())))
  if hasattr(state, 'h'):
    return tuple(tf.nest.flatten(state.h))
  # A tuple is a chain's state, one for each part, or plain weights such as FedCM's direction, which
  # are no drift estimate.
  if not isinstance(state, (tuple, list)):
    return ()
  if not any(isinstance(of_part, Mapping) for of_part in state):
    return ()
  estimates: Weights = ()
  for state_of_part in state:
    estimates += estimate(state_of_part)
  return estimates


def mean_gradient(client: ClientRound, g_i: Weights, steps: tf.Tensor) -> Weights:
  """Returns g_i / (steps * client.eta_l), with SGD the mean corrected gradient; 0 for no steps."""
  inverse = tf.math.divide_no_nan(1.0, steps * client.eta_l)
  return combine(lambda g: scale(inverse, g), g_i)


def mean(total: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
  """Returns total / count, or 0 if the count is 0; a total of integers is cast to float32."""
  if not total.dtype.is_floating:
    total = tf.cast(total, tf.float32)
  return tf.math.divide_no_nan(total, tf.cast(count, total.dtype))


def zeros(weights: Weights) -> Weights:
  """Returns zeros with the shapes and dtypes of the weights."""
  return tuple(tf.zeros_like(w) for w in weights)


def combine(fn: Callable[..., tf.Tensor], *trees: Weights) -> Weights:
  """Returns `fn` of the first tensors of all trees, `fn` of their second tensors, and so on."""
  return tuple(fn(*leaves) for leaves in zip(*trees))


def scale(factor: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
  """Returns factor * weight in the weight's dtype; a factor [G] multiplies a weight [G, ...]."""
  # Most factors are float32, and TensorFlow multiplies no float32 with a bfloat16 or a float64.
  factor = tf.cast(factor, weight.dtype)
  # Clients of a group have a factor each, which multiplies the client's part of the weight.
  if factor.shape.rank:
    factor = tf.reshape(factor, [-1] + [1] * (weight.shape.rank - 1))
  return factor * weight


def norm(tree: Weights) -> tf.Tensor:
  """Returns the 2-norm of all weights together, float32."""
  return tf.sqrt(squared_norm(tree))


def squared_norm(tree: Weights, group_size: int | None = None) -> tf.Tensor:
  """Returns the squared 2-norm of all weights together, float32; [G] for a group of G clients."""
  client_axis = [] if group_size is None else [group_size]
  if not tree:
    return tf.zeros(client_axis)
  wide = [_at_least_float32(w) for w in tree]
  # `tf.nn.l2_loss` would be a loop over the clients of a group.
  rows = [tf.reshape(w, [*client_axis, -1]) for w in wide]
  return tf.add_n([tf.cast(tf.reduce_sum(r * r, -1), tf.float32) for r in rows])


def _at_least_float32(weight: tf.Tensor) -> tf.Tensor:
  """Returns a weight in float32, or as it is in a wider dtype."""
  # In 16 bits a square overflows for weights above 255 and vanishes below 2^-12.
  if weight.dtype.size > 4:
    return weight
  return tf.cast(weight, tf.float32)


def head_shape(weights: Weights) -> tuple[int, int]:
  """Returns the numbers of features and of outputs of a dense last layer, from the last matrix.

  Raises:
    ValueError: If there is no matrix.
  """
  # Weights are in the order of the layers, and a bias of the last one is no matrix.
  matrices = [weight for weight in weights if weight.shape.rank == 2]
  if not matrices:
    raise ValueError(
      'the algorithm needs a classifier whose last layer is dense; the model has no matrix: take'
      ' another algorithm.'
    )
  size, outputs = matrices[-1].shape
  return size, outputs


def only(mask: tuple[bool, ...], weights: Weights) -> Weights:
  """Returns the weights that a mask selects."""
  return tuple(w for w, is_selected in zip(weights, mask) if is_selected)


def merged(mask: tuple[bool, ...], selected: Weights, weights: Weights) -> Weights:
  """Returns the weights with `selected` in place of those that a mask selects."""
  if not any(mask):
    return weights
  values = iter(selected)
  new_weights = []
  for weight, is_selected in zip(weights, mask):
    if is_selected:
      weight = next(values)
    new_weights.append(weight)
  return tuple(new_weights)


def either(a: tuple[bool, ...], b: tuple[bool, ...]) -> tuple[bool, ...]:
  """Returns the mask of what one of two masks selects; () selects nothing."""
  if not a or not b:
    return a or b
  return tuple(one or other for one, other in zip(a, b))
