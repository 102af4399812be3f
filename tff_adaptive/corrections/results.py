"""Checks what a correction's methods return, while they are traced.

A user's own correction may return something wrong. The errors raised here name the method; those of
TensorFlow would come many calls later. The checks add only constants to the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tff_adaptive._utils import value_text
from tff_adaptive._utils.lazy_tensorflow import tf
from tff_adaptive.corrections import base


def client_of_zeros(
  theta: base.Weights, state: Any, broadcast: Any, full_gradient: Callable[[], base.Weights]
) -> base.ClientRound:
  """Returns a client for traces that find forms and costs: all that a part may ask for is there.

  Args:
    theta: Zeros in place of the weights.
    state, broadcast: As in `ClientRound`.
    full_gradient: Returns the full gradient.
  """
  one = tf.constant(1.0)

  def class_features(num_classes: int) -> tuple[tf.Tensor, tf.Tensor]:
    size, _ = base.head_shape(theta)
    return tf.zeros([num_classes, size]), tf.zeros([num_classes])

  client = base.ClientRound(theta, state, broadcast, one, one, one, full_gradient)
  return client._replace(
    full_loss=lambda: one,
    label_counts=lambda num_classes: tf.zeros([num_classes]),
    class_features=class_features,
    planned_steps=one,
    seed=tf.zeros([2], tf.int32),
    index=tf.constant(0),
  )


def gradient(
  correction: base.Correction, client: base.ClientRound, theta: base.Weights, g: base.Weights
) -> tuple[base.Weights, Any]:
  """Returns `Correction.gradient`'s gradient and local state; raises TypeError if malformed."""
  corrected: Any = correction.gradient(client, theta, g)
  local_state = client.local_state
  if tf.nest.flatten(local_state):
    corrected, new_state = _pair(correction, 'gradient', corrected, '(gradient, local_state)')
    local_state = _like(correction, 'gradient', new_state, 'a local_state', local_state)
  return _like(correction, 'gradient', corrected, 'a gradient', g), local_state


def begin(
  correction: base.Correction, client: base.ClientRound, theta: base.Weights
) -> base.Weights:
  """Returns `Correction.begin`'s result; raises TypeError if it differs in form from theta."""
  return _like(correction, 'begin', correction.begin(client, theta), 'weights', theta)


def point(
  correction: base.Correction, client: base.ClientRound, theta: base.Weights
) -> base.Weights:
  """Returns `Correction.point`'s result; raises TypeError if it differs in form from theta."""
  return _like(correction, 'point', correction.point(client, theta), 'weights', theta)


def decoded(part: base.Correction, values: tf.Tensor, result: Any) -> tf.Tensor:
  """Returns what `Compressor.compress` returned for values; raises ValueError if malformed."""
  result = tf.convert_to_tensor(result)
  if result.dtype != values.dtype or not result.shape.is_compatible_with(values.shape):
    raise ValueError(
      f'compress of {type(part).__name__} returned {result.dtype.name} {result.shape} for'
      f' {values.dtype.name} {values.shape}: return what the server decodes, with the shape and'
      ' dtype of what is compressed.'
    )
  return result


def loss(correction: base.Correction, client: base.ClientRound, batch: base.Batch) -> tf.Tensor:
  """Returns `Correction.loss`'s result; raises TypeError unless it is a scalar."""
  changed = correction.loss(client, batch)
  check_numbers(correction, 'loss', changed, 'a loss', is_scalar=True)
  return tf.cast(changed, batch.loss.dtype)


def loss_gradient(
  correction: base.Correction, client: base.ClientRound, theta: base.Weights, g: base.Weights
) -> base.Weights:
  """Returns `Correction.loss_gradient`'s result; raises TypeError if it differs in form from g."""
  taken = correction.loss_gradient(client, theta, g)
  return _like(correction, 'loss_gradient', taken, 'a gradient', g)


def moved(
  correction: base.Correction, client: base.ClientRound, before: base.Weights, after: base.Weights
) -> base.Weights:
  """Returns `Correction.moved`'s result; raises TypeError if it differs in form from `after`."""
  return _like(correction, 'moved', correction.moved(client, before, after), 'weights', after)


def update(
  correction: base.Correction, client: base.ClientRound, g_i: base.Weights, steps: tf.Tensor
) -> base.Weights:
  """Returns `Correction.update`'s result; raises TypeError if it differs in form from g_i."""
  return _like(correction, 'update', correction.update(client, g_i, steps), 'weights', g_i)


def restore(correction: base.Correction, server: base.ServerRound) -> base.Weights:
  """Returns `Correction.restore`'s result; raises TypeError if it differs in form from g-bar."""
  return _like(correction, 'restore', correction.restore(server), 'weights', server.g_bar)


def client_update(
  correction: base.Correction, client: base.ClientRound, g_i: base.Weights, steps: tf.Tensor
) -> tuple[Any, Any]:
  """Returns `Correction.client_update`'s state and upload.

  The new state has the container types of the previous one. Raises TypeError if it differs from
  that in structure, dtypes or shapes, or if `client_update` returns no pair.
  """
  returned = correction.client_update(client, g_i, steps)
  state, upload = _pair(correction, 'client_update', returned, '(client_state, upload)')
  state = _like(correction, 'client_update', state, 'a client_state', client.client_state)
  check_numbers(correction, 'client_update', upload, 'an upload')
  return state, upload


def server_update(
  correction: base.Correction, server_state: Any, server: base.ServerRound
) -> tuple[Any, base.Weights, Any]:
  """Returns `server_update`'s result, with () for no factor; raises TypeError if malformed."""
  returned: Any = correction.server_update(server_state, server)
  factor: Any = ()
  if isinstance(returned, tuple) and len(returned) == 3:
    *pair, factor = returned
    returned = tuple(pair)
    check_numbers(correction, 'server_update', factor, 'a factor', is_scalar=True)
    factor = tf.cast(factor, tf.float32)
  state, direction = _pair(correction, 'server_update', returned, '(server_state, direction)')
  state = _like(correction, 'server_update', state, 'a server_state', server_state)
  direction = _like(correction, 'server_update', direction, 'a direction', server.g_bar)
  return state, direction, factor


def check_numbers(
  correction: base.Correction, method: str, found: Any, what: str, is_scalar: bool = False
) -> None:
  """Raises TypeError unless `found` has numbers of known shapes (one scalar if `is_scalar`)."""
  leaves = [found]
  wanted = 'that is a number'
  if not is_scalar:
    leaves = tf.nest.flatten(found)
    wanted = 'of numbers, in tensors of known shapes'
  for leaf in leaves:
    array = leaf
    if not tf.is_tensor(leaf):
      array = np.asarray(leaf)  # None becomes an object array.
    dtype = tf.as_dtype(array.dtype)
    shape = tf.TensorShape(array.shape)
    # The server's sums begin at zeros of the same shapes, which must therefore be known.
    fits = shape.is_fully_defined()
    if is_scalar:
      fits = shape.rank == 0
    is_number = dtype.is_floating or dtype.is_integer
    if not fits or not is_number:
      raise TypeError(
        f'{type(correction).__name__}.{method} must return {what} {wanted}, found'
        f' {value_text.in_text(leaf):.40} of shape {shape}.'
      )


def _pair(correction: base.Correction, method: str, found: Any, what: str) -> Any:
  if not isinstance(found, tuple) or len(found) != 2:
    length = ''
    if isinstance(found, tuple):
      length = f' of {len(found)}'
    raise TypeError(
      f'{type(correction).__name__}.{method} must return the pair {what}, found a'
      f' {type(found).__name__}{length}; give () for a part that is not used.'
    )
  return found


def _like(correction: base.Correction, method: str, found: Any, what: str, wanted: Any) -> Any:
  """Returns `found` in the containers of `wanted`; raises TypeError if dtypes or shapes differ."""
  where = f'{type(correction).__name__}.{method} must return {what}'
  if _structure(found) != _structure(wanted):
    raise TypeError(f'{where} of the form {_structure(wanted)}, found {_structure(found)}.')
  leaves = []
  for leaf, like in zip(tf.nest.flatten(found), map(tf.convert_to_tensor, tf.nest.flatten(wanted))):
    if not tf.is_tensor(leaf):  # A number of Python or NumPy takes the dtype that is wanted.
      leaf = tf.convert_to_tensor(leaf, like.dtype)
    if leaf.dtype != like.dtype or not like.shape.is_compatible_with(leaf.shape):
      raise TypeError(
        f'{where} with a {like.dtype.name} {like.shape}, found a {leaf.dtype.name} {leaf.shape}.'
      )
    leaves.append(leaf)
  # A list for a tuple is fine in Python, but TensorFlow's loops and TFF's types tell them apart.
  return tf.nest.pack_sequence_as(wanted, leaves)


def _structure(tree: Any) -> str:
  """Describes a tree's names and nesting; lists count as tuples, and mappings as dicts."""
  if isinstance(tree, Mapping):
    return f'{{{", ".join(f"{name}: {_structure(tree[name])}" for name in sorted(tree))}}}'
  if isinstance(tree, (tuple, list)):
    return f'({", ".join(map(_structure, tree))})'
  is_number = tf.is_tensor(tree) or isinstance(tree, (np.ndarray, np.generic, int, float))
  if is_number:
    return 'tensor'
  return type(tree).__name__
