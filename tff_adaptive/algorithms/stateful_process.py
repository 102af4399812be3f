"""Algorithms whose clients keep a state, as `tff.templates.IterativeProcess`es."""

import collections
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.algorithms import client_training, components, finalizer, server_correction
from tff_adaptive.engine import batched_clients


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
    initial_client_state: A client's state before its first round: a structure of NumPy arrays. It
      is made with the process: a model function that draws its weights is called for it once more.
  """

  def __init__(
    self, initialize_fn: tff.Computation, next_fn: tff.Computation, initial_client_state: Any
  ) -> None:
    super().__init__(initialize_fn, next_fn, next_is_multi_arg=True)
    self.initial_client_state = initial_client_state

  def get_model_weights(self, server_state: Any) -> tff.learning.models.ModelWeights:
    """Returns the model to use: theta-bar, the mean of the client models.

    theta, the cloud model that clients are sent, is `server_state.global_model_weights`.

    Args:
      server_state: As `initialize` and `next` return it, or a program state manager loads it.

    Returns:
      The weights, for `tff.learning.models` and evaluation processes.
    """
    weights = server_state.inference_weights
    return tff.learning.models.ModelWeights(weights.trainable, weights.non_trainable)


def compose(recipe: components.Recipe) -> StatefulProcess:
  """Composes a correction with local training, an aggregator and a server optimizer.

  W is the type of the weights, H of the correction's server state, M of the message to clients, C
  of a client's state, D* of its data, G of an update, U of an upload:

      state --> message (H -> M) --+
                                   +--> train (M, W, C, D* -> C, G, U, sums)
      state --> distributor (W) ---+             |            |     |
                                             aggregator (G) --+    sum (U, sums)
                                                              |     |
                       finalizer (W, G -> W) <-- direction -- update (H, W, G, U -> H)
                                |                                |
                             new state, metrics <----------- describe
  """
  parts = _build_parts(recipe)
  initialize = _build_initialize(parts)
  next_fn = _build_next(parts, initialize.type_signature.result, recipe.model.metric_finalizers)
  batched_clients.keep(next_fn, parts.train)
  # Computed here and now: no execution context has to be there when a process is built.
  weights = tuple(recipe.model.initial_weights().trainable)
  first = recipe.correction.client_state(weights)
  return StatefulProcess(initialize, next_fn, tf.nest.map_structure(np.asarray, first))


class _Parts(NamedTuple):
  """What a stateful process is made of; see `compose` for the types."""

  weights: tff.Computation  # ( -> W)
  server_state: tff.Computation  # (W -> H)
  message: tff.Computation  # (<int32, H> -> M)
  train: tff.Computation  # (<M, W, C, D*> -> ClientOutput)
  update: tff.Computation  # (<H, int32, W, W, G, U, sums> -> ServerUpdate)
  describe: tff.Computation  # (<H, W, G, sums, drift> -> metrics)
  distributor: tff.learning.templates.DistributionProcess
  aggregator: tff.templates.AggregationProcess
  finalizer: tff.learning.templates.FinalizerProcess


def _build_parts(recipe: components.Recipe) -> _Parts:
  """Builds the parts in the order in which their types follow from one another."""
  model, correction = recipe.model, recipe.correction

  @tff.tensorflow.computation
  def client_state() -> Any:
    return correction.client_state(tuple(model.initial_weights().trainable))

  weights = components.initial_weights(model)
  weights_type = weights.type_signature.result
  server_state = server_correction.build_initialize(correction, weights_type)
  server_type = server_state.type_signature.result
  message = server_correction.build_message(correction, recipe.client_learning_rate, server_type)
  train = client_training.build(
    recipe, weights_type, message.type_signature.result, client_state.type_signature.result
  )
  output = train.type_signature.result
  update_type = output.result.update
  update = server_correction.build_update(
    correction, server_type, weights_type, update_type, output.trained.upload
  )
  return _Parts(
    weights=weights,
    server_state=server_state,
    message=message,
    train=train,
    update=update,
    describe=server_correction.build_describe(
      correction, update.type_signature.result[0], weights_type, update_type, output.drift
    ),
    distributor=tff.learning.templates.build_broadcast_process(weights_type),
    aggregator=components.build_aggregator(
      recipe.aggregator, update_type, output.result.update_weight
    ),
    finalizer=finalizer.build(recipe.server_optimizer, weights_type),
  )


def _build_initialize(parts: _Parts) -> tff.Computation:
  """`( -> ServerState@SERVER)`."""

  @tff.federated_computation
  def initialize() -> Any:
    weights = tff.federated_eval(parts.weights, tff.SERVER)
    return tff.federated_zip(
      ServerState(
        global_model_weights=weights,
        inference_weights=weights,
        correction=tff.federated_map(parts.server_state, weights),
        round_number=tff.federated_value(0, tff.SERVER),
        distributor=parts.distributor.initialize(),
        aggregator=parts.aggregator.initialize(),
        finalizer=parts.finalizer.initialize(),
      )
    )

  return initialize


def _build_next(parts: _Parts, state_type: tff.Type, metric_finalizers: Any) -> tff.Computation:
  """`(<S@SERVER, {C}@CLIENTS, {D*}@CLIENTS> -> <S@SERVER, {C}@CLIENTS, metrics@SERVER>)`."""
  _, _, client_type, data_type = parts.train.type_signature.parameter
  aggregate_metrics = tff.learning.metrics.sum_then_finalize(metric_finalizers)

  @tff.federated_computation(
    state_type,
    tff.types.FederatedType(client_type, tff.CLIENTS),
    tff.types.FederatedType(data_type, tff.CLIENTS),
  )
  def next_fn(state: Any, client_states: Any, client_data: Any) -> Any:
    weights = state.global_model_weights
    distributed = parts.distributor.next(state.distributor, weights)
    message = tff.federated_broadcast(
      tff.federated_map(parts.message, (state.round_number, state.correction))
    )
    output = tff.federated_map(
      parts.train, (message, distributed.result, client_states, client_data)
    )
    trained, result = output.trained, output.result
    aggregated = parts.aggregator.next(state.aggregator, result.update, result.update_weight)
    sums = components.update_metrics(trained)
    updated = tff.federated_map(
      parts.update,
      (
        state.correction,
        state.round_number,
        weights,
        state.inference_weights,
        aggregated.result,
        tff.federated_sum(trained.upload),
        sums,
      ),
    )
    finalized = parts.finalizer.next(state.finalizer, weights, updated.direction)
    new_state = tff.federated_zip(
      ServerState(
        global_model_weights=finalized.result,
        inference_weights=updated.inference_weights,
        correction=updated.correction,
        round_number=updated.round_number,
        distributor=distributed.state,
        aggregator=aggregated.state,
        finalizer=finalized.state,
      )
    )
    drift = tff.federated_map(
      parts.describe,
      (
        updated.correction,
        finalized.result,
        aggregated.result,
        sums,
        tff.federated_sum(output.drift),
      ),
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
    return new_state, trained.client_state, metrics

  return next_fn
