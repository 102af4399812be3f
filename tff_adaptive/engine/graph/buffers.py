"""Memory for the joined arrays of a cohort, which is reused from round to round.

A fresh page costs more than the copy into it. Therefore the feeds of a round use the memory of the
last round's feeds, once no tensor refers to it.
"""

import threading

import numpy as np
import tensorflow as tf

from tff_adaptive._utils import private_apis

_ALIGNMENT = 64  # Bytes; TensorFlow shares memory only if it is aligned as its own.
_KINDS = 'fiu'  # Of NumPy: what DLPack carries.


class Buffers:
  """A pool of buffers; `collect` frees those that were not used since the last call."""

  def __init__(self) -> None:
    self._lock = threading.Lock()
    self._buffers: list[np.ndarray] = []
    self._taken: set[int] = set()

  def join(self, arrays: list[np.ndarray]) -> tf.Tensor:
    """Concatenates arrays along their first dimension, with a single copy."""
    first, length = arrays[0], sum(len(a) for a in arrays)
    shape = (length, *first.shape[1:])
    size = int(np.prod(shape)) * first.dtype.itemsize
    if first.dtype.kind not in _KINDS or not size:
      return tf.convert_to_tensor(np.concatenate(arrays))
    joined = self._take(size).view(first.dtype).reshape(shape)
    np.concatenate(arrays, out=joined)
    return tf.experimental.dlpack.from_dlpack(joined.__dlpack__())

  def _take(self, size: int) -> np.ndarray:
    """Returns aligned memory that nobody else gets while a view of it lives."""
    with self._lock:
      counts = private_apis.reference_counts(self._buffers)
      free = [
        buffer
        for buffer, count in zip(self._buffers, counts)
        if count == _FREE and size + _ALIGNMENT <= len(buffer)
      ]
      if free:
        buffer = min(free, key=len)
      else:
        buffer = np.empty(size + _ALIGNMENT, np.uint8)
        self._buffers.append(buffer)
      self._taken.add(id(buffer))
      start = -buffer.ctypes.data % _ALIGNMENT
      return buffer[start : start + size]

  def collect(self) -> None:
    """Frees the buffers that were not taken since the last call."""
    with self._lock:
      self._buffers = [b for b in self._buffers if id(b) in self._taken]
      self._taken.clear()


_FREE = private_apis.reference_counts([np.empty(1)])[0]  # Of an array that only its list knows.
