"""A client's part of a round, as a TFF computation.

The graph engine may train G clients together as a group (see `engine.batched_clients`). The same
code trains one client or a group, with or without a state.
"""

import collections
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.algorithms import components
from tff_adaptive.asynchrony import process as asynchrony_lib
from tff_adaptive.client import attacks, entries as entries_lib, local_training
from tff_adaptive.corrections import base as corrections, chains
from tff_adaptive.engine import batched_clients
from tff_adaptive.models import eager_constants


class Totals(NamedTuple):
  """A client's values that are summed over the cohort, besides its update; scalars are float32.

  Attributes:
    upload: The correction's upload; if `combine_uploads` is 'weighted', times the client's weight.
    optimizer: The client optimizer's state times the client's weight; () if it is not averaged.
    used: 1 for a client whose update is used, else 0.
    diverged: 1 for a client with numbers that are not finite, else 0.
    norm: The update's 2-norm, or 0 if the update is not used.
    squared_norm: The square of `norm`.
    drift: A dict of scalars for the metrics of drift; () if `Recipe.is_plain`.
  """

  upload: Any
  optimizer: Any
  used: Any
  diverged: Any
  norm: Any
  squared_norm: Any
  drift: Any


class ClientOutput(NamedTuple):
  """The results of a client's training.

  Attributes:
    client_state: The client's new state.
    metrics: The client's unfinalized training metrics.
    result: The `tff.learning.templates.ClientResult`: the update and its weight in the mean.
    totals: The values that are summed over the cohort.
    measures: With `ClientTraining.measures` the values of `client.entries.MEASURES`, float32 [c];
      else ().
  """

  client_state: Any
  metrics: Any
  result: tff.learning.templates.ClientResult
  totals: Totals
  measures: Any = ()


def build(
  recipe: components.Recipe,
  weights_type: tff.Type,
  message_type: tff.Type,
  client_state_type: tff.Type | None = None,
) -> tff.Computation:
  """Builds the TFF computation of a client's training in a round.

  Args:
    recipe: The parts of the process.
    weights_type: Type W of the model's weights. In asynchronous training it is <W, older>: the
      present weights, and the stack of older messages and weights.
    message_type: Type M of a `local_training.Message`.
    client_state_type: Type C of a client's state; None if clients keep no state.

  Returns:
    `(<M, W, C, D*> -> ClientOutput)`, or `(<M, W, D*> -> ClientOutput)` without a state; D* is the
    type of a client's data.
  """
  model = recipe.model
  training = recipe.training
  correction = recipe.correction

  def train(
    message: local_training.Message, weights: Any, state: Any, data: Any, size: int | None
  ) -> ClientOutput:
    beginning = None
    if recipe.asynchrony is not None:
      beginning = asynchrony_lib.begin(recipe.asynchrony, message, weights, data)
      message = beginning.message
      weights = beginning.weights
    trained = local_training.train(
      model, training, correction, weights=weights, data=data, client_state=state, message=message
    )
    if beginning is not None:
      trained = asynchrony_lib.discounted(trained, beginning)
    trained = as_sent(training, trained, data, message)
    weight = components.client_weight(recipe.client_weighting, trained)
    drift: Any = ()
    if not recipe.is_plain:
      drift = _drift(recipe, trained, state, weight, size)
    weigh = functools.partial(_weighted, weight)
    totals = Totals(
      chains.weigh_uploads(correction, trained.upload, weigh),
      _weighted(weight, trained.optimizer),
      trained.is_used,
      trained.diverged,
      tf.sqrt(trained.squared_norm),
      trained.squared_norm,
      drift,
    )
    measures: Any = ()
    if training.measures is not None:
      measures = _measures(recipe, trained, state, data, size)
    # Only the aggregator sees the marked weight: the sums above have the true one.
    if training.attack == attacks.INNER_PRODUCT:
      weight = attacks.marked(weight, data)
    result = tff.learning.templates.ClientResult(trained.update, weight)
    return ClientOutput(trained.client_state, trained.metrics, result, totals, measures)

  return _declare(recipe, train, weights_type, message_type, client_state_type)


def build_exchange(
  recipe: components.Recipe,
  weights_type: tff.Type,
  message_type: tff.Type,
  client_state_type: tff.Type | None = None,
) -> tff.Computation:
  """Builds the computation of what a client sends before it trains.

  Its type is `(<M, W, C, D*> -> <E, float32>)`; `build` explains M, W, C and D*. E is the result of
  `Correction.exchange` times the client's weight, which is the float32 (for the cohort's mean).
  """
  model = recipe.model
  training = recipe.training
  correction = recipe.correction

  def exchange(
    message: local_training.Message, weights: Any, state: Any, data: Any, size: int | None
  ) -> Any:
    del size
    sent, num_examples = local_training.exchange(
      model, training, correction, weights, data, state, message
    )
    weight = num_examples
    if recipe.client_weighting != 'examples':  # Metrics exist only after training.
      weight = tf.cast(num_examples > 0, tf.float32)
    return _weighted(weight, sent), weight

  return _declare(recipe, exchange, weights_type, message_type, client_state_type)


def as_sent(
  training: local_training.ClientTraining,
  trained: local_training.Trained,
  data: Any,
  message: local_training.Message,
) -> local_training.Trained:
  """Returns a client's result with what it sends: after an attack, and times its weight.

  Args:
    training: The settings of the process.
    trained: The client's result, or that of a group of clients.
    data: The client's data, or the list of the data of a group.
    message: The message with which it began.
  """
  # What an attacker sends replaces its finished update; the weight of the cohort's rule multiplies
  # that as it does the update of an honest client.
  if training.attack is not None:
    trained = attacks.attacked(training.attack, training.seed, trained, data, message.t)
  if training.cohort_weights:
    trained = _times_cohort_weight(trained, data)
  return trained


def _times_cohort_weight(trained: local_training.Trained, data: Any) -> local_training.Trained:
  """Returns a client's result with its update times the weight in the client's data."""
  weight = attacks.of_data(data, entries_lib.COHORT_WEIGHT)
  update = corrections.combine(lambda leaf: corrections.scale(weight, leaf), trained.update)
  # The norm is that of what the client sends.
  return trained._replace(update=update, squared_norm=trained.squared_norm * weight**2)


def _weighted(weight: tf.Tensor, tree: Any) -> Any:
  """Returns tensors times a client's weight, in float32 or wider; a weight [G] is for a group."""

  def scaled(leaf: tf.Tensor) -> tf.Tensor:
    # In 16 bits the sum over a cohort would lose its small terms.
    is_wide = leaf.dtype.is_floating and leaf.dtype.size >= 4
    if not is_wide:
      leaf = tf.cast(leaf, tf.float32)
    return corrections.scale(weight, leaf)

  return tf.nest.map_structure(scaled, tree)


def _declare(
  recipe: components.Recipe,
  function: Callable[..., Any],
  weights_type: tff.Type,
  message_type: tff.Type,
  client_state_type: tff.Type | None,
) -> tff.Computation:
  """Makes `function(message, weights, state, data, group_size)` a client's TFF computation.

  If `local_training.can_group` allows it, the engine may run it for a group of clients together;
  not in asynchronous training, where clients begin with different models.
  """
  # What the data of a client have besides x, y and client.
  entries: dict[str, tf.TensorSpec] = {}
  if recipe.asynchrony is not None:
    entries = asynchrony_lib.data_entries(recipe.asynchrony)
  if recipe.training.cohort_weights:
    entries[entries_lib.COHORT_WEIGHT] = tf.TensorSpec([], tf.float32)
  if recipe.training.attack is not None:
    entries[entries_lib.ATTACK] = tf.TensorSpec([], tf.float32)
  data_type = local_training.data_type(recipe.model, recipe.training, entries)
  has_state = client_state_type is not None

  def together(clients: list[Any]) -> Any:
    # The server sends the same to all clients.
    message, weights = clients[0][:2]
    states: list[Any] = [()] * len(clients)
    if has_state:
      states = [client[2] for client in clients]
    return function(
      local_training.Message(**message),
      tff.learning.models.ModelWeights(**weights),
      tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *states),
      # The client's data are the last argument, also where there is no state.
      [client[-1] for client in clients],
      len(clients),
    )

  def stateful(message: Any, weights: Any, client_state: Any, data: Any) -> Any:
    return function(local_training.Message(*message), weights, client_state, data, None)

  def stateless(message: Any, weights: Any, data: Any) -> Any:
    return stateful(message, weights, (), data)

  client: Any = stateless
  if has_state:
    client = stateful
  types = [message_type, weights_type, data_type]
  if has_state:
    types.insert(2, client_state_type)
  declare = tff.tensorflow.computation(*types)
  can_group = local_training.can_group(recipe.model, recipe.training)
  if can_group and recipe.asynchrony is None:
    group = batched_clients.Group(together, recipe.model.has_client_axis)
    declare = batched_clients.computation(group, *types)
  try:
    # TFF traces here. Whether a model uses eager tensors is known only if TensorFlow refuses them.
    return declare(client)
  except RuntimeError as error:
    if not eager_constants.is_refusal(error):
      raise
    if recipe.model.has_variables:
      raise ValueError(eager_constants.MESSAGE) from error
  return declare(eager_constants.lifted(client))


def _measures(
  recipe: components.Recipe,
  trained: local_training.Trained,
  client_state: Any,
  data: Any,
  group_size: int | None,
) -> tf.Tensor:
  """Returns a client's values of `entries.MEASURES`, float32 [c], or [G, c] for G clients."""
  values: dict[str, Any] = {'is_used': trained.is_used, 'diverged': trained.diverged}
  values['update_norm'] = tf.sqrt(trained.squared_norm)
  if recipe.training.attack == attacks.INNER_PRODUCT:
    # What attackers send is made at the server; see `aggregation.InnerProductFactory`.
    is_attacker = attacks.of_data(data, entries_lib.ATTACK) > 0
    values['update_norm'] = tf.where(is_attacker, math.nan, values['update_norm'])
  if recipe.model.takes_loss:  # Then the metrics are a sum and a count by name.
    loss = trained.metrics['loss']
    # NaN for a client that took no step.
    values['train_loss'] = loss[..., 0] / loss[..., 1]
  state = client_state
  if recipe.keeps_slots:
    state = client_state['correction']
  h_i = corrections.estimate(state)
  update = tuple(tf.nest.flatten(trained.update))
  # The estimates of a chain, or of weights that are not sent, are not those of the update.
  is_of_update = [leaf.shape for leaf in h_i] == [leaf.shape for leaf in update]
  if h_i and is_of_update:
    norms = trained.squared_norm * corrections.squared_norm(h_i, group_size)
    values['cosine_h'] = _product(update, h_i, group_size) / tf.sqrt(norms)
  values.update(trained.measured or {})
  unknown = tf.fill(tf.shape(trained.is_used), tf.constant(math.nan))
  columns = [tf.cast(values.get(name, unknown), tf.float32) for name in entries_lib.MEASURES]
  return tf.stack(columns, -1)


def _product(
  first: corrections.Weights, second: corrections.Weights, group_size: int | None
) -> tf.Tensor:
  """Returns the inner product of weights, float32; [G] for a group of G clients."""
  shape = [-1]
  if group_size is not None:
    shape = [group_size, -1]
  total: Any = 0.0
  for one, other in zip(first, second):
    product = tf.reshape(tf.cast(one, tf.float32) * tf.cast(other, tf.float32), shape)
    total += tf.reduce_sum(product, -1)
  return total


def _drift(
  recipe: components.Recipe,
  trained: local_training.Trained,
  client_state: Any,
  weight: tf.Tensor,
  group_size: int | None,
) -> collections.OrderedDict:
  """Returns a client's numbers for the metrics of drift: scalars, or [G] for G clients."""
  before = client_state
  after = trained.client_state
  if recipe.keeps_slots:
    before = before['correction']
    after = after['correction']
  before = corrections.estimate(before)
  after = corrections.estimate(after)
  h_i = corrections.squared_norm(after, group_size)
  # A client's h_i is zero until the client has taken part.
  is_new = tf.equal(corrections.squared_norm(before, group_size), 0) & bool(before)
  return collections.OrderedDict(
    h_i_norm=trained.is_used * tf.sqrt(h_i),
    first_time_clients=trained.is_used * tf.cast(is_new, tf.float32),
    weight=weight,
    # For `update_spread`; see `server_correction`.
    weighted_square=weight * trained.squared_norm,
  )
