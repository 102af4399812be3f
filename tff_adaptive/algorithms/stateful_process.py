"""Composes the TFF process of any algorithm, whether its clients keep a state or not."""

import collections
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive._utils import gathered
from tff_adaptive.algorithms import (
  client_training,
  components,
  finalizer,
  server_correction,
  single_client,
)
from tff_adaptive.asynchrony import process as asynchrony_lib
from tff_adaptive.corrections import base as corrections, downward
from tff_adaptive.engine import batched_clients


class ServerState(NamedTuple):
  """The state of the server.

  Attributes:
    global_model_weights: theta^t, the global model.
    inference_weights: The model for inference, such as the mean of the client models. () if the
      global model is the one for inference.
    correction: The correction's state at the server, such as the drift estimate h.
    round_number: int32, the number of rounds done.
    distributor: State of the distributor.
    aggregator: State of the aggregator.
    finalizer: State of the server optimizer.
    client_work: The clients' learning rate, which `set_hparams` changes, in a dict as in TFF. () if
      a schedule gives the rate, or if clients keep a state.
    older: In asynchronous training a stack of the older models, and messages, with which the
      clients of a step began. The caller sets it before the step, which replaces it by the model
      and the message before the step. () in synchronous training.
  """

  global_model_weights: Any
  inference_weights: Any
  correction: Any
  round_number: Any
  distributor: Any
  aggregator: Any
  finalizer: Any
  client_work: Any = ()
  older: Any = ()


class StatefulProcess(tff.templates.IterativeProcess):
  """An iterative process whose clients keep a state between the rounds they take part in.

  `next(server_state, client_states, client_data) -> (server_state, client_states, metrics)`, type
  `(<S@SERVER, {C}@CLIENTS, {D*}@CLIENTS> -> <S@SERVER, {C}@CLIENTS, M@SERVER>)`: S is the server's
  state, C a client's state, D* a client's data, and M the metrics.

  Args:
    initialize_fn, next_fn: The computations of the first server state, and of a round.
    initial_client_state: See below.
    recipe: The parts of the process.

  Attributes:
    has_client_models: Whether each client has a model of its own, as in Ditto; see `client_model`.
    initial_client_state: A client's state before its first round: a structure of NumPy arrays. It
      comes from one more call of the model function. If that draws the initial weights at random,
      weights in this state therefore differ from those of `initialize()`.
  """

  def __init__(
    self,
    initialize_fn: tff.Computation,
    next_fn: tff.Computation,
    initial_client_state: Any,
    recipe: components.Recipe,
  ) -> None:
    super().__init__(initialize_fn, next_fn, next_is_multi_arg=True)
    self.initial_client_state = initial_client_state
    self._recipe = recipe
    self.has_client_models = recipe.correction.overrides('personal')

  def client_model(self, server_state: Any, client_state: Any) -> tuple[np.ndarray, ...]:
    """Returns the trainable weights of a client's own model.

    Args:
      server_state: A server state.
      client_state: The client's state after a round in which it took part. A client that has never
        taken part has the model of `get_model_weights`.
    """
    theta = model_to_use(server_state).trainable
    return own_model(self._recipe.correction, self._recipe.training, client_state, theta)

  def get_model_weights(self, server_state: Any) -> tff.learning.models.ModelWeights:
    """Returns the weights of the model for inference, such as the mean of the client models.

    The global model, which clients receive, is `server_state.global_model_weights`. Behind
    compressed messages to the clients the mean has what these left out of the model added.

    Args:
      server_state: A state from `initialize`, `next` or a program state manager.
    """
    return model_to_use(server_state)


def own_model(
  correction: corrections.Correction, training: Any, client_state: Any, theta: Any
) -> tuple[np.ndarray, ...]:
  """Returns the trainable weights of a client's own model; see `Correction.personal`.

  Args:
    correction: The correction, resolved for the model.
    training: The settings of a client's training.
    client_state: The client's state; see `components.Recipe.client_state`.
    theta: The trainable weights of the model that is evaluated.
  """
  if components.keeps_slots(correction, training):
    client_state = client_state['correction']
  client_state = tf.nest.map_structure(tf.convert_to_tensor, client_state)
  weights = correction.personal(client_state, tuple(map(tf.convert_to_tensor, theta)))
  return tuple(np.asarray(w) for w in weights)


def model_to_use(server_state: Any) -> tff.learning.models.ModelWeights:
  """Returns the `inference_weights` of a `ServerState`, or its global model if there are none."""
  # `inference_weights` may be ().
  weights = server_state.inference_weights or server_state.global_model_weights
  return tff.learning.models.ModelWeights(weights.trainable, weights.non_trainable)


def compose(recipe: components.Recipe) -> StatefulProcess | tff.learning.templates.LearningProcess:
  """Composes a correction with local training, an aggregator and a server optimizer.

  The types are: W the weights, H the correction's server state, M the message to clients, C and D*
  a client's state and data, G an update, T the other sums over the cohort, I the inference model:

      state --> message (H, R -> M) > (exchange) -+
                                                  +--> train (M, W, C, D* -> C, G, T)
      state --> distributor (W) ------------------+             |            |     |
                                                            aggregator (G) --+    sum (T)
                                                                             |     |
                       finalizer (W, G -> W) <-- direction -- update (H, W, G, T -> H)
                                |                                |
                       finish (H, W, W, G, T -> W, I, metrics) --+--> new state

  Returns:
    A `LearningProcess` if clients keep no state, else a `StatefulProcess`.
  """
  parts = _build_parts(recipe)
  initialize = _build_initialize(parts)
  next_fn = _build_next(parts, initialize.type_signature.result, recipe)
  # The registry of groups refers to these weakly, and the engine looks there when it traces.
  batched_clients.keep(next_fn, parts.train, parts.exchange)
  single_client.register(
    next_fn,
    single_client.Parts(
      recipe, parts.message, parts.send, parts.exchange, parts.exchanged, parts.train
    ),
  )
  if not recipe.is_stateful:
    return _learning_process(parts, initialize, next_fn, recipe)
  # Computed eagerly, so that building a process needs no TFF execution context.
  weights = tuple(recipe.model.initial_weights().trainable)
  first = tf.nest.map_structure(tf.convert_to_tensor, recipe.client_state(weights))
  first = tf.nest.map_structure(np.asarray, first)
  return StatefulProcess(initialize, next_fn, first, recipe)


class _Parts(NamedTuple):
  """The computations of a process; see `compose` for the types."""

  weights: tff.Computation  # ( -> W)
  server_state: tff.Computation  # (W -> <H, I>)
  client_work: tff.Computation  # ( -> R)
  message: tff.Computation  # (<int32, H, R> -> M)
  send: tff.Computation | None  # (<int32, H, R, W> -> <M, W, H>), if what is sent is compressed
  exchange: tff.Computation | None  # (<M, W, C, D*> -> <E, float32>)
  exchanged: tff.Computation | None  # (<M, <E, float32>> -> M)
  train: tff.Computation  # (<M, W, C, D*> -> ClientOutput); W is <W, older> if asynchronous
  no_older: tff.Computation | None  # (<M, W> -> older), a stack of no model
  next_older: tff.Computation | None  # (<M, W> -> older), a stack of the present model
  update: tff.Computation  # (<H, M, W, I, G, T> -> ServerUpdate)
  finish: tff.Computation  # (<ServerUpdate, W, W, G, T> -> <W, I, metrics>)
  distributor: tff.learning.templates.DistributionProcess
  aggregator: tff.templates.AggregationProcess
  finalizer: tff.learning.templates.FinalizerProcess


def _build_parts(recipe: components.Recipe) -> _Parts:
  """Builds the parts in the order in which their types follow from one another."""
  model = recipe.model
  correction = recipe.correction
  state_type = None
  if recipe.is_stateful:

    @tff.tensorflow.computation
    def client_state() -> Any:
      return recipe.client_state(tuple(model.initial_weights().trainable))

    state_type = client_state.type_signature.result
  weights = tff.tensorflow.computation(lambda: model.initial_weights())
  weights_type = weights.type_signature.result
  server_state = server_correction.build_initialize(recipe, weights_type)
  server_type, inference_type = server_state.type_signature.result
  client_work = tff.tensorflow.computation(recipe.client_work)
  work_type = client_work.type_signature.result
  message = server_correction.build_message(recipe, server_type, work_type)
  message_type = message.type_signature.result
  send = None
  if correction.compresses_down:
    send = server_correction.build_send(recipe, server_type, work_type, weights_type)
  exchange = None
  exchanged = None
  if correction.overrides('exchange'):
    exchange = client_training.build_exchange(recipe, weights_type, message_type, state_type)
    sums_type = exchange.type_signature.result
    exchanged = server_correction.build_exchanged(message_type, sums_type)
    message_type = exchanged.type_signature.result
  no_older = None
  next_older = None
  sent_type = weights_type
  if recipe.asynchrony is not None:
    no_older = asynchrony_lib.build_stack(message_type, weights_type, 0)
    next_older = asynchrony_lib.build_stack(message_type, weights_type, 1)
    sent_type = tff.types.to_type((weights_type, no_older.type_signature.result))
  train = client_training.build(recipe, sent_type, message_type, state_type)
  output = train.type_signature.result
  aggregated = output.result.update
  totals = output.totals
  update = server_correction.build_update(
    recipe, server_type, message_type, weights_type, inference_type, aggregated, totals
  )
  return _Parts(
    weights=weights,
    server_state=server_state,
    client_work=client_work,
    message=message,
    send=send,
    exchange=exchange,
    exchanged=exchanged,
    train=train,
    no_older=no_older,
    next_older=next_older,
    update=update,
    finish=server_correction.build_finish(
      recipe, update.type_signature.result, weights_type, aggregated, totals
    ),
    distributor=tff.learning.templates.build_broadcast_process(sent_type),
    aggregator=components.build_aggregator(
      recipe.aggregator, aggregated, output.result.update_weight
    ),
    finalizer=finalizer.build(recipe.server_optimizer, weights_type),
  )


def _build_initialize(parts: _Parts) -> tff.Computation:
  """Builds `( -> ServerState@SERVER)`, the state before the first round."""

  @tff.federated_computation
  def initialize() -> Any:
    weights = tff.federated_eval(parts.weights, tff.SERVER)
    correction, inference = tff.federated_map(parts.server_state, weights)
    round_number = tff.federated_value(0, tff.SERVER)
    client_work = tff.federated_eval(parts.client_work, tff.SERVER)
    older = tff.federated_value((), tff.SERVER)
    if parts.no_older is not None:
      message = tff.federated_map(parts.message, (round_number, correction, client_work))
      older = tff.federated_map(parts.no_older, (message, weights))
    return tff.federated_zip(
      ServerState(
        global_model_weights=weights,
        inference_weights=inference,
        correction=correction,
        round_number=round_number,
        distributor=parts.distributor.initialize(),
        aggregator=parts.aggregator.initialize(),
        finalizer=parts.finalizer.initialize(),
        client_work=client_work,
        older=older,
      )
    )

  return initialize


def _build_next(parts: _Parts, state_type: tff.Type, recipe: components.Recipe) -> tff.Computation:
  """Builds the computation of a round; S is a `ServerState`, C a client's state, D* its data.

  Its type is `(<S@SERVER, {C}@CLIENTS, {D*}@CLIENTS> -> <S@SERVER, {C}@CLIENTS, metrics@SERVER>)`,
  without client states `(<S@SERVER, {D*}@CLIENTS> -> LearningProcessOutput)`.
  """
  *_, data_type = parts.train.type_signature.parameter
  aggregate_metrics = tff.learning.metrics.sum_then_finalize(recipe.model.metric_finalizers)

  # `clients` are the clients' states and data, or their data alone.
  def run(state: Any, *clients: Any) -> tuple[Any, Any, Any]:
    weights = state.global_model_weights
    models = weights
    if parts.next_older is not None:
      # Sent together, because clients of one step begin with different models.
      models = tff.federated_zip((weights, state.older))
    correction_state = state.correction
    before_message = state.round_number, correction_state, state.client_work
    if parts.send is None:
      message = tff.federated_map(parts.message, before_message)
    else:
      message, models, correction_state = tff.federated_map(parts.send, (*before_message, weights))
    distributed = parts.distributor.next(state.distributor, models)
    if parts.exchange is not None:
      sent = tff.federated_map(
        parts.exchange, (tff.federated_broadcast(message), distributed.result, *clients)
      )
      message = tff.federated_map(parts.exchanged, (message, tff.federated_sum(sent)))
    output = tff.federated_map(
      parts.train, (tff.federated_broadcast(message), distributed.result, *clients)
    )
    result = output.result
    totals = tff.federated_sum(output.totals)
    aggregated = parts.aggregator.next(state.aggregator, result.update, result.update_weight)
    # The server's own model, not what clients have of it where messages are compressed.
    before = (correction_state, message, weights, state.inference_weights)
    updated = tff.federated_map(parts.update, (*before, aggregated.result, totals))
    finalized = parts.finalizer.next(state.finalizer, weights, updated.direction)
    new_weights, inference, described = tff.federated_map(
      parts.finish, (updated, weights, finalized.result, aggregated.result, totals)
    )
    older = state.older
    if parts.next_older is not None:
      older = tff.federated_map(parts.next_older, (message, weights))
    new_state = tff.federated_zip(
      ServerState(
        global_model_weights=new_weights,
        inference_weights=inference,
        correction=updated.correction,
        round_number=updated.round_number,
        distributor=distributed.state,
        aggregator=aggregated.state,
        finalizer=finalized.state,
        client_work=state.client_work,
        older=older,
      )
    )
    work = collections.OrderedDict(train=aggregate_metrics(output.metrics), updates=described)
    if recipe.training.measures is not None:
      work['clients'] = gathered.gather(output.measures)
    metrics = tff.federated_zip(
      collections.OrderedDict(
        distributor=distributed.measurements,
        client_work=tff.federated_zip(work),
        aggregator=aggregated.measurements,
        finalizer=finalized.measurements,
      )
    )
    return new_state, output.client_state, metrics

  clients_data = tff.types.FederatedType(data_type, tff.CLIENTS)
  if not recipe.is_stateful:

    @tff.federated_computation(state_type, clients_data)
    def next_stateless(state: Any, client_data: Any) -> Any:
      new_state, _, metrics = run(state, client_data)
      return tff.learning.templates.LearningProcessOutput(new_state, metrics)

    return next_stateless

  _, _, client_type, _ = parts.train.type_signature.parameter

  @tff.federated_computation(
    state_type, tff.types.FederatedType(client_type, tff.CLIENTS), clients_data
  )
  def next_fn(state: Any, client_states: Any, client_data: Any) -> Any:
    return run(state, client_states, client_data)

  return next_fn


def _learning_process(
  parts: _Parts, initialize: tff.Computation, next_fn: tff.Computation, recipe: components.Recipe
) -> tff.learning.templates.LearningProcess:
  """Builds the process of an algorithm whose clients keep no state."""
  state_type = initialize.type_signature.result.member
  weights_type = state_type.global_model_weights

  @tff.tensorflow.computation(state_type)
  def get_model_weights(state: Any) -> Any:
    return model_to_use(state)

  @tff.tensorflow.computation(state_type, weights_type)
  def set_model_weights(state: Any, weights: Any) -> Any:
    state = state._replace(global_model_weights=weights)
    if state.inference_weights:
      # Otherwise evaluations would still see the model of before.
      state = state._replace(inference_weights=weights)
    if recipe.correction.compresses_down:
      # Otherwise clients would go on from the model of before, and receive changes of it.
      of_correction, slots = recipe.split(state.correction)
      shadowed = downward.with_model(recipe.correction, of_correction, tuple(weights.trainable))
      if recipe.averages_slots:
        shadowed = collections.OrderedDict(correction=shadowed, optimizer=slots)
      state = state._replace(correction=shadowed)
    return state

  @tff.tensorflow.computation(state_type)
  def get_hparams(state: Any) -> Any:
    return collections.OrderedDict(
      client_work=state.client_work, finalizer=parts.finalizer.get_hparams(state.finalizer)
    )

  @tff.tensorflow.computation(state_type, get_hparams.type_signature.result)
  def set_hparams(state: Any, hparams: Any) -> Any:
    return state._replace(
      client_work=hparams['client_work'],
      finalizer=parts.finalizer.set_hparams(state.finalizer, hparams['finalizer']),
    )

  return tff.learning.templates.LearningProcess(
    initialize,
    next_fn,
    get_model_weights,
    set_model_weights,
    get_hparams_fn=get_hparams,
    set_hparams_fn=set_hparams,
  )
