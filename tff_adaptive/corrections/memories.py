"""What clients keep for each of their messages: error feedback, and the factors of PowerSGD."""

from __future__ import annotations

import collections
import functools
from collections.abc import Sequence
from typing import Any

from tff_adaptive._utils.lazy_tensorflow import tf
from tff_adaptive.corrections import compressed, low_rank, results, uploads
from tff_adaptive.corrections.base import Correction, Weights, either, only, zeros

FEEDBACK = (compressed.EF14, compressed.EF21)


def with_memories(
  parts: Sequence[Correction], states: Sequence[Any], weights: Weights
) -> list[Any]:
  """Returns the first client states of a chain, with a memory for each message of its parts.

  Args:
    parts: The parts of the chain.
    states: The first client state of each part.
    weights: The initial weights.
  """
  complete = list(states)
  if not any(isinstance(part, (*FEEDBACK, low_rank.LowRank)) for part in parts):
    return complete
  unsent = functools.reduce(either, (part.unsent for part in parts))
  sent = weights
  if any(unsent):
    sent = only(tuple(not is_unsent for is_unsent in unsent), weights)
  messages = [zeros(sent)]
  for large in _large_uploads(parts, states, weights):
    messages.append(tuple(tf.zeros(leaf.shape, leaf.dtype) for leaf in large))
  for i, part in enumerate(parts):
    if isinstance(part, FEEDBACK):
      complete[i] = collections.OrderedDict(memory=tuple(messages))
    elif isinstance(part, low_rank.LowRank):
      factors = tuple(part.first_factors(message) for message in messages)
      complete[i] = collections.OrderedDict(factors=factors)
  return complete


def _large_uploads(
  parts: Sequence[Correction], states: Sequence[Any], weights: Weights
) -> list[Weights]:
  """Returns what is compressed of the parts' uploads, as tensors of a graph that does not run."""
  messages = []
  with tf.Graph().as_default():
    theta = tuple(tf.zeros(w.shape, w.dtype) for w in weights)
    one = tf.constant(1.0)
    for part, state in zip(parts, states):
      if part.sends_exact or not part.overrides('client_update'):
        continue
      own_state = tf.nest.map_structure(lambda leaf: tf.zeros(leaf.shape, leaf.dtype), state)
      broadcast = part.broadcast(part.server_state(theta))
      client = results.client_of_zeros(theta, own_state, broadcast, lambda: theta)
      client = client._replace(exchanged=part.exchange(client))
      client = client._replace(local_state=part.local_state(client))
      _, upload = results.client_update(part, client, theta, one)
      if uploads.large(part, upload):
        messages.append(uploads.large(part, upload))
  return messages


def _position(parts: Sequence[Correction], *kinds: type) -> int | None:
  """Returns the position of the part of these classes; None if there is none."""
  for i, part in enumerate(parts):
    if isinstance(part, kinds):
      return i
  return None


def of_messages(parts: Sequence[Correction], state: Any, *kinds: type) -> tuple[Weights, ...]:
  """Returns what the part of these classes keeps for each message; () if there is none."""
  position = _position(parts, *kinds)
  if position is None:
    return ()
  of_part = state[position] if len(parts) > 1 else state
  (values,) = of_part.values()
  return tuple(values)


def with_new(
  parts: Sequence[Correction], state: Any, values: Sequence[Weights], *kinds: type
) -> Any:
  """Returns a client state with what the part of these classes now keeps for each message."""
  leaves = tf.nest.flatten(tuple(values))
  if len(parts) == 1:
    return tf.nest.pack_sequence_as(state, leaves)
  position = _position(parts, *kinds)
  assert position is not None
  states = list(state)
  states[position] = tf.nest.pack_sequence_as(states[position], leaves)
  return tuple(states)
