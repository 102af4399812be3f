"""Builds the server's computations of a correction; `stateful_process.compose` has the types."""

import collections
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import schedules
from tff_adaptive._utils import seeds
from tff_adaptive.algorithms import components
from tff_adaptive.client import local_training
from tff_adaptive.corrections import base as corrections, chains, downward, results

_TO_CLIENTS = -2  # In place of a client's number, for the seed of messages to clients.


class ServerUpdate(NamedTuple):
  """The results of the correction at the server in a round.

  Attributes:
    correction: The new server state; see `components.Recipe.server_state`.
    direction: The direction that the server optimizer descends along. In a round without a usable
      update it is NaN, so that the finalizer refuses it.
    factor: The float32 number that multiplies the server optimizer's step; () stands for 1.
    theta_bar: The mean of the client models; in a round without a usable update, the previous model
      for inference. () if the global model is the one for inference.
    round_number: int32, the number of rounds done.
    h_cosine: float32, the cosine between the drift estimate h and the aggregate; () if `is_plain`.
  """

  correction: Any
  direction: Any
  factor: Any
  theta_bar: Any
  round_number: Any
  h_cosine: Any


def build_initialize(recipe: components.Recipe, weights_type: tff.Type) -> tff.Computation:
  """Builds `(W -> <H, I>)`: the server state and the model for inference before the first round.

  W are the weights and H is the state. I is W, or () if the global model is that for inference.
  """

  @tff.tensorflow.computation(weights_type)
  def server_state(weights: Any) -> Any:
    theta = tuple(weights.trainable)
    state = recipe.server_state(theta)
    of_correction, _ = recipe.split(state)
    inference = recipe.correction.inference_weights(of_correction, theta, theta)
    if inference is None:
      return state, ()
    # Before the first round the model for inference is the initial one.
    return state, weights

  return server_state


def build_message(
  recipe: components.Recipe, server_type: tff.Type, client_work_type: tff.Type
) -> tff.Computation:
  """Builds `(<int32 rounds done, H, R> -> Message)`: what clients receive besides the weights.

  R is the clients' rate, see `components.Recipe.client_work`.
  """
  rate_fn = schedules.in_graph(recipe.client_learning_rate)

  @tff.tensorflow.computation(np.int32, server_type, client_work_type)
  def message(t: Any, server_state: Any, client_work: Any) -> Any:
    of_correction, slots = recipe.split(server_state)
    if client_work:
      rate = client_work[tff.learning.optimizers.LEARNING_RATE_KEY]
    else:
      rate = rate_fn(t)
    # Schedules count rounds from 0, and formulas from 1 as papers do.
    return local_training.Message(t + 1, rate, recipe.correction.broadcast(of_correction), slots)

  return message


def build_send(
  recipe: components.Recipe,
  server_type: tff.Type,
  client_work_type: tff.Type,
  weights_type: tff.Type,
) -> tff.Computation:
  """Builds `(<int32 rounds done, H, R, W> -> <Message, W, H>)` where messages are compressed.

  The results are what clients have of a round's message: the values besides the weights, and the
  weights; and the new state with the server's copy of them. `build_message` explains H and R.
  """
  rate_fn = schedules.in_graph(recipe.client_learning_rate)

  @tff.tensorflow.computation(np.int32, server_type, client_work_type, weights_type)
  def send(t: Any, server_state: Any, client_work: Any, weights: Any) -> Any:
    of_correction, slots = recipe.split(server_state)
    if client_work:
      rate = client_work[tff.learning.optimizers.LEARNING_RATE_KEY]
    else:
      rate = rate_fn(t)
    # By the round, so that a resumed run draws what an uninterrupted one draws.
    seed = seeds.fold(seeds.base(recipe.training.seed), t + 1, _TO_CLIENTS)
    sent = downward.send(recipe.correction, of_correction, tuple(weights.trainable), seed)
    message = local_training.Message(t + 1, rate, sent.broadcast, slots)
    new_state = sent.server_state
    if recipe.averages_slots:
      new_state = collections.OrderedDict(correction=new_state, optimizer=slots)
    received = tff.learning.models.ModelWeights(sent.theta, weights.non_trainable)
    return message, received, new_state

  return send


def build_exchanged(message_type: tff.Type, sums_type: tff.Type) -> tff.Computation:
  """Builds `(<Message, <E, float32>> -> Message)`, which adds the mean of the exchanged values.

  E is the sum of these values times the clients' weights; the float32 is the sum of the weights.
  """

  @tff.tensorflow.computation(message_type, sums_type)
  def exchanged(message: Any, sums: Any) -> Any:
    total, weight = sums
    mean = tf.nest.map_structure(lambda leaf: corrections.mean(leaf, weight), total)
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
  """Builds `(<H, M, W, I, G, T> -> ServerUpdate)`, the correction's step at the server.

  H, W and I are the state, the global model and the model for inference before the round. M is
  the round's message, G the aggregate and T the sum of the clients' `client_training.Totals`.
  """
  correction = recipe.correction

  @tff.tensorflow.computation(
    server_type, message_type, weights_type, inference_type, update_type, totals_type
  )
  def update(
    server_state: Any, message: Any, weights: Any, inference: Any, g_bar: Any, totals: Any
  ) -> ServerUpdate:
    theta = tuple(weights.trainable)
    g_bar = _with_unsent(correction, tuple(g_bar), theta)
    if recipe.is_plain:  # The direction is the aggregate, even if it is only noise.
      return ServerUpdate((), g_bar, (), (), message.t, ())
    drift = totals.drift
    # Sums are divided by it, also in a round without a usable update, whose results are not used.
    cohort = tf.maximum(totals.used, 1.0)
    server = corrections.ServerRound(
      g_bar=g_bar,
      uploads=chains.combine_uploads(correction, totals.upload, cohort, drift['weight']),
      cohort=totals.used,
      t=tf.cast(message.t, tf.float32),
      theta=theta,
      exchanged=message.exchanged,
    )
    # Once the uploads are combined, because FedNova multiplies by theirs and q-FedAvg divides.
    server = server._replace(g_bar=results.restore(correction, server))
    of_correction, slots = recipe.split(server_state)
    new_state, direction, factor = results.server_update(correction, of_correction, server)
    if recipe.averages_slots:
      # The weights are those of the updates; see `ClientTraining.optimizer_state`.
      means = [corrections.mean(leaf, drift['weight']) for leaf in totals.optimizer]
      new_slots = tuple(_as_slot(mean, slot) for mean, slot in zip(means, slots))
      new_state = collections.OrderedDict(correction=new_state, optimizer=new_slots)
    # A round without a usable update changes nothing: the finalizer refuses a NaN direction.
    is_usable = tf.math.is_finite(corrections.squared_norm(g_bar)) & (totals.used > 0)
    new_state = tf.cond(is_usable, lambda: new_state, lambda: server_state)
    theta_bar: corrections.Weights = ()
    if isinstance(inference_type, tff.types.StructType) and len(inference_type):
      theta_bar = tf.cond(
        is_usable,
        # The mean of the client models, as g_i is theta minus a client's model; where clients have
        # a compressed theta, plus what compression left out of it.
        lambda: corrections.combine(tf.subtract, theta, server.g_bar),
        lambda: tuple(inference.trainable),
      )
    if tf.nest.flatten(factor):  # A NaN factor would change the model.
      factor = tf.where(is_usable, factor, 1.0)
    direction = tuple(tf.where(is_usable, d, tf.cast(np.nan, d.dtype)) for d in direction)
    # With the h before the round, which the server's step may shrink.
    h_cosine = _cosine(corrections.estimate(of_correction), g_bar)
    return ServerUpdate(new_state, direction, factor, theta_bar, message.t, h_cosine)

  return update


def _as_slot(mean: tf.Tensor, slot: tf.Tensor) -> tf.Tensor:
  """Returns a mean of the clients' slots in the slot's dtype; step counters are rounded."""
  if not slot.dtype.is_floating:
    mean = tf.round(mean)
  return tf.cast(mean, slot.dtype)


def _with_unsent(
  correction: corrections.Correction, sent: corrections.Weights, theta: corrections.Weights
) -> corrections.Weights:
  """Returns the aggregate of what was sent, with zeros for the weights that are not sent."""
  if not any(correction.unsent):
    return sent
  is_sent = tuple(not is_unsent for is_unsent in correction.unsent)
  return corrections.merged(is_sent, sent, corrections.zeros(theta))


def build_finish(
  recipe: components.Recipe,
  server_update_type: tff.Type,
  weights_type: tff.Type,
  update_type: tff.Type,
  totals_type: tff.Type,
) -> tff.Computation:
  """Builds `(<ServerUpdate, W, W, G, T> -> <W, I, metrics>)`, the last computation of a round.

  The two arguments W are the global model before the round and after the server optimizer's step.
  The results are the new global model, the model for inference, and metrics (float32, by name) of
  the updates and of drift. `build_update` explains G and T.
  """

  @tff.tensorflow.computation(
    server_update_type, weights_type, weights_type, update_type, totals_type
  )
  def finish(
    updated: Any, before: Any, after: Any, g_bar: Any, totals: Any
  ) -> tuple[Any, Any, collections.OrderedDict]:
    theta = tuple(after.trainable)
    non_trainable = after.non_trainable
    if tf.nest.flatten(updated.factor):
      # `after - before` is the step that the server optimizer took with factor 1.
      theta = corrections.combine(
        lambda old, new: old + corrections.scale(updated.factor, new - old),
        tuple(before.trainable),
        theta,
      )
    inference: Any = ()
    of_correction, _ = recipe.split(updated.correction)
    if tf.nest.flatten(updated.theta_bar):
      inference = recipe.correction.inference_weights(
        of_correction, theta, tuple(updated.theta_bar)
      )
      inference = tff.learning.models.ModelWeights(inference, non_trainable)
    metrics = _describe_updates(totals)
    if not recipe.is_plain:
      metrics.update(
        _describe_drift(totals, tuple(g_bar), theta, of_correction), h_cosine=updated.h_cosine
      )
    return tff.learning.models.ModelWeights(theta, non_trainable), inference, metrics

  return finish


def _describe_updates(totals: Any) -> collections.OrderedDict:
  """Returns metrics of a cohort's updates, from the sum of its `client_training.Totals`."""
  mean = tf.math.divide_no_nan(totals.norm, totals.used)
  mean_square = tf.math.divide_no_nan(totals.squared_norm, totals.used)
  return collections.OrderedDict(
    update_norm_mean=mean,
    # Rounding can make the variance of equal norms negative.
    update_norm_std=tf.sqrt(tf.maximum(mean_square - mean * mean, 0.0)),
    non_finite_clients=totals.diverged,
  )


def _describe_drift(
  totals: Any, g_bar: corrections.Weights, theta: corrections.Weights, own_state: Any
) -> collections.OrderedDict:
  """Returns metrics of drift; `update_spread` is sqrt(mean ||update||^2 - ||g_bar||^2)."""
  drift = totals.drift
  mean_square = tf.math.divide_no_nan(drift['weighted_square'], drift['weight'])
  spread = tf.maximum(mean_square - corrections.squared_norm(g_bar), 0.0)
  return collections.OrderedDict(
    update_spread=tf.sqrt(spread),
    aggregate_norm=corrections.norm(g_bar),
    theta_norm=corrections.norm(theta),
    h_norm=corrections.norm(corrections.estimate(own_state)),
    h_i_norm_mean=tf.math.divide_no_nan(drift['h_i_norm'], totals.used),
    first_time_clients=drift['first_time_clients'],
  )


def _cosine(h: corrections.Weights, g_bar: corrections.Weights) -> tf.Tensor:
  """Returns the cosine between h and g-bar; 0 if either is zero or their shapes differ.

  FedDyn's h shrinks only in rounds in which this cosine is small enough (AdaBest, Theorem 3.1).
  """
  if [w.shape for w in h] != [w.shape for w in g_bar]:
    return tf.zeros([])
  products = [
    tf.reduce_sum(tf.cast(a, tf.float32) * tf.cast(b, tf.float32)) for a, b in zip(h, g_bar)
  ]
  return tf.math.divide_no_nan(tf.add_n(products), corrections.norm(h) * corrections.norm(g_bar))
