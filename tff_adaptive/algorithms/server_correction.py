"""The server's part of a correction that keeps states, as TFF computations."""

import collections
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.algorithms import components
from tff_adaptive.corrections import base as corrections, results


class ServerUpdate(NamedTuple):
  """What the correction makes of a round at the server.

  Attributes:
    correction: The correction's new server state.
    direction: What the server optimizer descends along; NaN in a round without a usable update,
      which the finalizer refuses.
    inference_weights: theta-bar^t, the mean of the client models.
    round_number: int32, rounds done.
  """

  correction: Any
  direction: Any
  inference_weights: Any
  round_number: Any


def build_initialize(correction: corrections.Correction, weights_type: tff.Type) -> tff.Computation:
  """`(W -> H)`, the correction's server state before the first round, from the initial weights."""

  @tff.tensorflow.computation(weights_type)
  def server_state(weights: Any) -> Any:
    return correction.server_state(tuple(weights.trainable))

  return server_state


def build_message(
  correction: corrections.Correction, client_learning_rate: components.Rate, server_type: tff.Type
) -> tff.Computation:
  """`(<int32 rounds done, H> -> <t int32 from 1, eta_l float32, B>)`, what clients receive."""
  rate_fn = components.as_rate_fn(client_learning_rate)

  @tff.tensorflow.computation(components.ROUND_TYPE, server_type)
  def message(t: Any, server_state: Any) -> Any:
    return t + 1, rate_fn(t), correction.broadcast(server_state)

  return message


def build_update(
  correction: corrections.Correction,
  server_type: tff.Type,
  weights_type: tff.Type,
  update_type: tff.Type,
  upload_type: tff.Type,
) -> tff.Computation:
  """`(<H, int32, W, W, G, U, sums> -> ServerUpdate)`; W are theta^{t-1} and theta-bar^{t-1}.

  G is the aggregated pseudo-gradient, U the sum of what clients upload.
  """

  @tff.tensorflow.computation(
    server_type,
    components.ROUND_TYPE,
    weights_type,
    weights_type,
    update_type,
    upload_type,
    components.SUMS_TYPE,
  )
  def update(
    server_state: Any, t: Any, weights: Any, inference: Any, g_bar: Any, uploads: Any, sums: Any
  ) -> ServerUpdate:
    g_bar = tuple(g_bar)
    cohort = tf.maximum(sums['used'], 1.0)
    uploads = tf.nest.map_structure(lambda u: u / tf.cast(cohort, u.dtype), uploads)
    server = corrections.ServerRound(
      g_bar=g_bar, uploads=uploads, cohort=sums['used'], t=tf.cast(t + 1, tf.float32)
    )
    new_state, direction = results.server_update(correction, server_state, server)
    aggregate = corrections.combine(tf.subtract, tuple(weights.trainable), g_bar)
    # A round without a usable update changes nothing: the finalizer refuses a NaN direction.
    is_usable = tf.math.is_finite(corrections.squared_norm(g_bar)) & (sums['used'] > 0)
    new_state = tf.cond(is_usable, lambda: new_state, lambda: server_state)
    aggregate = tf.cond(is_usable, lambda: aggregate, lambda: tuple(inference.trainable))
    direction = tuple(tf.where(is_usable, d, tf.cast(np.nan, d.dtype)) for d in direction)
    inference = tff.learning.models.ModelWeights(aggregate, weights.non_trainable)
    return ServerUpdate(new_state, direction, inference, t + 1)

  return update


def build_describe(
  correction: corrections.Correction,
  server_type: tff.Type,
  weights_type: tff.Type,
  update_type: tff.Type,
  drift_type: tff.Type,
) -> tff.Computation:
  """`(<H, W, G, sums, drift> -> OrderedDict of float32)`, the metrics of updates and drift.

  H and W are the new ones, drift the sums of `client_training.ClientOutput.drift`.
  """

  @tff.tensorflow.computation(
    server_type, weights_type, update_type, components.SUMS_TYPE, drift_type
  )
  def describe(
    server_state: Any, weights: Any, g_bar: Any, sums: Any, drift: Any
  ) -> collections.OrderedDict:
    g_bar = tuple(g_bar)
    return collections.OrderedDict(
      components.describe_updates(sums),
      update_spread=components.spread(drift['weight'], drift['weighted_square'], g_bar),
      aggregate_norm=corrections.norm(g_bar),
      theta_norm=corrections.norm(tuple(weights.trainable)),
      h_norm=correction.h_norm(server_state),
      h_i_norm_mean=tf.math.divide_no_nan(drift['h_i_norm'], sums['used']),
      first_time_clients=drift['first_time_clients'],
    )

  return describe
