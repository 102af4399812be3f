"""Algorithms whose clients remember, as `tff.templates.IterativeProcess`es."""

import collections
from collections.abc import Callable
from typing import Any, NamedTuple, Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import client_work as client_work_lib
from tff_adaptive import local_models
from tff_adaptive.algorithms import parts
from tff_adaptive.corrections import base as corrections
from tff_adaptive.execution import groups


class ServerState(NamedTuple):
  """State of the server.

  Attributes:
    global_model_weights: theta^t, the cloud model.
    inference_weights: theta-bar^t, the mean of the client models: the model to use.
    correction: What the correction keeps at the server (h, say).
    round_number: int32, rounds done.
    distributor: State of the distributor.
    aggregator: State of the aggregator.
    finalizer: State of the server optimizer.
  """

  global_model_weights: Any
  inference_weights: Any
  correction: Any
  round_number: Any
  distributor: Any
  aggregator: Any
  finalizer: Any


class StatefulProcess(tff.templates.IterativeProcess):
  """An iterative process whose clients keep a state between the rounds they take part in.

  `next(server_state, client_states, client_data) -> (server_state, client_states, metrics)`, type
  `(<S@SERVER, {C}@CLIENTS, {D*}@CLIENTS> -> <S@SERVER, {C}@CLIENTS, M@SERVER>)`.

  Attributes:
    initial_client_state: A client's state before its first round: a structure of NumPy arrays.
  """

  def __init__(self, initialize_fn, next_fn, initial_client_state):
    super().__init__(initialize_fn, next_fn, next_is_multi_arg=True)
    self.initial_client_state = initial_client_state


def compose(
  model: local_models.LocalModel,
  training: client_work_lib.LocalTraining,
  correction: corrections.Correction,
  *,
  client_rate: parts.Rate,
  client_weighting: parts.Weighting,
  server_optimizer: tff.learning.optimizers.Optimizer,
  server_schedule: Optional[Callable[[Any], Any]] = None,
  aggregator: Optional[parts.Aggregator] = None,
) -> StatefulProcess:
  """Composes a correction with local training, an aggregator and a server optimizer."""
  rate_fn = parts.as_rate_fn(client_rate)
  initial_weights = parts.initial_weights(model)
  weights_type = initial_weights.type_signature.result
  data_type = client_work_lib.data_type(model, training)
  round_type = tff.types.TensorType(np.int32)

  @tff.tensorflow.computation
  def client_state_fn():
    return correction.client_state(tuple(model.initial_weights().trainable))

  @tff.tensorflow.computation
  def server_state_fn():
    return correction.server_state(tuple(model.initial_weights().trainable))

  client_type = client_state_fn.type_signature.result
  server_type = server_state_fn.type_signature.result

  @tff.tensorflow.computation(round_type, server_type)
  def message(t, server_state):
    return t + 1, rate_fn(t), correction.broadcast(server_state)

  def train_together(clients):
    (t, rate, extra), weights = clients[0][:2]
    kept = [client[2] for client in clients]
    trained = client_work_lib.train_group(
      model,
      training,
      correction,
      weights=tff.learning.models.ModelWeights(**weights),
      elements=[client[3] for client in clients],
      kept=kept,
      sent=extra,
      round_number=t,
      rate=rate,
    )
    return result_of(
      trained, tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *kept), len(kept)
    )

  def result_of(trained, kept, group_size=None):
    weight = parts.client_weight(client_weighting, trained)
    before, after = map(correction.client_estimate, (kept, trained.kept))
    h_i = corrections.squared_norm(after, group_size)
    is_new = tf.equal(corrections.squared_norm(before, group_size), 0) & bool(before)
    facts = collections.OrderedDict(
      h_i_norm=trained.is_used * tf.sqrt(h_i),
      first_time_clients=trained.is_used * tf.cast(is_new, tf.float32),
      weight=weight,
      weighted_square=weight * trained.squared_norm,
    )
    return trained, weight, facts

  @parts.client_computation(
    model,
    training,
    train_together,
    message.type_signature.result,
    weights_type,
    client_type,
    data_type,
  )
  def train(sent, weights, kept, data):
    t, rate, extra = sent
    trained = client_work_lib.train_client(
      model,
      training,
      correction,
      weights=weights,
      data=data,
      kept=kept,
      sent=extra,
      round_number=t,
      rate=rate,
    )
    return result_of(trained, kept)

  trained_type = train.type_signature.result[0]
  distributor = tff.learning.templates.build_broadcast_process(weights_type)
  weight_type = tff.types.TensorType(np.float32)
  aggregation = parts.build_aggregator(aggregator, trained_type.update, weight_type)
  finalizer = parts.build_finalizer(server_optimizer, server_schedule, weights_type)
  aggregate_metrics = tff.learning.metrics.sum_then_finalize(model.metric_finalizers)
  sums_type = tff.types.to_type(
    collections.OrderedDict(
      used=np.float32, diverged=np.float32, norm=np.float32, squared_norm=np.float32
    )
  )
  facts_type = train.type_signature.result[2]

  @tff.tensorflow.computation(
    server_type,
    round_type,
    weights_type,
    weights_type,
    trained_type.update,
    trained_type.upload,
    sums_type,
  )
  def serve(server_state, t, weights, inference, g_bar, uploads, sums):
    g_bar = tuple(g_bar)
    cohort = tf.maximum(sums['used'], 1.0)
    uploads = tf.nest.map_structure(lambda u: u / tf.cast(cohort, u.dtype), uploads)
    server = corrections.ServerRound(
      g_bar=g_bar, uploads=uploads, cohort=sums['used'], t=tf.cast(t + 1, tf.float32)
    )
    new_state, direction = correction.server_update(server_state, server)
    aggregate = corrections.combine(tf.subtract, tuple(weights.trainable), g_bar)
    # A round without a usable update changes nothing: the finalizer refuses a NaN direction.
    is_usable = tf.math.is_finite(corrections.squared_norm(g_bar)) & (sums['used'] > 0)
    new_state = tf.cond(is_usable, lambda: new_state, lambda: server_state)
    aggregate = tf.cond(is_usable, lambda: aggregate, lambda: tuple(inference.trainable))
    direction = tuple(tf.where(is_usable, d, tf.cast(np.nan, d.dtype)) for d in direction)
    inference = tff.learning.models.ModelWeights(aggregate, weights.non_trainable)
    return new_state, direction, inference, t + 1

  serve_result = serve.type_signature.result

  @tff.tensorflow.computation(
    serve_result[0], weights_type, trained_type.update, sums_type, facts_type
  )
  def describe(server_state, weights, g_bar, sums, facts):
    g_bar = tuple(g_bar)
    return collections.OrderedDict(
      parts.describe_updates(sums),
      update_spread=parts.spread(facts['weight'], facts['weighted_square'], g_bar),
      aggregate_norm=corrections.norm(g_bar),
      theta_norm=corrections.norm(tuple(weights.trainable)),
      h_norm=correction.h_norm(server_state),
      h_i_norm_mean=tf.math.divide_no_nan(facts['h_i_norm'], sums['used']),
      first_time_clients=facts['first_time_clients'],
    )

  @tff.federated_computation
  def initialize():
    weights = tff.federated_eval(initial_weights, tff.SERVER)
    return tff.federated_zip(
      ServerState(
        global_model_weights=weights,
        inference_weights=weights,
        correction=tff.federated_eval(server_state_fn, tff.SERVER),
        round_number=tff.federated_value(0, tff.SERVER),
        distributor=distributor.initialize(),
        aggregator=aggregation.initialize(),
        finalizer=finalizer.initialize(),
      )
    )

  @tff.federated_computation(
    initialize.type_signature.result,
    tff.types.FederatedType(client_type, tff.CLIENTS),
    tff.types.FederatedType(data_type, tff.CLIENTS),
  )
  def next_fn(state, client_states, client_data):
    weights = state.global_model_weights
    distributed = distributor.next(state.distributor, weights)
    sent = tff.federated_broadcast(
      tff.federated_map(message, (state.round_number, state.correction))
    )
    outcome = tff.federated_map(train, (sent, distributed.result, client_states, client_data))
    trained, weight, facts = outcome[0], outcome[1], outcome[2]
    aggregated = aggregation.next(state.aggregator, trained.update, weight)
    sums = parts.update_metrics(trained)
    uploads = tff.federated_sum(trained.upload)
    served = tff.federated_map(
      serve,
      (
        state.correction,
        state.round_number,
        weights,
        state.inference_weights,
        aggregated.result,
        uploads,
        sums,
      ),
    )
    finalized = finalizer.next(state.finalizer, weights, served[1])
    new_state = tff.federated_zip(
      ServerState(
        global_model_weights=finalized.result,
        inference_weights=served[2],
        correction=served[0],
        round_number=served[3],
        distributor=distributed.state,
        aggregator=aggregated.state,
        finalizer=finalized.state,
      )
    )
    drift = tff.federated_map(
      describe,
      (served[0], finalized.result, aggregated.result, sums, tff.federated_sum(facts)),
    )
    metrics = tff.federated_zip(
      collections.OrderedDict(
        distributor=distributed.measurements,
        client_work=tff.federated_zip(
          collections.OrderedDict(train=aggregate_metrics(trained.metrics), updates=drift)
        ),
        aggregator=aggregated.measurements,
        finalizer=finalized.measurements,
      )
    )
    return new_state, trained.kept, metrics

  groups.keep(next_fn, train)
  # Computed here and now: no execution context has to be there when a process is built.
  first = correction.client_state(tuple(model.initial_weights().trainable))
  initial_client_state = tf.nest.map_structure(np.asarray, first)
  return StatefulProcess(initialize, next_fn, initial_client_state)
