"""The local training of a client, or of a group of clients, in a round."""

import collections
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.client import batch_sources, by_client, local_loop, model_adapters
from tff_adaptive.client.local_loop import Message as Message, Trained as Trained
from tff_adaptive.client.settings import OPTIMIZER_STATES as OPTIMIZER_STATES, ClientTraining
from tff_adaptive.corrections import base as corrections, optimizer_slots

_NO_ENTRIES: Mapping[str, tf.TensorSpec] = MappingProxyType({})


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
    # With the round and the step the client's number seeds the order of examples and dropout.
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


def _group_size(data: tf.data.Dataset | list[Any]) -> int | None:
  """Returns the number of clients of a group, whose data are a list; None for one client."""
  if isinstance(data, list):
    return len(data)
  return None


def start(
  model: model_adapters.LocalModel,
  training: ClientTraining,
  correction: corrections.Correction,
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
  received = tuple(weights.trainable)
  non_trainable = tuple(weights.non_trainable)
  client = corrections.ClientRound(
    theta_0=received,
    client_state=client_state,
    broadcast=message.broadcast,
    t=tf.cast(message.t, tf.float32),
    eta_l=message.rate,
    num_examples=source.num_examples,
    # A pass over all examples: it gets into the graph only if the correction calls it.
    full_gradient=lambda: source.mean_gradient(received, non_trainable),
    mean_steps=None if training.batching is None else training.batching.local_steps,
    exchanged=message.exchanged,
    full_loss=lambda: source.mean_loss(received, non_trainable),
    label_counts=source.label_counts,
    class_features=lambda classes: source.class_features(received, classes),
    planned_steps=source.planned_steps,
    seed=source.part_seed,
    index=source.index,
  )
  if not any(correction.stays):
    return source, client
  # Of a weight that stays the client received nothing: what it begins with takes that place.
  size = _group_size(data)

  def own_weights(one: corrections.ClientRound, _: Any) -> corrections.Weights:
    return corrections.only(correction.stays, correction.begin_kept(one, received))

  of_client = by_client.each(size, own_weights, client, ())
  shared = tuple(by_client.tiled(w, size) for w in received)
  theta_0 = corrections.merged(correction.stays, of_client, shared)
  of_group: dict[str, bool] = {}
  if size is not None:
    of_group['has_client_axis'] = True
  return source, client._replace(
    theta_0=theta_0,
    full_gradient=lambda: source.mean_gradient(theta_0, non_trainable, **of_group),
    full_loss=lambda: source.mean_loss(theta_0, non_trainable, **of_group),
    class_features=lambda classes: source.class_features(theta_0, classes, **of_group),
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
  size = _group_size(data)
  state = client_state
  if optimizer_slots.keeps(training.optimizer_state, correction.optimizer_slots):
    state = client_state['correction']
  source, client = start(model, training, correction, weights, data, state, message)
  # If some weights stay at the clients, `start` gave each client of a group a theta_0 of its own.
  has_own = any(correction.stays)
  sent = by_client.each(size, lambda one, _: correction.exchange(one), client, (), has_own)
  num_examples = source.count_examples()
  # Zeros take the place of what does not count, because its weight 0 times NaN would be NaN.
  counts = tf.math.is_finite(by_client.squared_norm(sent, size)) & (num_examples > 0)
  sent = by_client.where(counts, sent, by_client.zeros(sent))
  return sent, tf.where(counts, num_examples, 0.0)


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
  prepared = prepare(model, training, correction, weights, data, client_state, message)
  step = prepared.loop.step
  if training.xla:
    # The step and not the loop, because the step's shapes are the same for clients of all sizes.
    step = tf.function(step, jit_compile=True, autograph=False)
  return prepared.finish(*prepared.source.run(step, prepared.first))


class Prepared(NamedTuple):
  """A client, or a group of clients, before its first local step.

  Attributes:
    source: The source of its batches.
    loop: Its local steps.
    first: The values before the first step.
    client: What the correction knows of it.
    client_state: Its state before the round.
    size: G, the number of clients of a group; None for one client.
    is_measured: Whether its losses before and after training are measured.
  """

  source: Any
  loop: local_loop.Loop
  first: tuple[Any, ...]
  client: corrections.ClientRound
  client_state: Any
  size: int | None
  is_measured: bool

  def finish(self, last: Any, steps: tf.Tensor, num_examples: tf.Tensor) -> Trained:
    """Returns the results, from the values after the last step."""
    trained = self.loop.finish(
      last, steps, num_examples, self.client_state, self.source.message_seed
    )
    if self.is_measured:
      weights = self.loop.weights(last)
      measured = _before_and_after(self.source, self.client, weights, self.size)
      trained = trained._replace(measured=measured)
    return trained


def prepare(
  model: model_adapters.LocalModel,
  training: ClientTraining,
  correction: corrections.Correction,
  weights: tff.learning.models.ModelWeights,
  data: tf.data.Dataset | list[Any],
  client_state: Any,
  message: Message,
) -> Prepared:
  """Returns a client, or a group, before its first local step; see `train` for the arguments."""
  training = training.resolved()
  size = _group_size(data)
  state = client_state
  kept_slots: Any = ()
  if optimizer_slots.keeps(training.optimizer_state, correction.optimizer_slots):
    state = client_state['correction']
    kept_slots = client_state['optimizer']
  source, client = start(model, training, correction, weights, data, state, message)
  received = tuple(weights.trainable)
  loop = local_loop.Loop(model, training, correction, client, message, received, size)
  first = loop.begin(tuple(weights.non_trainable), kept_slots)
  is_measured = training.measures == 'full'
  return Prepared(source, loop, first, client, client_state, size, is_measured)


def _before_and_after(
  source: Any,
  client: corrections.ClientRound,
  weights: tuple[corrections.Weights, corrections.Weights],
  size: int | None,
) -> dict[str, tf.Tensor]:
  """Returns a client's losses before and after training, and the norm of its gradient before.

  They are means over all examples of the client; `weights` are those after training.
  """
  of_group: dict[str, bool] = {}
  if size is not None:
    of_group['has_client_axis'] = True
  return {
    'loss_before': client.full_loss(),
    'loss_after': source.mean_loss(*weights, **of_group),
    'gradient_norm': tf.sqrt(by_client.squared_norm(client.full_gradient(), size)),
  }
