"""What a client correction is."""

from collections.abc import Callable
from typing import Any, NamedTuple, Optional

import tensorflow as tf

Weights = tuple[tf.Tensor, ...]


class ClientRound(NamedTuple):
  """What a client knows during a round.

  Attributes:
    theta_0: theta^{t-1}, the weights that it received.
    kept: What it kept since it last took part (see `Correction.client_state`).
    sent: What the server sent besides the weights (see `Correction.broadcast`).
    t: Number of the round, float32, counted from 1.
    eta_l: The client learning rate of this round, float32.
    num_examples: n_i, float32.
    full_gradient: Computes the mean gradient over all its examples at `theta_0`.
  """

  theta_0: Weights
  kept: Any
  sent: Any
  t: tf.Tensor
  eta_l: tf.Tensor
  num_examples: tf.Tensor
  full_gradient: Callable[[], Weights]


class ServerRound(NamedTuple):
  """What the server knows at the end of a round.

  Attributes:
    g_bar: theta^{t-1} - theta-bar^t, the aggregated pseudo-gradient.
    uploads: Mean over the cohort of what `client_update` uploaded.
    cohort: |S|, the number of clients whose update is used (finite, of a step at least), float32.
    t: Number of the round, float32, counted from 1.
  """

  g_bar: Weights
  uploads: Any
  cohort: tf.Tensor
  t: tf.Tensor


class Correction:
  """A client drift correction: pure functions of tensors.

  The base class corrects nothing: it is FedAvg. A subclass overrides what it needs.

  Attributes:
    name: Its name on the command line.
    is_stateful: Whether a client keeps something between the rounds it takes part in.
  """

  name = 'none'
  is_stateful = False

  def client_state(self, weights: Weights) -> Any:
    """What a client keeps before its first round, from the initial weights."""
    del weights
    return ()

  def server_state(self, weights: Weights) -> Any:
    """What the server keeps before the first round."""
    del weights
    return ()

  def broadcast(self, server_state: Any) -> Any:
    """What is sent to the clients besides the weights."""
    del server_state
    return ()

  def gradient(self, client: ClientRound, theta: Weights, g: Weights) -> Weights:
    """The corrected gradient of a local step at `theta`, where the loss has gradient `g`."""
    del client, theta
    return g

  def client_update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> tuple[Any, Any]:
    """What the client keeps from now on, and what it uploads besides its model.

    Args:
      client: What it knew during the round.
      g_i: theta^{t-1} - theta_i, its pseudo-gradient.
      steps: K_i, the number of local steps it took, float32.

    Returns:
      `(kept, upload)`; the uploads are averaged over the cohort, each client counting the same.
    """
    del g_i, steps
    return client.kept, ()

  def server_update(self, server_state: Any, server: ServerRound) -> tuple[Any, Weights]:
    """The new server state and the direction that the server optimizer descends along."""
    return server_state, server.g_bar

  def client_estimate(self, kept: Any) -> Weights:
    """h_i in what a client keeps, for the metrics of its norm; () where there is none.

    A client whose h_i is zero counts as one that had not taken part before.
    """
    return tuple(kept['h']) if 'h' in kept else ()

  def h_norm(self, server_state: Any) -> tf.Tensor:
    """||h||, the norm of the server's estimate; 0 where there is none."""
    del server_state
    return tf.zeros([])


def zeros(weights: Weights) -> Weights:
  """Zeros like the weights."""
  return tuple(tf.zeros_like(w) for w in weights)


def combine(fn: Callable[..., tf.Tensor], *trees: Weights) -> Weights:
  """Applies `fn` weight by weight."""
  return tuple(fn(*leaves) for leaves in zip(*trees))


def scale(factor: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
  """factor * weight, where factor is a scalar or one number a client (leading axis)."""
  factor = tf.cast(factor, weight.dtype)
  if factor.shape.rank:
    factor = tf.reshape(factor, [-1] + [1] * (weight.shape.rank - 1))
  return factor * weight


def norm(tree: Weights) -> tf.Tensor:
  """The 2-norm of all weights together, float32."""
  return tf.sqrt(squared_norm(tree))


def squared_norm(tree: Weights, group_size: Optional[int] = None) -> tf.Tensor:
  """The squared 2-norm of all weights together, float32; [G] for a group of clients."""
  if not tree:
    return tf.zeros([] if group_size is None else [group_size])
  # Squares of 16 bits overflow above 255 and vanish below 2^-12.
  tree = [w if w.dtype.size > 4 else tf.cast(w, tf.float32) for w in tree]
  if group_size is None:
    return 2 * tf.add_n([tf.cast(tf.nn.l2_loss(w), tf.float32) for w in tree])
  rows = [tf.reshape(w, [group_size, -1]) for w in tree]
  return tf.add_n([tf.cast(tf.reduce_sum(r * r, -1), tf.float32) for r in rows])
