"""The loop of a client's local steps, which every algorithm shares."""

import collections
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tff_adaptive.client import by_client, client_optimizer, model_adapters
from tff_adaptive.client.settings import ClientTraining
from tff_adaptive.corrections import (
  base as corrections,
  messages,
  optimizer_slots,
  probe,
  results,
)


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
      theta^{t-1} - theta_i, without the weights that are not sent. Zero if the update is not used.
    client_state: The client's new state; unchanged if the update is not used.
    upload: The upload of `Correction.client_update`; zero if the update is not used.
    optimizer: The optimizer's state. () if it is not averaged; zero if the update is not used.
    num_examples: Number of examples, float32. With `batching` each counts once, not once per epoch;
      otherwise this is the number in all batches of the dataset.
    is_used: float32: 1 if the client took a step and its results are finite, else 0.
    diverged: float32: 1 if the client took a step with a result that is not finite, else 0.
    squared_norm: The update's squared 2-norm; zero if the update is not used.
    metrics: The client's unfinalized training metrics.
    measured: With `ClientTraining.measures` 'full' some of `entries.MEASURES` by name; else ().
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
  measured: Any = ()


class _State(NamedTuple):
  """The values that one local step passes to the next."""

  theta: corrections.Weights
  non_trainable: corrections.Weights
  slots: tuple[tf.Tensor, ...]  # Of the client optimizer.
  local_state: Any  # Of the correction.
  metrics: Any


class Loop:
  """The local steps of a client, or of a group of clients: `begin`, `step` for each, `finish`."""

  def __init__(
    self,
    model: model_adapters.LocalModel,
    training: ClientTraining,
    correction: corrections.Correction,
    client: corrections.ClientRound,
    message: Message,
    received: corrections.Weights,
    size: int | None,
  ) -> None:
    """Prepares the loop.

    Args:
      model, training, correction, message: See `local_training.train`.
      client: The client, or the group of clients.
      received: The weights that the server sent, without a client axis.
      size: G, the number of clients of a group; None for one client.
    """
    self._training = training
    self._correction = correction
    self._client = client
    self._message = message
    self._size = size
    self._optimizer = client_optimizer.ClientOptimizer(
      training.optimizer, received, message.rate, size
    )
    self._slot_rules = self._optimizer.rules(training.optimizer_state or 'reset', correction)
    self._has_own_theta_0 = any(correction.stays)
    self._moves_further = correction.overrides('moved')
    self._changes_loss = correction.overrides('loss')
    self._takes_elsewhere = correction.overrides('point')
    self._takes_loss_gradient = correction.overrides('loss_gradient')
    self._corrects = correction.overrides('gradient')
    is_changed = self._takes_loss_gradient or self._corrects
    # The gradients at other points add nothing to the metrics, and are always of one client.
    asks = is_changed and probe.trace(correction, received).gradients > 1
    self._silent = model.without_metrics()
    # Starting a Keras model makes its variables, so the second model starts only if it is used.
    self._no_metrics: Any = ()
    if asks:
      self._no_metrics = self._silent.start()
    # A changed loss is that of one client, so its model has no client axis even in a group.
    self._single = model
    self._model = model
    if size is not None:
      self._model = model.for_groups()
    # Where nothing stands between the gradient g and SGD, the model computes eta_l g.
    is_plain_loss = not (self._changes_loss or self._takes_elsewhere or any(correction.frozen))
    self._is_plain = self._optimizer.is_sgd and not is_changed and is_plain_loss
    # A client of a group without further examples computes a zero gradient from then on. What moves
    # the weights without a gradient has to be stopped: penalties and corrections, and of optimizers
    # all but SGD.
    self._moves_without_data = model.has_penalty or self._corrects
    self._must_stop = not self._optimizer.is_sgd or correction.overrides(
      'local_state', 'loss', 'moved'
    )

  def begin(self, non_trainable: corrections.Weights, kept_slots: Any) -> tuple[Any, ...]:
    """Returns the values before the first step.

    Args:
      non_trainable: The model's other weights, as the server sent them.
      kept_slots: The client optimizer's slots that the client kept; () if it keeps none.
    """
    optimizer = self._optimizer
    slots = client_optimizer.begun(
      optimizer, self._slot_rules, tuple(kept_slots), tuple(self._message.optimizer)
    )
    local_state = self._each(lambda one, _: self._correction.local_state(one), ())
    if self._correction.overrides('begin'):
      theta = self._each(lambda one, _: results.begin(self._correction, one, one.theta_0), ())
    else:
      theta = optimizer.tile(self._client.theta_0)
    return tuple(_State(theta, non_trainable, slots, local_state, self._model.start(self._size)))

  def step(self, values: Any, local: model_adapters.LocalStep) -> tuple[Any, ...]:
    """Returns the values after a local step on a batch."""
    state = _State(*values)
    if self._is_plain:
      local = local._replace(factor=self._message.rate)
    if self._changes_loss:
      # The loss is that of one client, so the model runs client by client, too.
      batch = local.batch, local.weighting, local.seed
      of_client = state.theta, state.local_state, state.metrics
      g, local_state, others, metrics = self._each(self._of_changed_loss, (of_client, batch))
    else:
      g, local_state, others, metrics = self._of_loss(state, local)
    if local.active is not None and self._moves_without_data:
      g = corrections.combine(lambda leaf: corrections.scale(local.active, leaf), g)
    if self._is_plain:
      slots = state.slots
      theta = corrections.combine(tf.subtract, state.theta, g)
    else:
      slots, theta = self._optimizer.next(state.slots, state.theta, g)
    if self._moves_further:
      weights = state.theta, tuple(theta)
      theta = self._each(self._moved, (local_state, weights))
    if any(self._correction.frozen):  # An optimizer may move a weight without a gradient.
      still = corrections.only(self._correction.frozen, state.theta)
      theta = corrections.merged(self._correction.frozen, still, tuple(theta))
    if self._model.statistics:
      # Of such a model the others are the next moving statistics. Nothing else moves these.
      theta = corrections.merged(self._model.statistics, others, tuple(theta))
      others = state.non_trainable
    # Metrics need no restoring: a batch whose examples are all padding adds 0 to them.
    new = _State(tuple(theta), others, slots, local_state, ())
    if local.active is not None and self._must_stop:
      new = by_client.where(local.active > 0, new, state._replace(metrics=()))
    return tuple(new._replace(metrics=metrics))

  def _of_loss(self, state: _State, local: model_adapters.LocalStep) -> tuple[Any, ...]:
    """Returns the gradient of a step, and what the step makes of the rest of the state."""
    point = state.theta
    if self._takes_elsewhere:
      point = self._each(self._point, (state.local_state, state.theta))
    g, non_trainable, metrics = self._model.gradients(
      point, state.non_trainable, local, state.metrics
    )
    g = self._without_frozen(g)
    local_state = state.local_state
    if self._takes_loss_gradient or self._corrects:
      weights = state.theta, point, state.non_trainable
      batch = local.batch, local.weighting, local.seed
      g, local_state = self._each(self._corrected, (local_state, g, weights, batch))
    return g, local_state, non_trainable, metrics

  def _of_changed_loss(self, client: corrections.ClientRound, values: Any) -> tuple[Any, ...]:
    """Returns a client's gradient of the loss that the correction makes, and its new state."""
    (theta, local_state, metrics), batch = values
    local = model_adapters.LocalStep(*batch)._replace(loss=self._loss_of(client, local_state))
    point = theta
    if self._takes_elsewhere:
      point = self._point(client, (local_state, theta))
    # Only a `models.Model` takes a changed loss, and all its weights are trainable.
    g, others, metrics = self._single.gradients(point, (), local, metrics)
    g = self._without_frozen(g)
    if self._takes_loss_gradient or self._corrects:
      weights = theta, point, ()
      g, local_state = self._corrected(client, (local_state, g, weights, batch))
    return g, local_state, others, metrics

  def _loss_of(self, client: corrections.ClientRound, local_state: Any) -> Any:
    """Returns a function of a batch, the loss that the correction makes; None for the model's."""
    if not self._changes_loss:
      return None
    client = client._replace(local_state=local_state)
    return functools.partial(results.loss, self._correction, client)

  def _point(self, client: corrections.ClientRound, values: Any) -> corrections.Weights:
    """Returns the weights at which a client's step takes its gradient."""
    local_state, theta = values
    return results.point(self._correction, client._replace(local_state=local_state), theta)

  def _moved(self, client: corrections.ClientRound, values: Any) -> corrections.Weights:
    """Returns the weights after a client's step, which the correction may move further."""
    local_state, (before, after) = values
    client = client._replace(local_state=local_state)
    return results.moved(self._correction, client, before, after)

  def _corrected(self, client: corrections.ClientRound, values: Any) -> Any:
    """Returns the gradient of a step that the correction makes of g, and its local state."""
    local_state, g, (theta, point, non_trainable), batch = values
    correction = self._correction
    local = model_adapters.LocalStep(*batch)._replace(loss=self._loss_of(client, local_state))

    def gradient_of_batch(weights: corrections.Weights) -> corrections.Weights:
      g, *_ = self._silent.gradients(weights, non_trainable, local, self._no_metrics)
      return self._without_frozen(g)

    of_batch = client._replace(local_state=local_state, gradient_at=gradient_of_batch)
    if not self._takes_loss_gradient:
      return results.gradient(correction, of_batch, theta, g)

    def loss_gradient_at(weights: corrections.Weights) -> corrections.Weights:
      return results.loss_gradient(correction, of_batch, weights, gradient_of_batch(weights))

    g = results.loss_gradient(correction, of_batch, point, g)
    return results.gradient(correction, of_batch._replace(gradient_at=loss_gradient_at), theta, g)

  def _without_frozen(self, g: corrections.Weights) -> corrections.Weights:
    frozen = self._correction.frozen
    return corrections.merged(frozen, corrections.zeros(corrections.only(frozen, g)), g)

  def _each(self, function: Any, values: Any) -> Any:
    """Applies a function of one client and its values; see `by_client.each`."""
    return by_client.each(self._size, function, self._client, values, self._has_own_theta_0)

  def weights(self, values: Any) -> tuple[corrections.Weights, corrections.Weights]:
    """Returns the trainable weights and the model's other weights after a step."""
    state = _State(*values)
    return state.theta, state.non_trainable

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
    # Of a dataset the number of examples is known only now, after its last batch.
    self._client = self._client._replace(num_examples=num_examples)
    update: Any = g_i
    new_state: Any = self._client.client_state
    upload: Any = ()
    # The base class is FedAvg, whose update is g_i as it is.
    if type(self._correction) is not corrections.Correction:
      values_of_client = g_i, tf.cast(steps, tf.float32), state.local_state
      update, new_state, upload = self._each(self._results, values_of_client)
      if messages.is_compressed(self._correction):
        seed = message_seed(update)
        update, new_state, upload = messages.send_each(
          self._correction, self._size, update, new_state, upload, seed
        )
    rules = self._slot_rules
    optimizer_state = self._training.optimizer_state
    if optimizer_slots.keeps(optimizer_state, self._correction.optimizer_slots):
      slots = client_optimizer.to_keep(state.slots, rules)
      new_state = collections.OrderedDict(correction=new_state, optimizer=slots)
    averaged = client_optimizer.averaged(state.slots, rules, self._size)
    squared_norm = by_client.squared_norm(update, self._size)
    # The norm shows any NaN or infinity; a client whose norm overflows has diverged as well.
    is_finite = tf.math.is_finite(squared_norm)
    # The update may be finite and these not: SCAFFOLD's option I has gradients of other examples.
    for tree in (new_state, upload, averaged):
      is_finite &= tf.math.is_finite(by_client.squared_norm(tree, self._size))
    # A client without examples took no step and has no update.
    is_used = is_finite & (steps > 0)
    diverged = ~is_finite & (steps > 0)
    return Trained(
      # Zeros, because the aggregator multiplies by the client's weight, and 0 times NaN is NaN.
      update=by_client.where(is_used, update, by_client.zeros(update)),
      client_state=by_client.where(is_used, new_state, client_state),
      upload=by_client.where(is_used, upload, by_client.zeros(upload)),
      optimizer=by_client.where(is_used, averaged, by_client.zeros(averaged)),
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
    unsent = self._correction.unsent
    if any(unsent):
      update = corrections.only(tuple(not is_unsent for is_unsent in unsent), update)
    return update, *results.client_update(self._correction, client, g_i, steps)
