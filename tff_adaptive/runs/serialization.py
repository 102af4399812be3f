"""Converts states, which are structures of arrays, to bytes and back, and names their leaves."""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tree

from tff_adaptive._utils import value_text
from tff_adaptive.runs.errors import StateError


class Packer:
  """Converts states with the structure of `initial_state` to bytes and back.

  Attributes:
    size: The number of bytes of a packed state.
    signature: The layout of a state, as JSON: the name of each leaf, its dtype and its shape.
  """

  def __init__(self, initial_state: Any):
    self._structure = initial_state
    leaves = named_leaves(initial_state)
    self._specs = [(leaf.dtype, leaf.shape) for leaf in leaves.values()]
    self._offsets = []
    self.size = 0
    for leaf in leaves.values():
      self._offsets.append(self.size)
      self.size += math.ceil(leaf.nbytes / 8) * 8  # To align the next leaf.
    self.signature = json.dumps({name: _describe(leaf) for name, leaf in leaves.items()})
    # Its arrays are read-only too: clients without a state share them.
    self._initial = self.unpack(self.pack(initial_state))

  def pack(self, state: Any) -> bytes:
    """Returns a state as bytes. Raises StateError if its layout is not that of `initial_state`."""
    leaves = [checked_leaf(leaf) for leaf in tree.flatten(state)]
    if [(leaf.dtype, leaf.shape) for leaf in leaves] != self._specs:
      raise StateError(
        f'A client state of {[_describe(leaf) for leaf in leaves]} was to be stored among'
        f' states of {self.signature}.'
      )
    buffer = bytearray(self.size)
    for offset, leaf in zip(self._offsets, leaves):
      buffer[offset : offset + leaf.nbytes] = leaf.tobytes()
    return bytes(buffer)

  def unpack(self, blob: bytes | None) -> Any:
    """Returns the state in the bytes, with read-only arrays; None gives the initial state."""
    if blob is None:
      return self._initial
    leaves = [
      np.frombuffer(blob, dtype, count=math.prod(shape), offset=offset).reshape(shape)
      for offset, (dtype, shape) in zip(self._offsets, self._specs)
    ]
    return tree.unflatten_as(self._structure, leaves)


def named_leaves(state: Any) -> dict[str, np.ndarray]:
  """Returns a state's leaves by path, such as 'inference_weights/0' (escaped as in RFC 6901)."""
  return {_name(path): checked_leaf(leaf) for path, leaf in tree.flatten_with_path(state)}


def restored(like: Any, leaves: Mapping[str, np.ndarray]) -> Any:
  """Returns a structure like `like` from leaves that were stored by name.

  A dimension of 0 in `like` accepts any size, because some leaves grow and are empty at first.

  Raises:
    StateError: If names, shapes or dtypes differ from `like`. The message has the first difference.
  """
  wanted = named_leaves(like)
  # The order is that of the structure, so that the message names its first difference.
  for name in {**wanted, **leaves}:
    leaf = leaves.get(name)
    expected = wanted.get(name)
    if leaf is None or expected is None or not _fits(leaf, expected):
      raise StateError(f'leaf {name} is {_describe(leaf)}, not {_describe(expected)}')
  return tree.map_structure_with_path(lambda path, leaf: _as_kind(leaves[_name(path)], leaf), like)


def checked_leaf(leaf: Any) -> np.ndarray:
  """Returns a leaf as a NumPy array. Raises StateError if its dtype cannot be stored."""
  array = np.asarray(leaf)
  if array.dtype.hasobject or array.dtype.kind in 'USV':
    raise StateError(
      f'A state holds {value_text.in_text(leaf):.80} of dtype {array.dtype}; only numbers of dtypes'
      ' that NumPy has can be stored.'
    )
  return array


def _describe(leaf: np.ndarray | None) -> str:
  if leaf is None:
    return 'absent'
  return f'{leaf.dtype.name}[{",".join(map(str, leaf.shape))}]'


def _name(path: tuple[Any, ...]) -> str:
  return '/'.join(str(key).replace('~', '~0').replace('/', '~1') for key in path)


def _fits(leaf: np.ndarray, wanted: np.ndarray) -> bool:
  """Returns whether dtypes and shapes are equal; a wanted size of 0 accepts any."""
  if leaf.dtype != wanted.dtype or leaf.ndim != wanted.ndim:
    return False
  return all(size == expected or expected == 0 for size, expected in zip(leaf.shape, wanted.shape))


def _as_kind(stored: np.ndarray, example: Any) -> Any:
  """Converts `stored` to the example's type: a Python number, a NumPy scalar or an array."""
  if isinstance(example, np.generic):  # First, since np.float64 is a float.
    return stored[()]
  if isinstance(example, (bool, int, float)):
    return stored.item()
  return stored
