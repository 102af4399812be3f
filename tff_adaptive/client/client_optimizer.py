"""The client optimizer inside the loop of local steps."""

import collections
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.client import by_client
from tff_adaptive.corrections import base as corrections


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


def initial_slots(
  optimizer: tff.learning.optimizers.Optimizer, weights: corrections.Weights
) -> tuple[tf.Tensor, ...]:
  """Returns the `slots` of the optimizer before the first step; see `ClientOptimizer`."""
  return ClientOptimizer(optimizer, weights, tf.constant(0.0)).slots
