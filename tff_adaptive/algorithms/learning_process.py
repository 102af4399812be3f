"""Algorithms without a server's part and client states, composed by TFF's own function."""

import collections
from typing import Any

import tensorflow_federated as tff

from tff_adaptive.algorithms import client_training, components, finalizer
from tff_adaptive.client import local_training
from tff_adaptive.engine import batched_clients


def compose(recipe: components.Recipe) -> tff.learning.templates.LearningProcess:
  """Composes local training, aggregator and server optimizer into a learning process."""
  weights = components.initial_weights(recipe.model)
  weights_type = weights.type_signature.result
  client_work = _build_client_work(recipe, weights_type)
  result = client_work.next.type_signature.result.result.member
  process = tff.learning.templates.compose_learning_process(
    weights,
    tff.learning.templates.build_broadcast_process(weights_type),
    client_work,
    components.build_aggregator(recipe.aggregator, result.update, result.update_weight),
    finalizer.build(recipe.server_optimizer, weights_type),
  )
  batched_clients.keep(process.next, client_work.next)
  return process


def _build_client_work(
  recipe: components.Recipe, weights_type: tff.Type
) -> tff.learning.templates.ClientWorkProcess:
  """Local training as a `ClientWorkProcess`; its state is the round, int32, from 0."""
  rate_fn = components.as_rate_fn(recipe.client_learning_rate)

  @tff.tensorflow.computation(components.ROUND_TYPE)
  def message(t: Any) -> Any:
    return local_training.Message(t + 1, rate_fn(t))

  train = client_training.build(recipe, weights_type, message.type_signature.result)
  *_, data_type = train.type_signature.parameter

  @tff.tensorflow.computation(components.ROUND_TYPE)
  def next_round(t: Any) -> Any:
    return t + 1

  aggregate_metrics = tff.learning.metrics.sum_then_finalize(recipe.model.metric_finalizers)

  @tff.federated_computation
  def initialize() -> Any:
    return tff.federated_value(0, tff.SERVER)

  @tff.federated_computation(
    initialize.type_signature.result,
    tff.types.FederatedType(weights_type, tff.CLIENTS),
    tff.types.FederatedType(data_type, tff.CLIENTS),
  )
  def next_fn(state: Any, weights: Any, data: Any) -> tff.templates.MeasuredProcessOutput:
    broadcast = tff.federated_broadcast(tff.federated_map(message, state))
    output = tff.federated_map(train, (broadcast, weights, data))
    totals = tff.federated_sum(output.totals)
    describe = tff.tensorflow.computation(components.describe_updates, totals.type_signature.member)
    measurements = tff.federated_zip(
      collections.OrderedDict(
        train=aggregate_metrics(output.metrics), updates=tff.federated_map(describe, totals)
      )
    )
    return tff.templates.MeasuredProcessOutput(
      tff.federated_map(next_round, state), output.result, measurements
    )

  batched_clients.keep(next_fn, train)
  return tff.learning.templates.ClientWorkProcess(initialize, next_fn)
