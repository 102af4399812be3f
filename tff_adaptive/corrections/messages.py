"""The messages of a client: compressed by the compressors of a chain, and their size in bits.

A client's messages are its update and, for each other part, what `client_update` uploads. They are
compressed when all parts have made them, whatever the order of the parts.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from tff_adaptive._utils import seeds
from tff_adaptive._utils.lazy_tensorflow import tf
from tff_adaptive.compression import bits as bits_lib
from tff_adaptive.corrections import (
  compressed,
  low_rank,
  memories as memories_lib,
  scaffold,
  uploads as uploads_lib,
)
from tff_adaptive.corrections.base import Correction, Weights, combine, squared_norm


class Compression(NamedTuple):
  """How the messages of a client are compressed.

  Attributes:
    compressors: The compressors in order.
    feedback: The part with the clients' memory; None without error feedback.
  """

  compressors: tuple[compressed.Compressor, ...]
  feedback: compressed.EF14 | compressed.EF21 | None


def compression_of(parts: Sequence[Correction]) -> Compression:
  """Returns the compression that the parts of a chain stand for; without compressors if none."""
  compressors = [
    part for part in parts if isinstance(part, compressed.Compressor) and not part.compresses_down
  ]
  of_clients = [part for part in parts if isinstance(part, (compressed.EF14, compressed.EF21))]
  if not of_clients:
    return Compression(tuple(compressors), None)
  # `check` lets one compressor have feedback, so there is one memory for all of them.
  feedback = of_clients[0]
  # Random compressors are unbiased without feedback, and contractions with it.
  return Compression(tuple(c.with_feedback(feedback.name) for c in compressors), feedback)


def check(parts: Sequence[Correction]) -> None:
  """Raises ValueError unless the compressors among the parts can follow one another.

  Args:
    parts: The parts of a chain, before `Correction.parts` of compressors are taken.
  """
  compressors = [part for part in parts if isinstance(part, compressed.Compressor)]
  _check_order([part for part in compressors if not part.compresses_down])
  downwards = [part for part in compressors if part.compresses_down]
  _check_order(downwards)
  for part in parts:
    if downwards and isinstance(part, scaffold.ScaffoldM):
      raise ValueError(
        f'{part.name} does not go with {downwards[0].name}: its server takes clients to have the h'
        ' that it has itself; take scaffold, which is the same algorithm in other messages.'
      )


def _check_order(compressors: Sequence[compressed.Compressor]) -> None:
  """Raises ValueError unless compressors of one direction can follow one another."""
  # Neighbours are enough: behind a format nothing may follow, so there are two at most.
  for before, after in itertools.pairwise(compressors):
    if not isinstance(before, compressed.Selection):
      raise ValueError(
        f'{after.name} cannot follow {before.name}, which sends codes: let a selection such as'
        ' top_k come first, and name one format at most.'
      )
    if isinstance(after, low_rank.LowRank):
      raise ValueError(
        f'{after.name} cannot follow {before.name}: it needs matrices; leave one of them out.'
      )
    if isinstance(after, compressed.Selection):
      raise ValueError(f'{after.name} cannot follow {before.name}, which selects too: name one.')
    if after.feedback != 'none' and not after.compresses_down:
      raise ValueError(
        f'feedback of {after.name} is {after.feedback}, but {before.name} compresses before it:'
        f' give it as {before.name}.feedback, which is around both.'
      )
    if before.feedback != 'none':
      after.with_feedback(before.feedback)  # It may refuse, as one bit does.


def is_compressed(correction: Correction) -> bool:
  """Returns whether a part of a correction compresses messages."""
  return any(part.compresses for part in correction.parts)


def send(
  correction: Correction, update: Weights, state: Any, upload: Any, seed: tf.Tensor
) -> tuple[Weights, Any, Any]:
  """Returns a client's update, state and upload with the messages as the server decodes them.

  Args:
    correction: The part or the chain.
    update: The result of `Correction.update`.
    state, upload: The results of `Correction.client_update`.
    seed: int32 [2], of the client's draws in this round.
  """
  parts = correction.parts
  compression = compression_of(parts)
  if not compression.compressors:
    return update, state, upload
  uploads = uploads_lib.by_part(parts, upload)
  messages = [update]
  are_added_up = [any('update' in part.adds_up for part in parts)]
  for part, of_part in zip(parts, uploads):
    large = uploads_lib.large(part, of_part)
    if large:
      messages.append(large)
      are_added_up.append('upload' in part.adds_up)
  memories = memories_lib.of_messages(parts, state, *memories_lib.FEEDBACK)
  factors = memories_lib.of_messages(parts, state, low_rank.LowRank)
  # Each message is compressed by itself: norms and thresholds of an update say nothing of an
  # upload.
  received = []
  lost: list[Weights] = []
  new_memories = []
  new_factors = []
  for i, message in enumerate(messages):
    asked = message
    feedback = compression.feedback
    if feedback is not None and are_added_up[i]:
      feedback = feedback.of_sum()
    if feedback is not None:
      asked = feedback.before(message, memories[i])
    of_message: Any = ()
    if factors:
      of_message = factors[i]
    decoded, of_message = compress_finite(
      compression.compressors, asked, seeds.fold(seed, i), of_message
    )
    new_factors.append(of_message)
    if feedback is None:
      lost.append(combine(tf.subtract, message, decoded))
    else:
      decoded, memory = feedback.after(asked, decoded, memories[i])
      new_memories.append(memory)
      if isinstance(feedback, compressed.EF14) and feedback.decay != 1:
        lost.append(feedback.lost(memories[i]))
    received.append(decoded)
  if memories:
    state = memories_lib.with_new(parts, state, new_memories, *memories_lib.FEEDBACK)
  if factors:
    state = memories_lib.with_new(parts, state, new_factors, low_rank.LowRank)
  if len(lost) == len(messages) and correction.overrides('after_loss'):
    state = _after_loss(correction, state, uploads, lost)
  new_update = received.pop(0)
  pairs = zip(parts, uploads)
  new_uploads = tuple(uploads_lib.replaced(part, one, received) for part, one in pairs)
  if correction.overrides('compressed_upload') and new_uploads:
    share = tf.math.divide_no_nan(squared_norm(new_update), squared_norm(update))
    pairs = zip(parts, new_uploads)
    new_uploads = tuple(part.compressed_upload(of_part, share) for part, of_part in pairs)
  if not tf.nest.flatten(upload):
    return new_update, state, upload
  if len(parts) == 1:
    return new_update, state, new_uploads[0]
  return new_update, state, new_uploads


def _after_loss(
  correction: Correction, state: Any, uploads: Sequence[Any], lost: Sequence[Weights]
) -> Any:
  """Returns a client's state after a part of its messages was lost.

  Args:
    correction: The part or the chain.
    state: The client's new state.
    uploads: What each part uploads; () if none does.
    lost: What was left out of the update, and of each part's large tensors.
  """
  parts = correction.parts
  of_messages = list(lost)
  of_sent = list(of_messages.pop(0))
  of_update: list[Any] = []
  for is_unsent in correction.unsent or [False] * len(of_sent):
    if is_unsent:
      of_update.append(0.0)  # Nothing is lost of weights that are not sent, of any dtype.
    else:
      of_update.append(of_sent.pop(0))
  states = list(state) if len(parts) > 1 else [state]
  of_uploads: list[Any] = [()] * len(parts)
  for i, upload in enumerate(uploads):
    # Small tensors are sent as they are.
    nothing_lost = tf.nest.map_structure(tf.zeros_like, upload)
    of_uploads[i] = uploads_lib.replaced(parts[i], nothing_lost, of_messages)
  for i, part in enumerate(parts):
    states[i] = part.after_loss(states[i], tuple(of_update), of_uploads[i])
  return tuple(states) if len(parts) > 1 else states[0]


def send_each(
  correction: Correction,
  group_size: int | None,
  update: Weights,
  state: Any,
  upload: Any,
  seed: tf.Tensor,
) -> tuple[Weights, Any, Any]:
  """Calls `send` for a client, or for each of a group, whose tensors have a leading axis."""
  if group_size is None:
    return send(correction, update, state, upload, seed)
  # One after another, with the same operations as for a client alone: so with the same bits.
  results_of_group = tf.nest.map_structure(
    lambda leaf: tf.TensorSpec(leaf.shape[1:], leaf.dtype), (update, state, upload)
  )
  return tf.map_fn(
    lambda of_client: send(correction, *of_client),
    (update, state, upload, seed),
    fn_output_signature=results_of_group,
  )


def compress_finite(
  compressors: Sequence[compressed.Compressor], message: Weights, seed: tf.Tensor, factors: Weights
) -> tuple[Weights, Weights]:
  """Returns what the server decodes of a message, and the new factors of a low-rank compressor.

  A message that is not finite is returned as it is, and one without tensors.
  The client then counts as diverged, whatever a compressor would make of NaN or infinity.
  """
  if not message:
    return message, factors
  if len(compressors) == 1 and compressors[0].keeps_non_finite:
    return _compress(compressors, message, seed), factors
  # A sum of squares that overflows counts as not finite, as in `local_loop`.
  squares = [tf.cast(tf.nn.l2_loss(leaf), tf.float32) for leaf in message]
  is_finite = tf.math.is_finite(tf.add_n(squares))

  def compress() -> tuple[Weights, Weights]:
    if isinstance(compressors[0], low_rank.LowRank):
      return compressors[0].decode(message, factors)
    return _compress(compressors, message, seed), factors

  return tf.cond(is_finite, compress, lambda: (message, factors))


def _compress(
  compressors: Sequence[compressed.Compressor], message: Weights, seed: tf.Tensor
) -> Weights:
  """Returns what the server decodes of a message."""
  flat = [tf.cast(tf.reshape(leaf, [-1]), tf.float32) for leaf in message]
  # Of one tensor both ways are the same, and the first needs no copy.
  if compressors[0].by_tensor or len(flat) == 1:
    decoded = [
      _compress_vector(compressors, vector, seeds.fold(seed, i)) for i, vector in enumerate(flat)
    ]
  elif len(compressors) == 1:
    decoded = compressors[0].compress_all(flat, seeds.fold(seed, 0, 0))
  else:
    sizes = [leaf.shape.num_elements() for leaf in message]
    whole = _compress_vector(compressors, tf.concat(flat, 0), seeds.fold(seed, 0))
    decoded = tf.split(whole, sizes)
  return tuple(
    tf.cast(tf.reshape(vector, leaf.shape), leaf.dtype) for vector, leaf in zip(decoded, message)
  )


def _compress_vector(
  compressors: Sequence[compressed.Compressor], values: tf.Tensor, seed: tf.Tensor
) -> tf.Tensor:
  """Returns what the server decodes of a vector, float32 [n]."""
  first = compressors[0]
  own_seed = seeds.fold(seed, 0)
  if len(compressors) == 1:
    return first.decoded(values, own_seed)
  assert isinstance(first, compressed.Selection)
  # The formats after the selection get its numbers alone, [k], so that their scales are of these;
  # the server puts what it decodes back to the positions.
  size = values.shape.num_elements()
  positions = tf.where(first.selected(values, own_seed))
  selected = tf.ensure_shape(tf.gather_nd(values, positions), [first.num_kept(size)])
  for i, compressor in enumerate(compressors[1:], 1):
    selected = compressor.decoded(selected, seeds.fold(seed, i))
  return first.factor(size) * tf.scatter_nd(positions, selected, tf.constant([size], tf.int64))


class Size(NamedTuple):
  """The size of what a client sends after it has trained.

  Attributes:
    update: The bytes of the update.
    uploads: The bytes of what parts upload besides it.
    uncounted: The names of parts that may send less, because they have no `message_bits`:
      compressors, and users' parts that change the update.
  """

  update: int
  uploads: int
  uncounted: tuple[str, ...]


def size(correction: Correction, update: Weights, upload: Any) -> Size:
  """Returns the size of a client's messages, from tensors or specs of them."""
  parts = correction.parts
  compressors = compression_of(parts).compressors
  said = []
  for part in parts:
    if isinstance(part, compressed.Compressor):
      continue
    own_bits = part.message_bits(_num_elements(update))
    if own_bits is not None:
      said.append(own_bits)
  if compressors:
    of_update = num_bytes_compressed(compressors, update)
  elif said:
    # The last part's `update` makes what is sent. Rounded up to a whole byte.
    of_update = -(-said[-1] // 8)
  else:
    of_update = num_bytes(update)
  # An upload has its own bytes, and in place of those of its large tensors the compressed ones.
  of_uploads = 0
  for part, of_part in zip(parts, uploads_lib.by_part(parts, upload)):
    of_uploads += num_bytes(of_part)
    message = uploads_lib.large(part, of_part)
    if compressors and message:
      of_uploads += num_bytes_compressed(compressors, message) - num_bytes(message)
  uncounted = tuple(part.name for part in parts if _is_uncounted(part))
  return Size(of_update, of_uploads, uncounted)


def _is_uncounted(part: Correction) -> bool:
  """Returns whether a part may send less than counted, because it does not say how much."""
  if part.message_bits(1) is not None:
    return False
  if part.compresses or part.compresses_down:
    return True
  return part.overrides('update') and not part.sends_whole


def num_bytes_compressed(compressors: Sequence[compressed.Compressor], message: Weights) -> int:
  """Returns the bytes of a compressed message: its bits, rounded up to a whole byte."""
  if isinstance(compressors[0], low_rank.LowRank):
    return -(-compressors[0].bits_of(message) // 8)
  sizes = [leaf.shape.num_elements() for leaf in message]
  if sizes and not compressors[0].by_tensor:  # All weights may stay at the client.
    sizes = [sum(sizes)]
  total = sum(vector_bits(compressors, number) for number in sizes)
  return -(-total // 8)


def vector_bits(compressors: Sequence[compressed.Compressor], size: int) -> int:
  """Returns the bits of a compressed vector of `size` numbers."""
  first, *others = compressors
  if others:
    assert isinstance(first, compressed.Selection)
    return first.index_bits(size) + vector_bits(others, first.num_kept(size))
  number = first.message_bits(size)
  # A user's compressor need not say; then `_is_uncounted` names it.
  if number is None:
    return bits_lib.FLOAT * size
  return number


def num_bytes(tree: Any) -> int:
  """Returns the number of bytes of a structure of tensors."""
  leaves = map(tf.convert_to_tensor, tf.nest.flatten(tree))
  return sum(leaf.dtype.size * (leaf.shape.num_elements() or 0) for leaf in leaves)


def _num_elements(tree: Weights) -> int:
  return sum(leaf.shape.num_elements() or 0 for leaf in tree)
