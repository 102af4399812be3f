"""States as bytes: how a structure of arrays is laid out, checked and distinguished."""

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tree

from tff_adaptive.runs.errors import StateError


class Packer:
  """Turns states of one structure into bytes and back."""

  def __init__(self, initial_state: Any):
    self._structure = initial_state
    leaves = [checked_leaf(leaf) for leaf in tree.flatten(initial_state)]
    self._specs = [(leaf.dtype, leaf.shape) for leaf in leaves]
    self._offsets = []
    offset = 0
    for leaf in leaves:
      self._offsets.append(offset)
      offset += math.ceil(leaf.nbytes / 8) * 8  # every leaf is aligned
    self.size = offset
    self.signature = json.dumps([describe(leaf) for leaf in leaves])
    self._initial = self.unpack(self.pack(initial_state))

  def pack(self, state: Any) -> bytes:
    leaves = [checked_leaf(leaf) for leaf in tree.flatten(state)]
    if [(leaf.dtype, leaf.shape) for leaf in leaves] != self._specs:
      raise StateError(
        f'A client state of {[describe(leaf) for leaf in leaves]} was to be stored among'
        f' states of {self.signature}.'
      )
    buffer = bytearray(self.size)
    for offset, leaf in zip(self._offsets, leaves):
      buffer[offset : offset + leaf.nbytes] = leaf.tobytes()
    return bytes(buffer)

  def unpack(self, blob: bytes | None) -> Any:
    if blob is None:
      return self._initial
    leaves = [
      np.frombuffer(blob, dtype, count=math.prod(shape), offset=offset).reshape(shape)
      for offset, (dtype, shape) in zip(self._offsets, self._specs)
    ]
    return tree.unflatten_as(self._structure, leaves)


def num_bytes(state: Any) -> int:
  """Returns the bytes that one state takes in a file."""
  return Packer(state).size


def checked_leaf(leaf: Any) -> np.ndarray:
  array = np.asarray(leaf)
  if array.dtype.hasobject or array.dtype.kind in 'USV':
    raise StateError(
      f'A state holds {leaf!r:.80} of dtype {array.dtype}; only numbers of dtypes that NumPy has'
      ' can be stored.'
    )
  return array


def describe(leaf: np.ndarray) -> str:
  return f'{leaf.dtype.name}[{",".join(map(str, leaf.shape))}]'


def difference(found: Sequence[np.ndarray], wanted: Sequence[Any]) -> str:
  """Returns how the leaves' shapes and dtypes first differ; '' if they do not.

  Where a shape wanted has a 0, any number will do: something collected, which is empty at first.
  """
  if len(found) != len(wanted):
    return f'{len(found)} leaves, not {len(wanted)}'
  for i, (f, w) in enumerate(zip(found, map(checked_leaf, wanted))):
    fits = len(f.shape) == len(w.shape) and all(a == b or not b for a, b in zip(f.shape, w.shape))
    if f.dtype != w.dtype or not fits:
      return f'leaf {i} is {describe(f)}, not {describe(w)}'
  return ''


def as_kind(stored: np.ndarray, example: Any) -> Any:
  """Returns `stored` as the example's kind: a Python number, a NumPy scalar or an array."""
  if isinstance(example, np.generic):  # Before float: np.float64 is one.
    return stored[()]
  if isinstance(example, (bool, int, float)):
    return stored.item()
  return stored
