"""Memory for the concatenated arrays of a cohort, which is reused from round to round.

A new page of memory costs more than the copy into it. Therefore the arrays of a round are written
into the memory of the previous round's arrays, once no tensor refers to that memory.
"""

import threading

import numpy as np
import tensorflow as tf

from tff_adaptive._utils import private_apis

_ALIGNMENT = 64  # Bytes. TensorFlow shares memory only if it has the alignment of its own.
_KINDS = 'fiu'  # The kinds of NumPy dtypes that DLPack supports.


class Buffers:
  """A pool of memory. Call `collect` once a round, to free buffers that the round did not use."""

  def __init__(self) -> None:
    self._lock = threading.Lock()
    self._buffers: list[np.ndarray] = []
    self._taken: set[int] = set()

  def join(self, arrays: list[np.ndarray]) -> tf.Tensor:
    """Concatenates arrays along their first dimension, with a single copy."""
    first = arrays[0]
    length = sum(len(array) for array in arrays)
    shape = (length, *first.shape[1:])
    size = int(np.prod(shape)) * first.dtype.itemsize
    if first.dtype.kind not in _KINDS or not size:
      return tf.convert_to_tensor(np.concatenate(arrays))
    joined = self._take(size).view(first.dtype).reshape(shape)
    np.concatenate(arrays, out=joined)
    return tf.experimental.dlpack.from_dlpack(joined.__dlpack__())

  def _take(self, size: int) -> np.ndarray:
    """Returns `size` bytes of aligned memory, not given out again while a view of it exists."""
    with self._lock:
      counts = private_apis.reference_counts(self._buffers)
      free = [
        buffer
        for buffer, count in zip(self._buffers, counts)
        if count == _FREE and size + _ALIGNMENT <= len(buffer)
      ]
      if free:
        buffer = min(free, key=len)  # The smallest that fits; larger ones may be needed next.
      else:
        buffer = np.empty(size + _ALIGNMENT, np.uint8)
        self._buffers.append(buffer)
      self._taken.add(id(buffer))
      # NumPy aligns memory less strictly, so up to 63 bytes are left unused.
      start = -buffer.ctypes.data % _ALIGNMENT
      return buffer[start : start + size]

  def collect(self) -> None:
    """Frees the buffers that were not used since the previous call of this method."""
    with self._lock:
      self._buffers = [b for b in self._buffers if id(b) in self._taken]
      self._taken.clear()


_FREE = private_apis.reference_counts([np.empty(1)])[0]  # Count if only a list refers to it.
