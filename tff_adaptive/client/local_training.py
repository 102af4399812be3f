"""The local training of a client, in one loop that every algorithm shares."""

import collections
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.client import (
  batch_sources,
  client_optimizer,
  model_adapters,
)
from tff_adaptive.client.settings import OPTIMIZER_STATES as OPTIMIZER_STATES, ClientTraining
from tff_adaptive.corrections import base as corrections, messages, probe, results

_NO_ENTRIES: Mapping[str, tf.TensorSpec] = MappingProxyType({})


class Message(NamedTuple):
  """The values that a client receives in addition to the weights.

  Attributes:
    t: The number of the round, int32, counted from 1.
    rate: eta_l of this round, float32.
    broadcast: The result of `Correction.broadcast`.
    optimizer: The client optimizer's averaged state; () if it is not averaged.
    exchanged: The cohort's mean of the results of `Correction.exchange`; () if there are none.
  """

  t: tf.Tensor
  rate: tf.Tensor
  broadcast: Any = ()
  optimizer: Any = ()
  exchanged: Any = ()


class Trained(NamedTuple):
  """The result of a client's training in a round.

  Attributes:
    update: The value to aggregate: the result of `Correction.update`, by default the client's g_i =
      theta^{t-1} - theta_i. Zero if the update is not used.
    client_state: The client's new state; unchanged if the update is not used.
    upload: The upload of `Correction.client_update`; zero if the update is not used.
    optimizer: The optimizer's state. () if it is not averaged; zero if the update is not used.
    num_examples: Number of examples, float32. With `batching` each counts once, not once per epoch;
      otherwise this is the number in all batches of the dataset.
    is_used: float32: 1 if the client took a step and its results are finite, else 0.
    diverged: float32: 1 if the client took a step with a result that is not finite, else 0.
    squared_norm: The update's squared 2-norm; zero if the update is not used.
    metrics: The client's unfinalized training metrics.
  """

  update: Any
  client_state: Any
  upload: Any
  optimizer: Any
  num_examples: tf.Tensor
  is_used: tf.Tensor
  diverged: tf.Tensor
  squared_norm: tf.Tensor
  metrics: Any


def data_type(
  model: model_adapters.LocalModel,
  training: ClientTraining,
  more_entries: Mapping[str, tf.TensorSpec] = _NO_ENTRIES,
) -> tff.types.SequenceType:
  """Returns a client's TFF data type; raises ValueError if `batching` does not suit the model.

  With `batching` a client's element has `more_entries` too.
  """
  element = model.input_spec
  if training.batching is not None:
    if not isinstance(element, collections.abc.Mapping) or set(element) != {'x', 'y'}:
      raise ValueError(
        f'local batching needs a model with an input_spec of x and y, found {element}; leave '
        'batching=None and give batched datasets instead'
      )
    element = collections.OrderedDict(element, client=tf.TensorSpec([], tf.int32))
    if training.batching.step_limits:
      element['max_steps'] = tf.TensorSpec([], tf.int32)
    element.update(more_entries)
  return tff.types.SequenceType(tff.types.tensorflow_to_type(element))


def can_group(model: model_adapters.LocalModel, training: ClientTraining) -> bool:
  """Returns whether clients can train in groups with this model and training; see `train`."""
  if training.batching is None or training.batching.batch_size is None:
    return False
  # Clients are padded to the longest one and stacked: all examples must have the same shape.
  shapes = [s.shape[1:] for s in tf.nest.flatten(model.input_spec)]
  return model.is_masked and all(shape.is_fully_defined() for shape in shapes)


def start(
  model: model_adapters.LocalModel,
  training: ClientTraining,
  weights: tff.learning.models.ModelWeights,
  data: tf.data.Dataset | list[Any],
  client_state: Any,
  message: Message,
) -> tuple[Any, corrections.ClientRound]:
  """Returns a client's source of batches and its `ClientRound`; see `train` for the arguments."""
  source: Any
  if training.batching is None:
    source = batch_sources.Batches(model, training.seed, data, message.t)
  elif isinstance(data, list):
    source = batch_sources.GroupOfArrays(model, training.batching, training.seed, data, message.t)
  else:
    element = data.get_single_element()
    source = batch_sources.WholeArrays(model, training.batching, training.seed, element, message.t)
  theta_0 = tuple(weights.trainable)
  non_trainable = tuple(weights.non_trainable)
  return source, corrections.ClientRound(
    theta_0=theta_0,
    client_state=client_state,
    broadcast=message.broadcast,
    t=tf.cast(message.t, tf.float32),
    eta_l=message.rate,
    num_examples=source.num_examples,
    full_gradient=lambda: source.mean_gradient(theta_0, non_trainable),
    mean_steps=None if training.batching is None else training.batching.local_steps,
    exchanged=message.exchanged,
  )


def exchange(
  model: model_adapters.LocalModel,
  training: ClientTraining,
  correction: corrections.Correction,
  weights: tff.learning.models.ModelWeights,
  data: tf.data.Dataset | list[Any],
  client_state: Any,
  message: Message,
) -> tuple[Any, tf.Tensor]:
  """Returns the result of `Correction.exchange`, and the client's number of examples, float32.

  Both are 0 if the client has no examples or a result is not finite. Arguments: see `train`.
  """
  size = len(data) if isinstance(data, list) else None
  state = client_state['correction'] if training.optimizer_state == 'keep' else client_state
  source, client = start(model, training, weights, data, state, message)
  sent = _each(size, lambda one, _: correction.exchange(one), client, ())
  num_examples = source.count_examples()
  counts = tf.math.is_finite(_squared_norm(sent, size)) & (num_examples > 0)
  return _where(counts, sent, _zeros(sent)), tf.where(counts, num_examples, 0.0)


def train(
  model: model_adapters.LocalModel,
  training: ClientTraining,
  correction: corrections.Correction,
  *,
  weights: tff.learning.models.ModelWeights,
  data: tf.data.Dataset | list[Any],
  client_state: Any,
  message: Message,
) -> Trained:
  """Trains a client, or a group of G clients, for a round, in a `tff.tensorflow.computation`.

  Args:
    model, training, correction: The model, the settings and the client correction.
    weights: theta^{t-1}, the weights that the server sent.
    data: The client's data, of type `data_type`; for a group, the list of the clients' elements.
    client_state: The client's state; for a group, every tensor has a leading axis G.
    message: The values that the server sent in addition to the weights.

  Returns:
    The results; for a group, every tensor has a leading axis G.
  """
  training = training.resolved()
  size = len(data) if isinstance(data, list) else None
  keeps = training.optimizer_state == 'keep'
  state = client_state['correction'] if keeps else client_state
  source, client = start(model, training, weights, data, state, message)
  loop = _Loop(model, training, correction, client, message, size)
  first = loop.begin(tuple(weights.non_trainable), client_state['optimizer'] if keeps else None)
  step = loop.step
  if training.xla:
    # The step and not the loop, because the step's shapes are the same for clients of all sizes.
    step = tf.function(step, jit_compile=True, autograph=False)
  last, steps, num_examples = source.run(step, first)
  return loop.finish(last, steps, num_examples, client_state, source.message_seed)


class _State(NamedTuple):
  """The values that one local step passes to the next."""

  theta: corrections.Weights
  non_trainable: corrections.Weights
  slots: tuple[tf.Tensor, ...]  # Of the client optimizer.
  local_state: Any  # Of the correction.
  metrics: Any


class _Loop:
  """The local steps of a client, or of a group of clients: `begin`, `step` for each, `finish`."""

  def __init__(
    self,
    model: model_adapters.LocalModel,
    training: ClientTraining,
    correction: corrections.Correction,
    client: corrections.ClientRound,
    message: Message,
    size: int | None,
  ) -> None:
    self._training = training
    self._correction = correction
    self._client = client
    self._message = message
    self._size = size
    self._optimizer = client_optimizer.ClientOptimizer(
      training.optimizer, client.theta_0, message.rate, size
    )
    self._takes_loss_gradient = correction.overrides('loss_gradient')
    self._corrects = correction.overrides('gradient')
    is_changed = self._takes_loss_gradient or self._corrects
    # The gradients at other points add nothing to the metrics, and are always of one client.
    asks = is_changed and probe.trace(correction, client.theta_0).gradients > 1
    self._silent = model.without_metrics()
    self._no_metrics = self._silent.start() if asks else ()
    self._model = model if size is None else model.for_groups()
    # Where nothing stands between the gradient g and SGD, the model computes eta_l g.
    self._is_plain = self._optimizer.is_sgd and not is_changed
    # A client of a group without further examples computes a zero gradient from then on. What moves
    # the weights without a gradient has to be stopped: penalties and corrections, and of optimizers
    # all but SGD.
    self._moves_without_data = model.has_penalty or self._corrects
    self._must_stop = not self._optimizer.is_sgd or correction.overrides('local_state')

  def begin(self, non_trainable: corrections.Weights, kept_slots: Any) -> tuple[Any, ...]:
    """Returns the values before the first step.

    Args:
      non_trainable: The model's other weights, as the server sent them.
      kept_slots: The client optimizer's state that the client kept; None if it keeps none.
    """
    optimizer = self._optimizer
    if kept_slots is not None:
      slots = tuple(kept_slots)
    elif self._training.optimizer_state == 'average':
      slots = optimizer.tile(tuple(self._message.optimizer))
    else:
      slots = optimizer.tile(optimizer.slots)
    local_state = _each(
      self._size, lambda one, _: self._correction.local_state(one), self._client, ()
    )
    theta = optimizer.tile(self._client.theta_0)
    return tuple(_State(theta, non_trainable, slots, local_state, self._model.start(self._size)))

  def step(self, values: Any, local: model_adapters.LocalStep) -> tuple[Any, ...]:
    """Returns the values after a local step on a batch."""
    state = _State(*values)
    if self._is_plain:
      local = local._replace(factor=self._message.rate)
    g, non_trainable, metrics = self._model.gradients(
      state.theta, state.non_trainable, local, state.metrics
    )
    local_state = state.local_state
    if self._takes_loss_gradient or self._corrects:
      point = state.theta, state.non_trainable
      batch = local.batch, local.weighting, local.seed
      g, local_state = _each(
        self._size, self._corrected, self._client, (local_state, g, point, batch)
      )
    if local.active is not None and self._moves_without_data:
      g = corrections.combine(lambda leaf: corrections.scale(local.active, leaf), g)
    if self._is_plain:
      slots = state.slots
      theta = corrections.combine(tf.subtract, state.theta, g)
    else:
      slots, theta = self._optimizer.next(state.slots, state.theta, g)
    new = _State(tuple(theta), non_trainable, slots, local_state, ())
    if local.active is not None and self._must_stop:
      new = _where(local.active > 0, new, state._replace(metrics=()))
    return tuple(new._replace(metrics=metrics))

  def _corrected(self, client: corrections.ClientRound, values: Any) -> Any:
    """Returns the gradient of a step that the correction makes of g, and its local state."""
    local_state, g, (theta, non_trainable), batch = values
    correction = self._correction
    local = model_adapters.LocalStep(*batch)

    def gradient_of_batch(point: corrections.Weights) -> corrections.Weights:
      g, *_ = self._silent.gradients(point, non_trainable, local, self._no_metrics)
      return g

    of_batch = client._replace(local_state=local_state, gradient_at=gradient_of_batch)
    if not self._takes_loss_gradient:
      return results.gradient(correction, of_batch, theta, g)

    def loss_gradient_at(point: corrections.Weights) -> corrections.Weights:
      return results.loss_gradient(correction, of_batch, point, gradient_of_batch(point))

    g = results.loss_gradient(correction, of_batch, theta, g)
    return results.gradient(correction, of_batch._replace(gradient_at=loss_gradient_at), theta, g)

  def finish(
    self,
    values: Any,
    steps: tf.Tensor,
    num_examples: tf.Tensor,
    client_state: Any,
    message_seed: Callable[[corrections.Weights], tf.Tensor],
  ) -> Trained:
    """Returns the client's results, from the values after the last step.

    Args:
      values: The values after the last step.
      steps: K_i, the number of steps, int32.
      num_examples: n_i, float32.
      client_state: The client's state before the round.
      message_seed: Returns the seed of compression from the update.
    """
    state = _State(*values)
    g_i = corrections.combine(tf.subtract, self._client.theta_0, state.theta)
    client = self._client._replace(num_examples=num_examples)
    update: Any = g_i
    new_state: Any = client.client_state
    upload: Any = ()
    if type(self._correction) is not corrections.Correction:
      each = g_i, tf.cast(steps, tf.float32), state.local_state
      update, new_state, upload = _each(self._size, self._results, client, each)
      if messages.is_compressed(self._correction):
        made = update, new_state, upload, message_seed(update)
        update, new_state, upload = messages.send_each(self._correction, self._size, *made)
    averaged: Any = ()
    if self._training.optimizer_state == 'keep':
      new_state = collections.OrderedDict(correction=new_state, optimizer=state.slots)
    elif self._training.optimizer_state == 'average':
      averaged = state.slots
    squared_norm = _squared_norm(update, self._size)
    # The norm shows any NaN or infinity; a client whose norm overflows has diverged as well.
    is_finite = tf.math.is_finite(squared_norm)
    # The update may be finite and these not: SCAFFOLD's option I has gradients of other examples.
    for tree in (new_state, upload, averaged):
      is_finite &= tf.math.is_finite(_squared_norm(tree, self._size))
    # A client without examples took no step and has no update.
    is_used = is_finite & (steps > 0)
    diverged = ~is_finite & (steps > 0)
    return Trained(
      update=_where(is_used, update, _zeros(update)),
      client_state=_where(is_used, new_state, client_state),
      upload=_where(is_used, upload, _zeros(upload)),
      optimizer=_where(is_used, averaged, _zeros(averaged)),
      num_examples=num_examples,
      is_used=tf.cast(is_used, tf.float32),
      diverged=tf.cast(diverged, tf.float32),
      squared_norm=tf.where(is_used, squared_norm, 0.0),
      metrics=self._model.metric_sums(state.metrics, is_used),
    )

  def _results(self, client: corrections.ClientRound, values: Any) -> tuple[Any, Any, Any]:
    """Returns one client's update, new state and upload."""
    g_i, steps, local_state = values
    client = client._replace(local_state=local_state)
    update = results.update(self._correction, client, g_i, steps)
    return update, *results.client_update(self._correction, client, g_i, steps)


def _each(
  size: int | None,
  function: Callable[[corrections.ClientRound, Any], Any],
  client: corrections.ClientRound,
  values: Any,
) -> Any:
  """Applies a function of one client to a client, or to each client of a group.

  In a group the client's state, number of examples and full gradient, the values and the result
  have a leading axis G.
  """
  if size is None:
    return function(client, values)

  def one(each: Any) -> Any:
    i, state, num_examples, values = each

    def full_gradient() -> corrections.Weights:
      return tuple(tf.gather(leaf, i) for leaf in client.full_gradient())

    mine = client._replace(
      client_state=state, num_examples=num_examples, full_gradient=full_gradient
    )
    # The result may be a tensor of an outer graph, which `vectorized_map` does not take.
    return tf.nest.map_structure(tf.identity, function(mine, values))

  return tf.vectorized_map(one, (tf.range(size), client.client_state, client.num_examples, values))


def _squared_norm(tree: Any, size: int | None) -> tf.Tensor:
  """Returns the squared 2-norm of all floating-point tensors; [size] for a group of clients."""
  floats = [w for w in map(tf.convert_to_tensor, tf.nest.flatten(tree)) if w.dtype.is_floating]
  if floats and size is None and all(w.dtype == tf.float32 for w in floats):
    return 2 * tf.add_n([tf.nn.l2_loss(w) for w in floats])  # One pass; a sum takes two.
  return corrections.squared_norm(tuple(floats), size)


def _zeros(tree: Any) -> Any:
  return tf.nest.map_structure(tf.zeros_like, tree)


def _where(condition: tf.Tensor, value: Any, otherwise: Any) -> Any:
  """Returns `value` where the condition holds, else `otherwise`; for a group client by client."""
  if not tf.nest.flatten(value):
    return value
  if condition.shape.rank == 0:
    return tf.cond(condition, lambda: value, lambda: otherwise)  # Copies nothing.

  def choose(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    return tf.where(tf.reshape(condition, [-1] + [1] * (a.shape.rank - 1)), a, b)

  return tf.nest.map_structure(choose, value, otherwise)
