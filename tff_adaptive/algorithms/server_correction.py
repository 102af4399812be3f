"""The server's part of a correction, as TFF computations."""

import collections
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.algorithms import components
from tff_adaptive.client import local_training
from tff_adaptive.corrections import base as corrections, results


class ServerUpdate(NamedTuple):
  """The correction's part of a round at the server.

  Attributes:
    correction: The new server state, see `components.Recipe.server_state`.
    direction: What the server optimizer descends along; NaN in a round without a usable update,
      which the finalizer refuses.
    factor: float32, a factor of the server optimizer's step; () for 1.
    theta_bar: The mean of the client models, or the model to use so far in a round without a usable
      update; () if the global model is the one to use.
    round_number: int32, rounds done.
  """

  correction: Any
  direction: Any
  factor: Any
  theta_bar: Any
  round_number: Any


def build_initialize(recipe: components.Recipe, weights_type: tff.Type) -> tff.Computation:
  """`(W -> <H, I>)`, the server state before the first round, and the model to use.

  I is W, or () if the global model is the one to use.
  """

  @tff.tensorflow.computation(weights_type)
  def server_state(weights: Any) -> Any:
    theta = tuple(weights.trainable)
    state = recipe.server_state(theta)
    own, _ = recipe.split(state)
    inference = recipe.correction.inference_weights(own, theta, theta)
    return state, () if inference is None else weights

  return server_state


def build_message(recipe: components.Recipe, server_type: tff.Type) -> tff.Computation:
  """`(<int32 rounds done, H> -> Message)`, what clients receive besides the weights."""
  rate_fn = components.as_rate_fn(recipe.client_learning_rate)

  @tff.tensorflow.computation(components.ROUND_TYPE, server_type)
  def message(t: Any, server_state: Any) -> Any:
    own, slots = recipe.split(server_state)
    return local_training.Message(t + 1, rate_fn(t), recipe.correction.broadcast(own), slots)

  return message


def build_exchanged(message_type: tff.Type, sums_type: tff.Type) -> tff.Computation:
  """`(<Message, <E, float32>> -> Message)`, with the mean of what clients sent before training.

  E is the sum of what they sent times their weights, the other sum that of the weights.
  """

  @tff.tensorflow.computation(message_type, sums_type)
  def exchanged(message: Any, sums: Any) -> Any:
    total, weight = sums
    mean = tf.nest.map_structure(lambda leaf: _mean(leaf, weight), total)
    return local_training.Message(*message)._replace(exchanged=mean)

  return exchanged


def build_update(
  recipe: components.Recipe,
  server_type: tff.Type,
  message_type: tff.Type,
  weights_type: tff.Type,
  inference_type: tff.Type,
  update_type: tff.Type,
  totals_type: tff.Type,
) -> tff.Computation:
  """`(<H, M, W, I, G, T> -> ServerUpdate)`; W is theta^{t-1}.

  M is the message of the round, G the aggregate, T the cohort's `client_training.Totals`.
  """
  correction = recipe.correction

  @tff.tensorflow.computation(
    server_type, message_type, weights_type, inference_type, update_type, totals_type
  )
  def update(
    server_state: Any, message: Any, weights: Any, inference: Any, g_bar: Any, totals: Any
  ) -> ServerUpdate:
    g_bar, theta = tuple(g_bar), tuple(weights.trainable)
    if recipe.is_plain:  # The aggregate is the step, private noise of a round of nobody, too.
      return ServerUpdate((), g_bar, (), (), message.t)
    cohort, uploads, drift = tf.maximum(totals.used, 1.0), totals.upload, totals.drift
    if correction.combine_uploads == 'mean':
      uploads = tf.nest.map_structure(lambda u: u / tf.cast(cohort, u.dtype), uploads)
    elif correction.combine_uploads == 'weighted':
      uploads = tf.nest.map_structure(lambda u: _mean(u, drift['weight']), uploads)
    elif correction.combine_uploads != 'sum':
      raise ValueError(
        f'{type(correction).__name__} has combine_uploads {correction.combine_uploads!r}: give'
        " 'mean', 'weighted' or 'sum'."
      )
    server = corrections.ServerRound(
      g_bar=g_bar,
      uploads=uploads,
      cohort=totals.used,
      t=tf.cast(message.t, tf.float32),
      theta=theta,
      exchanged=message.exchanged,
    )
    own, slots = recipe.split(server_state)
    new_state, direction, factor = results.server_update(correction, own, server)
    if recipe.training.optimizer_state == 'average':
      new_slots = tuple(_mean(leaf, drift['weight']) for leaf in totals.optimizer)
      new_slots = tuple(_cast(leaf, slot.dtype) for leaf, slot in zip(new_slots, slots))
      new_state = collections.OrderedDict(correction=new_state, optimizer=new_slots)
    # A round without a usable update changes nothing: the finalizer refuses a NaN direction.
    is_usable = tf.math.is_finite(corrections.squared_norm(g_bar)) & (totals.used > 0)
    new_state = tf.cond(is_usable, lambda: new_state, lambda: server_state)
    theta_bar: corrections.Weights = ()
    if isinstance(inference_type, tff.types.StructType) and len(inference_type):
      theta_bar = tf.cond(
        is_usable,
        lambda: corrections.combine(tf.subtract, theta, g_bar),
        lambda: tuple(inference.trainable),
      )
    if tf.nest.flatten(factor):  # NaN, too, would be a change.
      factor = tf.where(is_usable, factor, 1.0)
    direction = tuple(tf.where(is_usable, d, tf.cast(np.nan, d.dtype)) for d in direction)
    return ServerUpdate(new_state, direction, factor, theta_bar, message.t)

  return update


def build_finish(
  recipe: components.Recipe, server_update_type: tff.Type, weights_type: tff.Type
) -> tff.Computation:
  """`(<ServerUpdate, W, W> -> <W, I>)`: the new global model and the model to use.

  Arguments are the global model before the round and what the server optimizer made of it.
  """

  @tff.tensorflow.computation(server_update_type, weights_type, weights_type)
  def finish(updated: Any, before: Any, after: Any) -> tuple[Any, Any]:
    theta, non_trainable = tuple(after.trainable), after.non_trainable
    if tf.nest.flatten(updated.factor):
      theta = corrections.combine(
        lambda old, new: old + corrections.scale(updated.factor, new - old),
        tuple(before.trainable),
        theta,
      )
    weights = tff.learning.models.ModelWeights(theta, non_trainable)
    if not tf.nest.flatten(updated.theta_bar):
      return weights, ()
    own, _ = recipe.split(updated.correction)
    inference = recipe.correction.inference_weights(own, theta, tuple(updated.theta_bar))
    return weights, tff.learning.models.ModelWeights(inference, non_trainable)

  return finish


def build_describe(
  recipe: components.Recipe,
  server_type: tff.Type,
  weights_type: tff.Type,
  update_type: tff.Type,
  totals_type: tff.Type,
) -> tff.Computation:
  """`(<H, W, G, T> -> OrderedDict of float32)`, the metrics of updates and drift.

  H and W are the new ones, T as for `build_update`.
  """

  @tff.tensorflow.computation(server_type, weights_type, update_type, totals_type)
  def describe(server_state: Any, weights: Any, g_bar: Any, totals: Any) -> collections.OrderedDict:
    g_bar, drift = tuple(g_bar), totals.drift
    own, _ = recipe.split(server_state)
    if recipe.is_plain:
      return components.describe_updates(totals)
    return collections.OrderedDict(
      components.describe_updates(totals),
      update_spread=components.spread(drift['weight'], drift['weighted_square'], g_bar),
      aggregate_norm=corrections.norm(g_bar),
      theta_norm=corrections.norm(tuple(weights.trainable)),
      h_norm=recipe.correction.h_norm(own),
      h_i_norm_mean=tf.math.divide_no_nan(drift['h_i_norm'], totals.used),
      first_time_clients=drift['first_time_clients'],
    )

  return describe


def _mean(total: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
  """A sum of tensors times weights, divided by the sum of the weights; 0 if that is 0."""
  return tf.math.divide_no_nan(total, tf.cast(weight, total.dtype))


def _cast(mean: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
  """The mean in another dtype; of whole numbers (counters of steps) the nearest."""
  return tf.cast(mean if dtype.is_floating else tf.round(mean), dtype)
