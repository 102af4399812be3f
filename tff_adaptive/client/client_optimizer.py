"""The client optimizer inside the loop of local steps."""

import collections
from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.client import by_client
from tff_adaptive.corrections import base as corrections, optimizer_slots as slots_lib
from tff_adaptive.optimizers import per_coordinate


def is_sgd(optimizer: tff.learning.optimizers.Optimizer) -> bool:
  """Returns whether an optimizer is TFF's SGD without momentum."""
  if type(optimizer) is not type(tff.learning.optimizers.build_sgdm()):
    return False
  state = optimizer.initialize((tf.TensorSpec([1], tf.float32),))
  return len(tf.nest.flatten(state)) == 1  # The state is the rate.


class ClientOptimizer:
  """A TFF optimizer in the loop of local steps, which carries only what a step changes.

  Attributes:
    slots: Those tensors of the optimizer's initial state that a step changes.
    slot_names: The names of `slots` in the optimizer's state, such as m.
    is_sgd: Whether the optimizer is SGD without momentum.
  """

  def __init__(
    self,
    optimizer: tff.learning.optimizers.Optimizer,
    weights: corrections.Weights,
    rate: tf.Tensor,
    group_size: int | None = None,
  ) -> None:
    """Prepares the optimizer and sets its rate.

    Args:
      optimizer: The optimizer.
      weights: The weights of one client.
      rate: eta_l, float32.
      group_size: The number of clients that take their steps together, or None for one client.

    Raises:
      ValueError: If the optimizer has no rate that can be set.
    """
    self._optimizer = optimizer
    self._size = group_size
    self.is_sgd = is_sgd(optimizer)
    state = optimizer.initialize(tuple(tf.TensorSpec(w.shape, w.dtype) for w in weights))
    key = tff.learning.optimizers.LEARNING_RATE_KEY
    hparams = optimizer.get_hparams(state)
    if key not in hparams:
      raise ValueError(
        'the client optimizer has no learning rate that can be set (one with a schedule has none): '
        'give one with a plain rate, and the schedule as client_learning_rate'
      )
    state = optimizer.set_hparams(state, collections.OrderedDict(hparams, **{key: rate}))
    self._state = tf.nest.map_structure(tf.convert_to_tensor, state)
    flat = tf.nest.flatten(self._state)
    zeros = tuple(tf.zeros_like(w) for w in weights)
    # A trial step shows which tensors of the state a step replaces. The others, such as the rate,
    # are constants that the loop of steps need not carry.
    after = tf.nest.flatten(optimizer.next(self._state, weights, zeros)[0])
    self._changes = [new is not old for new, old in zip(after, flat)]
    self.slots = tuple(leaf for leaf, changes in zip(flat, self._changes) if changes)
    # Only of slots is the number that of a weight; the other values of the state are scalars.
    numbered = [
      named for named, changes in zip(_numbered_names(self._state), self._changes) if changes
    ]
    self.slot_names = tuple(name for name, _ in numbered)
    self._weight_of_slot = [number for _, number in numbered]

  def rules(self, optimizer_state: str, correction: corrections.Correction) -> tuple[str, ...]:
    """Returns what becomes of each slot after a round, one of `optimizer_slots.RULES`."""
    named = []
    for name, slot, number in zip(self.slot_names, self.slots, self._weight_of_slot):
      is_matrix = slot.shape.rank >= 2
      if is_matrix and isinstance(self._optimizer, per_coordinate.PerCoordinate):
        is_matrix = not self._optimizer.is_by_entry(number)
      named.append((name, is_matrix))
    return slots_lib.rules_of(correction, optimizer_state, named)

  def tile(self, tensors: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, ...]:
    """Repeats tensors once for each client of a group; returns them unchanged for one client."""
    return tuple(by_client.tiled(w, self._size) for w in tensors)

  def next(
    self, slots: tuple[tf.Tensor, ...], weights: corrections.Weights, gradients: corrections.Weights
  ) -> tuple[tuple[tf.Tensor, ...], corrections.Weights]:
    """Like `tff.learning.optimizers.Optimizer.next`, with `slots` in place of the whole state."""
    if self._size is None or self.is_sgd:  # SGD's step is the same for a group.
      return self._next((slots, weights, gradients))
    return tf.vectorized_map(self._next, (slots, weights, gradients))

  def _next(self, values: Any) -> tuple[tuple[tf.Tensor, ...], corrections.Weights]:
    slots, weights, gradients = values
    changing = iter(slots)
    flat = tf.nest.flatten(self._state)
    flat = [next(changing) if changes else leaf for leaf, changes in zip(flat, self._changes)]
    state, weights = self._optimizer.next(
      tf.nest.pack_sequence_as(self._state, flat), weights, gradients
    )
    flat = tf.nest.flatten(state)
    return tuple(leaf for leaf, changes in zip(flat, self._changes) if changes), tuple(weights)


class FirstSlots(NamedTuple):
  """The slots before the first round, as they are between rounds.

  Attributes:
    at_clients: Those that clients keep.
    averaged: Those that the server averages; of a slot that is averaged by blocks one number.
  """

  at_clients: tuple[tf.Tensor, ...]
  averaged: tuple[tf.Tensor, ...]


def first_slots(
  optimizer: tff.learning.optimizers.Optimizer,
  optimizer_state: str,
  correction: corrections.Correction,
  weights: corrections.Weights,
) -> FirstSlots:
  """Returns the slots that clients keep, and those that are averaged, before the first round."""
  of_client = ClientOptimizer(optimizer, weights, tf.constant(0.0))
  rules = of_client.rules(optimizer_state, correction)
  return FirstSlots(
    to_keep(of_client.slots, rules), averaged(of_client.slots, rules, group_size=None)
  )


def to_keep(slots: tuple[tf.Tensor, ...], rules: tuple[str, ...]) -> tuple[tf.Tensor, ...]:
  """Returns the slots that a client keeps."""
  return tuple(slot for slot, rule in zip(slots, rules) if rule == 'keep')


def averaged(
  slots: tuple[tf.Tensor, ...], rules: tuple[str, ...], group_size: int | None
) -> tuple[tf.Tensor, ...]:
  """Returns what a client sends of its slots, to be averaged; for a group with a leading axis G."""
  sent = []
  for slot, rule in zip(slots, rules):
    if rule == 'average':
      sent.append(slot)
    elif rule == 'average_blocks':
      first_axis = 0 if group_size is None else 1
      sent.append(tf.reduce_mean(slot, list(range(first_axis, slot.shape.rank))))
  return tuple(sent)


def begun(
  of_client: ClientOptimizer,
  rules: tuple[str, ...],
  kept_slots: tuple[tf.Tensor, ...],
  averaged_slots: tuple[tf.Tensor, ...],
) -> tuple[tf.Tensor, ...]:
  """Returns the slots with which a client, or each client of a group, begins a round.

  Args:
    of_client: The optimizer.
    rules: The rule of each slot.
    kept_slots: What `to_keep` returned after the client's last round, or `FirstSlots.at_clients`.
    averaged_slots: The mean of what `averaged` returned, or `FirstSlots.averaged`.
  """
  of_kept = iter(kept_slots)
  of_mean = iter(averaged_slots)
  slots = []
  for slot, rule in zip(of_client.slots, rules):
    if rule == 'keep':
      slots.append(next(of_kept))
      continue
    if rule == 'average':
      slot = next(of_mean)
    elif rule == 'average_blocks':
      slot = tf.broadcast_to(next(of_mean), slot.shape)
    slots += of_client.tile((slot,))
  return tuple(slots)


def _numbered_names(state: Any) -> list[tuple[str, int]]:
  """Returns (name, its number under this name) of each tensor of an optimizer's state.

  They are in the order of `tf.nest.flatten`.
  """
  if not isinstance(state, Mapping):
    return [('', number) for number in range(len(tf.nest.flatten(state)))]
  names = []
  for name in sorted(state):
    names += [(name, number) for number in range(len(tf.nest.flatten(state[name])))]
  return names
