"""What a client does in a round, as a TFF computation.

A client trains alone or in a group, with a state or without, by the same code. The graph engine
may have several clients train together; see `engine.batched_clients`.
"""

import collections
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.algorithms import components
from tff_adaptive.client import local_training
from tff_adaptive.corrections import base as corrections
from tff_adaptive.engine import batched_clients


class ClientOutput(NamedTuple):
  """What a client's training gives.

  Attributes:
    trained: The `local_training.Trained`, its update left to `result`.
    result: The `tff.learning.templates.ClientResult`: the update and its weight in the mean.
    drift: float32 numbers to be summed over the cohort, which describe the drift estimates; ()
      where clients keep no state.
  """

  trained: local_training.Trained
  result: tff.learning.templates.ClientResult
  drift: Any


def build(
  recipe: components.Recipe,
  weights_type: tff.Type,
  message_type: tff.Type,
  client_state_type: tff.Type | None = None,
) -> tff.Computation:
  """The computation of a client's round.

  Args:
    recipe: What the process is composed of.
    weights_type: Type W of the model's weights.
    message_type: Type M = <t int32 from 1, eta_l float32, what the correction broadcasts>.
    client_state_type: Type C of a client's state; None where clients keep none.

  Returns:
    `(<M, W, C, D*> -> ClientOutput)`, or `(<M, W, D*> -> ClientOutput)` without a state; D* is the
    type of a client's data.
  """
  model, training, correction = recipe.model, recipe.training, recipe.correction
  data_type = local_training.data_type(model, training)

  def train(
    message: Any, weights: Any, client_state: Any, data: Any, group_size: int | None = None
  ) -> ClientOutput:
    t, rate, broadcast = message
    trained = local_training.train(
      model,
      training,
      correction,
      weights=weights,
      data=data,
      client_state=client_state,
      broadcast=broadcast,
      round_number=t,
      rate=rate,
    )
    weight = components.client_weight(recipe.client_weighting, trained)
    drift: Any = ()
    if correction.is_stateful:
      drift = _drift(correction, trained, client_state, weight, group_size)
    result = tff.learning.templates.ClientResult(trained.update, weight)
    return ClientOutput(trained._replace(update=()), result, drift)

  def train_together(clients: list[Any]) -> ClientOutput:
    message, weights = clients[0][:2]
    states = [client[2] if correction.is_stateful else () for client in clients]
    return train(
      message,
      tff.learning.models.ModelWeights(**weights),
      tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *states),
      [client[-1] for client in clients],
      len(clients),
    )

  def declare(*types: Any) -> Callable[[Callable[..., Any]], tff.Computation]:
    """`@tff.tensorflow.computation(*types)`; one that clients do together, where they can."""
    if not local_training.can_group(model, training):
      return tff.tensorflow.computation(*types)
    group = batched_clients.Group(train_together, model.has_client_axis)
    return batched_clients.computation(group, *types)

  if client_state_type is None:

    @declare(message_type, weights_type, data_type)
    def train_stateless(message: Any, weights: Any, data: Any) -> ClientOutput:
      return train(message, weights, (), data)

    return train_stateless

  @declare(message_type, weights_type, client_state_type, data_type)
  def train_stateful(message: Any, weights: Any, client_state: Any, data: Any) -> ClientOutput:
    return train(message, weights, client_state, data)

  return train_stateful


def _drift(
  correction: corrections.Correction,
  trained: local_training.Trained,
  client_state: Any,
  weight: tf.Tensor,
  group_size: int | None,
) -> collections.OrderedDict:
  """The numbers of one client, or [G] of a group, that describe the drift estimates."""
  before, after = map(correction.client_estimate, (client_state, trained.client_state))
  h_i = corrections.squared_norm(after, group_size)
  is_new = tf.equal(corrections.squared_norm(before, group_size), 0) & bool(before)
  return collections.OrderedDict(
    h_i_norm=trained.is_used * tf.sqrt(h_i),
    first_time_clients=trained.is_used * tf.cast(is_new, tf.float32),
    weight=weight,
    weighted_square=weight * trained.squared_norm,
  )
