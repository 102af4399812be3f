"""What clients and the server know during a round, for the methods of a part."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from tff_adaptive._utils.lazy_tensorflow import tf
from tff_adaptive.corrections.algebra import Weights


class ClientRound(NamedTuple):
  """The values that a client knows during a round.

  Attributes:
    theta_0: theta^{t-1}, the weights that the client received. Weights that stay at the client are
      those with which it begins (see `Correction.stays`).
    client_state: The client's state after the last round in which it took part, or its first state.
    broadcast: The values that the server sent besides the weights (see `Correction.broadcast`).
    t: Number of the round, float32, counted from 1.
    eta_l: The client learning rate of this round, float32.
    num_examples: n_i, float32. Without `Batching` it is NaN until the local steps are done.
    full_gradient: A function () -> the mean gradient over the client's examples at `theta_0`.
    mean_steps: `Batching.local_steps`, the mean number of local steps in a round, or None.
    exchanged: The cohort's mean of the results of `Correction.exchange`; () if there are none.
    local_state: The state that `Correction.local_state` or the last call of `gradient` returned.
    gradient_at: A function (weights) -> the gradient of the batch's loss at these weights, with the
      same dropout. It is for `Correction.loss_gradient`, and for `Correction.gradient`, where it
      takes the gradient as `g` was taken: sharpness-aware, say.
    full_loss: A function () -> the mean loss over the client's examples at `theta_0`, float32.
    label_counts: A function (number of classes) -> how many of the client's examples have each
      label, float32. It needs `Batching`, which knows all examples.
    class_features: A function (number of classes) -> the sums of the examples' features by label at
      `theta_0`, float32 [classes, size], and their numbers, float32 [classes]. It needs `Batching`
      and a model with features.
    planned_steps: K_i if no step is left out, float32. Without `Batching` it is NaN.
    seed: A seed for a part's own draws, int32 [2]. It depends on the client and the round; without
      `Batching` on the round only.
    index: The client's number among all clients, int32. Without `Batching` it is -1.
  """

  theta_0: Weights
  client_state: Any
  broadcast: Any
  # A float, because formulas divide by rounds; an int32 would need a cast in each of them.
  t: tf.Tensor
  eta_l: tf.Tensor
  num_examples: tf.Tensor
  full_gradient: Callable[[], Weights]
  # The defaults stand in where nothing asks for the value, as in the tests of a single formula.
  mean_steps: float | None = None
  exchanged: Any = ()
  local_state: Any = ()
  gradient_at: Callable[[Weights], Weights] = lambda _: ()
  full_loss: Callable[[], tf.Tensor] = lambda: ()
  label_counts: Callable[[int], tf.Tensor] = lambda _: ()
  class_features: Callable[[int], Any] = lambda _: ()
  planned_steps: tf.Tensor = math.nan
  seed: tf.Tensor = ()
  index: tf.Tensor = -1


class ServerRound(NamedTuple):
  """The values that the server knows at the end of a round.

  Attributes:
    g_bar: The aggregated pseudo-gradient theta^{t-1} - theta-bar^t, as `Correction.restore`
      returns it from the aggregate of the results of `update`. In `restore` itself, that aggregate;
      in `server_update`, the direction that the parts after this one in a chain returned.
    uploads: The uploads of `client_update`, combined over the cohort as `combine_uploads` says.
    cohort: |S|, float32: the number of clients that took a local step and have finite results.
    t: Number of the round, float32, counted from 1.
    theta: theta^{t-1}, the global model before the round.
    exchanged: The cohort's mean of the results of `Correction.exchange`; () if there are none.
  """

  g_bar: Weights
  uploads: Any
  cohort: tf.Tensor
  t: tf.Tensor
  theta: Weights
  exchanged: Any = ()
