"""What parts send besides the update or the model, and which of its tensors are compressed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tff_adaptive._utils.lazy_tensorflow import tf
from tff_adaptive.corrections.base import Correction, Weights


def by_part(parts: Sequence[Correction], upload: Any) -> tuple[Any, ...]:
  """Returns what each part uploads; () if none does."""
  if not tf.nest.flatten(upload):
    return ()
  if len(parts) == 1:
    return (upload,)
  return tuple(upload)


def large(part: Correction, upload: Any) -> Weights:
  """Returns the tensors of what a part sends that are compressed: floats of rank 1 or more."""
  if part.sends_exact:
    return ()
  leaves = map(tf.convert_to_tensor, tf.nest.flatten(upload))
  return tuple(leaf for leaf in leaves if _is_large(leaf))


def replaced(part: Correction, upload: Any, received: list[Weights]) -> Any:
  """Returns an upload with its large tensors from the first of the messages, which is taken."""
  if not large(part, upload):
    return upload
  message = list(received.pop(0))
  leaves = []
  for leaf in map(tf.convert_to_tensor, tf.nest.flatten(upload)):
    if _is_large(leaf):
      leaf = message.pop(0)
    leaves.append(leaf)
  return tf.nest.pack_sequence_as(upload, leaves)


def _is_large(leaf: tf.Tensor) -> bool:
  # A scalar, such as FedNova's |a_i|, costs next to nothing, and its error would be in all weights.
  # Integers count something, and cannot be rounded to a scale.
  return leaf.dtype.is_floating and bool(leaf.shape.rank)
