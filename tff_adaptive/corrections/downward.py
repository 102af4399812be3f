"""Compression of what clients receive, as changes of what they received before.

The server keeps a copy w of what clients have, the shadow. In a round it sends C(theta - w), and
server and clients add that to w, from which clients train. What was left out is part of the next
difference, so nothing is lost. "EF21-P and Friends" (Gruntkowska et al., ICML 2023), Algorithm 1;
as theta - w is the last change of the model and what was left out before, it is also the server's
error feedback of DoubleSqueeze (Tang et al., ICML 2019), Algorithm 1. What other parts send in
`Correction.broadcast` has a shadow each.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

from tff_adaptive._utils import seeds
from tff_adaptive._utils.hyperparameters import option
from tff_adaptive._utils.lazy_tensorflow import tf
from tff_adaptive.corrections import base, compressed, messages, uploads
from tff_adaptive.corrections.base import Correction, Weights


@dataclasses.dataclass(frozen=True, kw_only=True)
class Downward(compressed.Compressor):
  """The base class of compressors of what clients receive.

  A subclass has a compressor of clients' messages as its second base class, and a name:

      class PowersDown(corrections.Downward, Powers):
        name = 'powers_down'

  In a chain the rules are those of clients' compressors: first a selection, then a format. Server
  and clients set w to w + C(theta - w), which is the error feedback EF21; there is no other.
  """

  feedback: str = option('ef21', 'The server sends changes of what clients have', choices=('ef21',))
  # The second base class compresses what clients send; here the same code acts the other way.
  compresses = False
  compresses_down = True

  @property
  def parts(self) -> tuple[Correction, ...]:
    # No part with a memory: the shadow is what EF21 keeps.
    return (self,)

  def server_state(self, weights: Weights) -> Any:
    # Clients begin with the initial weights, so the first difference is 0.
    return collections.OrderedDict(shadow=(weights,))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TopKDown(Downward, compressed.TopK):
  """The server sends the largest changes of the model."""

  name = 'top_k_down'
  title = 'top-k, downwards'
  summary = 'the server sends the largest changes of the model'


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandKDown(Downward, compressed.RandK):
  """The server sends the changes of the model at random positions."""

  name = 'rand_k_down'
  title = 'rand-k, downwards'
  summary = 'the server sends the changes of the model at random positions'


@dataclasses.dataclass(frozen=True, kw_only=True)
class SignDown(Downward, compressed.Sign):
  """The server sends the signs of the model's changes, and a scale for each tensor."""

  name = 'sign_down'
  title = 'sign, downwards'
  summary = "the server sends signs of the model's changes and a scale for each tensor"


@dataclasses.dataclass(frozen=True, kw_only=True)
class QsgdDown(Downward, compressed.Qsgd):
  """QSGD of the model's changes."""

  name = 'qsgd_down'
  title = 'QSGD, downwards'
  summary = 'changes of the model are rounded at random to levels of their norm'


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuantizeDown(Downward, compressed.Quantize):
  """The model's changes are rounded to 2^b values."""

  name = 'quantize_down'
  title = 'uniform rounding, downwards'
  summary = 'changes of the model are rounded to equally spaced values'


@dataclasses.dataclass(frozen=True, kw_only=True)
class TernaryDown(Downward, compressed.Ternary):
  """The server sends signs of the model's changes at random, else 0."""

  name = 'ternary_down'
  title = 'ternary, downwards'
  summary = 'the server sends -1, 0 or 1 at random and a scale for each tensor'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Float16Down(Downward, compressed.Float16):
  """The model's changes are sent as float16."""

  name = 'float16_down'
  title = 'float16, downwards'
  summary = 'changes of the model are sent as float16'


@dataclasses.dataclass(frozen=True, kw_only=True)
class BFloat16Down(Downward, compressed.BFloat16):
  """The model's changes are sent as bfloat16."""

  name = 'bfloat16_down'
  title = 'bfloat16, downwards'
  summary = 'changes of the model are sent as bfloat16'


def compressors_of(parts: Sequence[Correction]) -> tuple[Downward, ...]:
  """Returns the compressors of what clients receive, in order."""
  return tuple(part for part in parts if isinstance(part, Downward))


def with_shadows(parts: Sequence[Correction], states: Sequence[Any], weights: Weights) -> list[Any]:
  """Returns the first server states of a chain, with a shadow for each message to clients.

  Args:
    parts: The parts of the chain.
    states: The first server state of each part.
    weights: The initial weights.
  """
  complete = list(states)
  compressors = compressors_of(parts)
  if not compressors:
    return complete
  broadcasts = [part.broadcast(state) for part, state in zip(parts, states)]
  first_messages = _messages(parts, weights, broadcasts)
  for i, part in enumerate(parts):
    if part is compressors[0]:
      complete[i] = collections.OrderedDict(shadow=tuple(first_messages))
    elif isinstance(part, Downward):
      complete[i] = ()  # The first compressor keeps the shadow of all.
  return complete


class Sent(NamedTuple):
  """What clients have after a round's message to them.

  Attributes:
    theta: The weights from which they train.
    broadcast: What they have of the result of `Correction.broadcast`.
    server_state: The correction's new server state, with the new shadow.
  """

  theta: Weights
  broadcast: Any
  server_state: Any


def send(correction: Correction, server_state: Any, theta: Weights, seed: tf.Tensor) -> Sent:
  """Returns what clients have after the server has sent them a round's message.

  Args:
    correction: The part or the chain, with a `Downward`.
    server_state: Its server state.
    theta: The global model.
    seed: int32 [2], of the server's draws in this round.
  """
  parts = correction.parts
  compressors = compressors_of(parts)
  broadcast = correction.broadcast(server_state)
  of_parts = uploads.by_part(parts, broadcast)
  position = parts.index(compressors[0])
  own_state = server_state
  if len(parts) > 1:
    own_state = server_state[position]
  new_shadows = []
  # A seed for each message: otherwise messages of one size would keep the same random positions.
  for i, message in enumerate(_messages(parts, theta, of_parts)):
    shadow = tuple(own_state['shadow'][i])
    difference = base.combine(tf.subtract, message, shadow)
    # C(theta - w), and below w <- w + C(theta - w), as in EF21-P. No `LowRank` is downward.
    decoded, _ = messages.compress_finite(compressors, difference, seeds.fold(seed, i), ())
    new_shadows.append(base.combine(tf.add, shadow, decoded))
  new_state = tf.nest.pack_sequence_as(own_state, tf.nest.flatten(new_shadows))
  if len(parts) > 1:
    states = list(server_state)
    states[position] = new_state
    new_state = tuple(states)
  # Clients train from w, not from theta, which they do not have.
  received = list(new_shadows)
  new_theta = _with_unsent(correction, received.pop(0), theta)
  pairs = zip(parts, of_parts)
  new_broadcast = tuple(uploads.replaced(part, one, received) for part, one in pairs)
  if not tf.nest.flatten(broadcast):
    return Sent(new_theta, broadcast, new_state)
  if len(parts) == 1:
    return Sent(new_theta, new_broadcast[0], new_state)
  return Sent(new_theta, new_broadcast, new_state)


def with_model(correction: Correction, server_state: Any, theta: Weights) -> Any:
  """Returns the server state after clients have received a model whole, in place of changes."""
  parts = correction.parts
  compressors = compressors_of(parts)
  if not compressors:
    return server_state
  position = parts.index(compressors[0])
  own_state = server_state
  if len(parts) > 1:
    own_state = server_state[position]
  # Broadcasts have not changed with the model, so their shadows stay.
  sent, *_ = _messages(parts, theta, ())
  shadows = (sent, *tuple(own_state['shadow'])[1:])
  new_state = tf.nest.pack_sequence_as(own_state, tf.nest.flatten(shadows))
  if len(parts) == 1:
    return new_state
  states = list(server_state)
  states[position] = new_state
  return tuple(states)


def size(correction: Correction, theta: Weights, broadcast: Any) -> int | None:
  """Returns the bytes of a round's message to clients; None if it is not compressed."""
  parts = correction.parts
  compressors = compressors_of(parts)
  if not compressors:
    return None
  of_parts = uploads.by_part(parts, broadcast)
  total = 0
  for message in _messages(parts, theta, of_parts):
    total += messages.num_bytes_compressed(compressors, message)
  # Scalars and integers of a broadcast are sent as they are.
  for part, of_part in zip(parts, of_parts):
    total += messages.num_bytes(of_part) - messages.num_bytes(uploads.large(part, of_part))
  return total


def _messages(
  parts: Sequence[Correction], theta: Weights, broadcasts: Sequence[Any]
) -> list[Weights]:
  """Returns what is compressed: the weights that are sent, and tensors of the parts' broadcasts."""
  unsent: tuple[bool, ...] = ()
  for part in parts:
    unsent = base.either(unsent, part.unsent)
  sent = tuple(theta)
  if any(unsent):
    sent = base.only(tuple(not is_unsent for is_unsent in unsent), sent)
  to_compress = [sent]
  for part, broadcast in zip(parts, broadcasts):
    large = uploads.large(part, broadcast)
    if large:
      to_compress.append(large)
  return to_compress


def _with_unsent(correction: Correction, sent: Weights, theta: Weights) -> Weights:
  """Returns the weights that were sent together with those that are not."""
  if not any(correction.unsent):
    return sent
  is_sent = tuple(not is_unsent for is_unsent in correction.unsent)
  return base.merged(is_sent, sent, theta)
