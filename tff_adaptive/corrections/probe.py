"""Traces a correction's functions to find what it computes and sends. Nothing is executed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tff_adaptive._utils.lazy_tensorflow import tf
from tff_adaptive.corrections import base, downward, messages, results


class Traced(NamedTuple):
  """The costs of a correction for one client and round.

  Attributes:
    gradients: Number of gradients of the loss in a local step; 1 for FedAvg.
    full_gradients: Number of gradients over all of the client's examples in a round.
    bytes_of_weights: Number of bytes of the weights that are sent.
    bytes_down: Number of bytes that a client receives besides the weights.
    bytes_of_changes: Number of bytes that a client receives if it was there in the round before,
      without `bytes_exchanged`; None if the server sends no changes.
    bytes_exchanged: Number of the bytes in `bytes_down` that follow from `Correction.exchange`.
    bytes_up: Number of bytes that a client sends besides its update.
    bytes_update: Number of bytes of the update, as compressed.
    uncounted: Names of compressors that do not say how many bits they send.
  """

  gradients: int
  full_gradients: int
  bytes_of_weights: int
  bytes_down: int
  bytes_of_changes: int | None
  bytes_exchanged: int
  bytes_up: int
  bytes_update: int
  uncounted: tuple[str, ...]


def trace(correction: base.Correction, weights: Sequence[Any]) -> Traced:
  """Returns what a correction costs beyond FedAvg; `weights` are tensors, specs or arrays."""
  # The functions that a part may call count their calls, and return tensors of the right shapes.
  asked = {'at': 0, 'full': 0}
  with tf.Graph().as_default():
    theta = tuple(tf.zeros(w.shape, w.dtype) for w in weights)

    def full_gradient() -> base.Weights:
      asked['full'] += 1
      return theta

    def gradient_at(point: base.Weights) -> base.Weights:
      asked['at'] += 1
      return base.zeros(point)

    broadcast = correction.broadcast(correction.server_state(theta))
    one = tf.constant(1.0)
    state = correction.client_state(theta)
    client = results.client_of_zeros(theta, state, broadcast, full_gradient)
    sent = correction.exchange(client)
    results.check_numbers(correction, 'exchange', sent, 'what is sent')
    client = client._replace(exchanged=sent, local_state=correction.local_state(client))
    # These two cost no gradient; what they return is checked.
    results.begin(correction, client, theta)
    results.point(correction, client, theta)
    client = client._replace(gradient_at=gradient_at)
    results.loss_gradient(correction, client, theta, theta)
    of_loss = 1 + asked['at']
    asked['at'] = 0
    results.gradient(correction, client, theta, theta)
    in_gradient = 1 + asked['at']
    update = results.update(correction, client, theta, one)
    if any(correction.unsent):
      update = base.only(tuple(not is_unsent for is_unsent in correction.unsent), update)
    _, upload = results.client_update(correction, client, theta, one)
    sizes = messages.size(correction, update, upload)
    return Traced(
      # `gradient_at` in `Correction.gradient` costs as much as the gradient of the loss.
      gradients=of_loss * in_gradient,
      full_gradients=asked['full'],
      bytes_of_weights=size(theta) - size(base.only(correction.unsent, theta)),
      bytes_down=size(broadcast) + size(sent),
      bytes_of_changes=downward.size(correction, theta, broadcast),
      bytes_exchanged=size(sent),
      bytes_up=sizes.uploads + size(sent),
      bytes_update=sizes.update,
      uncounted=sizes.uncounted,
    )


def size(tree: Any) -> int:
  """Returns the number of bytes of a structure of tensors."""
  return messages.num_bytes(tree)
