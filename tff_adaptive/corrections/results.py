"""What a correction's functions return, checked while they are traced.

A correction may be a user's own: what it gets wrong is said here, in its own words, and not by
TensorFlow, many calls further on. Nothing is added to the graph but constants.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tff_adaptive.corrections import base


def gradient(
  correction: base.Correction, client: base.ClientRound, theta: base.Weights, g: base.Weights
) -> base.Weights:
  """`Correction.gradient`; TypeError if it is not like `g`."""
  return _weights(correction, 'gradient', correction.gradient(client, theta, g), g)


def client_update(
  correction: base.Correction,
  client: base.ClientRound,
  g_i: base.Weights,
  steps: tf.Tensor,
  group_size: int | None = None,
) -> tuple[Any, Any]:
  """`Correction.client_update`, its state in the containers of the former one.

  TypeError if it is no pair, or the state has another structure, dtype or shape. In a group a leaf
  of the state may be the same for all clients, without their axis.
  """
  found = correction.client_update(client, g_i, steps)
  state, upload = _pair(correction, 'client_update', found, '(client_state, upload)')
  wanted = client.client_state
  state = _state(correction, 'client_update', state, 'client_state', wanted, group_size)
  return state, upload


def server_update(
  correction: base.Correction, server_state: Any, server: base.ServerRound
) -> tuple[Any, base.Weights]:
  """`Correction.server_update`; TypeError as of `client_update`, or of a direction unlike g-bar."""
  found = correction.server_update(server_state, server)
  state, direction = _pair(correction, 'server_update', found, '(server_state, direction)')
  state = _state(correction, 'server_update', state, 'server_state', server_state)
  return state, _weights(correction, 'server_update', direction, server.g_bar)


def _weights(correction: base.Correction, method: str, found: Any, like: base.Weights) -> Any:
  where = f'{type(correction).__name__}.{method} must return'
  if not isinstance(found, (tuple, list)) or len(found) != len(like):
    raise TypeError(
      f'{where} a tuple of {len(like)} tensors like the weights, found {_structure(found)}:'
      ' corrections.base.combine makes one, weight by weight.'
    )
  for i, (leaf, wanted) in enumerate(zip(found, like)):
    dtype, shape = getattr(leaf, 'dtype', None), getattr(leaf, 'shape', None)
    if dtype != wanted.dtype or not wanted.shape.is_compatible_with(shape):
      raise TypeError(
        f'{where} tensors like the weights: weight {i} is {wanted.dtype.name} {wanted.shape},'
        f' found {getattr(dtype, "name", type(leaf).__name__)} {shape}.'
      )
  return found


def _pair(correction: base.Correction, method: str, found: Any, what: str) -> Any:
  if not isinstance(found, tuple) or len(found) != 2:
    raise TypeError(
      f'{type(correction).__name__}.{method} must return the pair {what}, found a'
      f' {type(found).__name__}; give () for a part that is not used.'
    )
  return found


def _state(
  correction: base.Correction,
  method: str,
  found: Any,
  what: str,
  wanted: Any,
  group_size: int | None = None,
) -> Any:
  where = f'{type(correction).__name__}.{method} must return a {what}'
  if _structure(found) != _structure(wanted):
    raise TypeError(
      f'{where} of the structure of the one before, {_structure(wanted)}, found'
      f' {_structure(found)}.'
    )
  leaves = []
  for leaf, like in zip(tf.nest.flatten(found), map(tf.convert_to_tensor, tf.nest.flatten(wanted))):
    if not tf.is_tensor(leaf):  # A number of Python or NumPy takes the dtype that is wanted.
      leaf = tf.convert_to_tensor(leaf, like.dtype)
    fits = like.shape.is_compatible_with(leaf.shape) or (
      group_size is not None and like.shape[1:].is_compatible_with(leaf.shape)
    )
    if leaf.dtype != like.dtype or not fits:
      raise TypeError(
        f'{where} like the one before: {like.dtype.name} {like.shape} became {leaf.dtype.name}'
        f' {leaf.shape}.'
      )
    leaves.append(leaf)
  return tf.nest.pack_sequence_as(wanted, leaves)


def _structure(tree: Any) -> str:
  """The names and the nesting of a tree; lists are as good as tuples, any mapping as a dict."""
  if isinstance(tree, Mapping):
    return f'{{{", ".join(f"{name}: {_structure(tree[name])}" for name in sorted(tree))}}}'
  if isinstance(tree, (tuple, list)):
    return f'({", ".join(map(_structure, tree))})'
  is_number = tf.is_tensor(tree) or isinstance(tree, (np.ndarray, np.generic, int, float))
  return 'tensor' if is_number else type(tree).__name__
