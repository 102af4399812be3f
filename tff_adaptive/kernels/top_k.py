"""The largest numbers of several tensors together, as one operation on a CPU."""

from collections.abc import Sequence

import tensorflow as tf

from tff_adaptive.kernels import library


def keep_largest(tensors: Sequence[tf.Tensor], k: int) -> list[tf.Tensor]:
  """Returns the k numbers of largest magnitude of all tensors, and zeros.

  The numbers are those of `compression.selection.keep_largest`, to the bit.

  Args:
    tensors: float32, with static shapes.
    k: From 1 to the number of all numbers.

  Raises:
    KernelError: If the operation is not available; see `library.load`.
  """
  if k >= sum(tensor.shape.num_elements() for tensor in tensors):
    return list(tensors)
  largest = library.load().tff_adaptive_keep_largest(values=list(tensors), k=k)
  return [tf.ensure_shape(one, tensor.shape) for one, tensor in zip(largest, tensors)]
