"""Stateless algorithms as `tff.learning.templates.LearningProcess`es."""

import collections
from collections.abc import Callable
from typing import Any, Optional

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import client_work as client_work_lib
from tff_adaptive import local_models
from tff_adaptive.algorithms import parts
from tff_adaptive.corrections import base as corrections
from tff_adaptive.execution import groups


def build_client_work(
  model: local_models.LocalModel,
  training: client_work_lib.LocalTraining,
  correction: corrections.Correction,
  *,
  client_rate: parts.Rate,
  client_weighting: parts.Weighting,
) -> tff.learning.templates.ClientWorkProcess:
  """Local training as a `ClientWorkProcess`; its state is the round, int32, from 0.

  Args:
    model: The model.
    training: How a client trains.
    correction: A correction that keeps nothing at the clients.
    client_rate: eta_l, a rate or a schedule.
    client_weighting: As for `build_drift_corrected`.
  """
  rate_fn = parts.as_rate_fn(client_rate)
  weights_type = parts.weights_type(model)
  data_type = client_work_lib.data_type(model, training)
  round_type = tff.types.TensorType(tf.int32.as_numpy_dtype)

  @tff.tensorflow.computation(round_type)
  def round_and_rate(t):
    return t, rate_fn(t)

  def train_together(clients):
    (t, rate), weights, _ = clients[0]
    trained = client_work_lib.train_group(
      model,
      training,
      correction,
      weights=tff.learning.models.ModelWeights(**weights),
      elements=[data for _, _, data in clients],
      kept=[()] * len(clients),
      sent=(),
      round_number=t + 1,
      rate=rate,
    )
    return result_of(trained)

  def result_of(trained):
    weight = parts.client_weight(client_weighting, trained)
    result = tff.learning.templates.ClientResult(trained.update, weight)
    return trained._replace(update=()), result

  @parts.client_computation(
    model,
    training,
    train_together,
    round_and_rate.type_signature.result,
    weights_type,
    data_type,
  )
  def train(round_rate, weights, data):
    t, rate = round_rate
    trained = client_work_lib.train_client(
      model,
      training,
      correction,
      weights=weights,
      data=data,
      kept=(),
      sent=(),
      round_number=t + 1,
      rate=rate,
    )
    return result_of(trained)

  @tff.tensorflow.computation(round_type)
  def next_round(t):
    return t + 1

  aggregate_metrics = tff.learning.metrics.sum_then_finalize(model.metric_finalizers)

  @tff.federated_computation
  def initialize():
    return tff.federated_value(0, tff.SERVER)

  @tff.federated_computation(
    initialize.type_signature.result,
    tff.types.FederatedType(weights_type, tff.CLIENTS),
    tff.types.FederatedType(data_type, tff.CLIENTS),
  )
  def next_fn(state, weights, data):
    sent = tff.federated_broadcast(tff.federated_map(round_and_rate, state))
    outcome = tff.federated_map(train, (sent, weights, data))
    trained, result = outcome[0], outcome[1]
    sums = parts.update_metrics(trained)
    describe = tff.tensorflow.computation(parts.describe_updates, sums.type_signature.member)
    measurements = tff.federated_zip(
      collections.OrderedDict(
        train=aggregate_metrics(trained.metrics), updates=tff.federated_map(describe, sums)
      )
    )
    return tff.templates.MeasuredProcessOutput(
      tff.federated_map(next_round, state), result, measurements
    )

  groups.keep(next_fn, train)
  return tff.learning.templates.ClientWorkProcess(initialize, next_fn)


def compose(
  model: local_models.LocalModel,
  client_work: tff.learning.templates.ClientWorkProcess,
  *,
  server_optimizer: tff.learning.optimizers.Optimizer,
  server_schedule: Optional[Callable[[Any], Any]] = None,
  aggregator: Optional[parts.Aggregator] = None,
) -> tff.learning.templates.LearningProcess:
  """Composes client work, aggregator and server optimizer into a learning process."""
  weights_type = parts.weights_type(model)
  result = client_work.next.type_signature.result.result.member
  process = tff.learning.templates.compose_learning_process(
    parts.initial_weights(model),
    tff.learning.templates.build_broadcast_process(weights_type),
    client_work,
    parts.build_aggregator(aggregator, result.update, result.update_weight),
    parts.build_finalizer(server_optimizer, server_schedule, weights_type),
  )
  groups.keep(process.next, client_work.next)
  return process
