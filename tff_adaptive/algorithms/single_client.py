"""What single clients of a round do: their results, and the steps of one of them.

The functions take what `next` of a process takes in a round.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive._utils import private_apis
from tff_adaptive.algorithms import client_training, components
from tff_adaptive.client import local_training, tracing


class Parts(NamedTuple):
  """What a process is made of, as far as its clients need it.

  Attributes:
    recipe: The parts of the process.
    message: The computation of the message to clients, (<round, server state, client work> -> M).
    send: That of what clients have after a compressed message, see `server_correction.build_send`;
      None if messages to clients are not compressed.
    exchange, exchanged: See `stateful_process.compose`; None without an exchange.
    train: The computation of a client's training.
  """

  recipe: components.Recipe
  message: tff.Computation
  send: tff.Computation | None
  exchange: tff.Computation | None
  exchanged: tff.Computation | None
  train: tff.Computation


class Steps(NamedTuple):
  """A client's results, and what its local steps did.

  Attributes:
    trained: The results of its training.
    columns: Arrays [K] by name, for its K steps; see `client.tracing`.
    weights: The trainable weights that it received.
  """

  trained: local_training.Trained
  columns: dict[str, np.ndarray]
  weights: tuple[np.ndarray, ...]


def register(next_fn: tff.Computation, parts: Parts) -> None:
  """Attaches a function that makes the `Clients` of a process to its computation of a round."""
  # One object for each process, because it keeps the traces of its computations.
  make = functools.cache(functools.partial(Clients, parts, next_fn.type_signature.parameter))
  private_apis.attach(next_fn, private_apis.SINGLE_CLIENTS, make)


class Clients:
  """The clients of a process.

  Attributes:
    begin_with_server_model: Whether a client of a round begins with the model of the server.
  """

  def __init__(self, parts: Parts, next_type: Any) -> None:
    """Creates the object.

    Args:
      parts: The parts of the process.
      next_type: The type of the parameter of its `next`.

    Raises:
      ValueError: If training is asynchronous, or the model is not a `models.Model`.
    """
    recipe = parts.recipe
    if recipe.asynchrony is not None:
      raise ValueError(
        'in asynchronous training clients begin with different models, so that single clients'
        ' cannot be followed: train synchronously.'
      )
    if not recipe.model.takes_loss or recipe.training.batching is None:
      raise ValueError(
        'the steps of a client are recorded for a tff_adaptive.models.Model whose clients are whole'
        ' arrays: build the process with one, and with'
        ' training=tff_adaptive.ClientTraining(batching=tff_adaptive.Batching(20)), say.'
      )
    self._parts = parts
    # Not where messages are compressed, or some weights stay at the clients.
    self.begin_with_server_model = parts.send is None and not any(recipe.correction.stays)
    self._next_type = next_type
    self._message = self._build(with_outputs=False)
    self._outputs: tff.Computation | None = None
    self._traced: Any = None

  def results(self, server_state: Any, client_states: Sequence[Any] | None, data: Any) -> list[Any]:
    """Returns the `client_training.ClientOutput` of each client of a cohort.

    In the engine of the round they have the same bits as in the round.
    """
    if self._outputs is None:
      self._outputs = self._build(with_outputs=True)
    results: list[Any] = self._outputs(*_arguments(server_state, client_states, data))
    return results

  def steps(
    self,
    server_state: Any,
    client_states: Sequence[Any] | None,
    data: Sequence[Any],
    index: int,
    eager: bool = False,
  ) -> Steps:
    """Trains one client of a cohort again and records its steps.

    Args:
      server_state: The server state before the round.
      client_states: The states of the cohort's clients; None if they keep none.
      data: Their data.
      index: The client's place in the cohort.
      eager: Whether every operation runs at once, as Python reaches it, so that a debugger stops in
        the code of a correction or a model.
    """
    message = self._message(*_arguments(server_state, client_states, data))
    weights = server_state.global_model_weights
    if self._parts.send is not None:
      message, weights = message
    state: Any = ()
    if client_states is not None:
      state = client_states[index]
    given = tf.nest.map_structure(
      tf.convert_to_tensor,
      [_as_message(message), list(weights.trainable), list(weights.non_trainable), state],
    )
    arguments = [*given, self._element(data[index])]
    if eager:
      trained, columns = self._train(*arguments)
    else:
      if self._traced is None:
        self._traced = tf.function(self._train, autograph=False, reduce_retracing=True)
      # Called as a `tf.function`, that of the fifth client that a program follows would warn.
      concrete = self._traced.get_concrete_function(*arguments)
      trained, columns = concrete(*arguments)
    as_arrays = {name: np.asarray(values) for name, values in columns.items()}
    received = tuple(np.asarray(leaf) for leaf in weights.trainable)
    return Steps(tf.nest.map_structure(np.asarray, trained), as_arrays, received)

  def _train(
    self, message: Any, trainable: Any, non_trainable: Any, state: Any, element: Any
  ) -> tuple[Any, Any]:
    recipe = self._parts.recipe
    data = tf.data.Dataset.from_tensors(element)
    trained, columns = tracing.train(
      recipe.model,
      recipe.training,
      recipe.correction,
      weights=tff.learning.models.ModelWeights(trainable, non_trainable),
      data=data,
      client_state=state,
      message=message,
    )
    return client_training.as_sent(recipe.training, trained, data, message), columns

  def _build(self, with_outputs: bool) -> tff.Computation:
    """Builds the computation of the message of a round, or of the clients' results.

    Its parameter is that of `next`: `(<S@SERVER, {C}@CLIENTS, {D*}@CLIENTS> -> M@SERVER)`, or
    `{ClientOutput}@CLIENTS`. Where the message is compressed, it is `<M, W>@SERVER` with the
    weights that clients then have.
    """
    parts = self._parts

    def run(state: Any, *clients: Any) -> Any:
      models = state.global_model_weights
      before = state.round_number, state.correction, state.client_work
      if parts.send is None:
        message = tff.federated_map(parts.message, before)
      else:
        message, models, _ = tff.federated_map(parts.send, (*before, models))
      weights = tff.federated_broadcast(models)
      if parts.exchange is not None:
        sent = tff.federated_map(
          parts.exchange, (tff.federated_broadcast(message), weights, *clients)
        )
        message = tff.federated_map(parts.exchanged, (message, tff.federated_sum(sent)))
      if not with_outputs and parts.send is not None:
        return tff.federated_zip((message, models))
      if not with_outputs:
        return message
      return tff.federated_map(parts.train, (tff.federated_broadcast(message), weights, *clients))

    if parts.recipe.is_stateful:

      @tff.federated_computation(*self._next_type)
      def stateful(state: Any, client_states: Any, client_data: Any) -> Any:
        return run(state, client_states, client_data)

      return stateful

    @tff.federated_computation(*self._next_type)
    def stateless(state: Any, client_data: Any) -> Any:
      return run(state, client_data)

    return stateless

  def _element(self, data: Any) -> dict[str, Any]:
    """Returns a client's data as tensors of the dtypes that the model takes."""
    (arrays,) = data
    element = dict(arrays)
    for name, specs in self._parts.recipe.model.input_spec.items():
      element[name] = tf.nest.map_structure(
        lambda leaf, spec: tf.cast(leaf, spec.dtype), arrays[name], specs
      )
    return tf.nest.map_structure(tf.convert_to_tensor, element)


def _arguments(server_state: Any, client_states: Sequence[Any] | None, data: Any) -> tuple:
  if client_states is None:
    return server_state, data
  return server_state, client_states, data


def _as_message(value: Any) -> local_training.Message:
  """Returns the message, whatever container the engine gives it."""
  return local_training.Message(*(getattr(value, name) for name in local_training.Message._fields))
