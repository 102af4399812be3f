"""The local training of a client: the one loop that every algorithm shares."""

import collections
import dataclasses
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive._utils import validation
from tff_adaptive.client import (
  batch_sources,
  batching as batching_lib,
  client_optimizer,
  model_adapters,
)
from tff_adaptive.corrections import base as corrections, results


@dataclasses.dataclass(frozen=True)
class ClientTraining:
  """How a client trains in a round.

  Attributes:
    optimizer: The client optimizer; SGD if none is given, for which the corrections' formulas are
      made. `client_learning_rate` replaces its own rate in each round.
    batching: How whole-array clients are batched; None: each element of a client's dataset is
      one batch and one step, TFF's convention.
    weight_decay: Coefficient of the weights added to the (clipped) gradient, >= 0.
    clip_norm: If given, the corrected gradient is scaled down to this 2-norm.
    seed: Seed of shuffling and dropout, from 0 to 2^62 - 1.
    xla: Whether XLA compiles the local step; for GPUs, and for models of this project.

  Raises:
    ValueError: If a number is out of its range.
    TypeError: If an argument is of another kind.
  """

  optimizer: tff.learning.optimizers.Optimizer = dataclasses.field(
    default_factory=tff.learning.optimizers.build_sgdm
  )
  batching: batching_lib.Batching | None = None
  weight_decay: float = 0.0
  clip_norm: float | None = None
  seed: int = 0
  xla: bool = False

  def __post_init__(self) -> None:
    validation.instance(
      'optimizer',
      self.optimizer,
      tff.learning.optimizers.Optimizer,
      'tff.learning.optimizers.Optimizer',
      'give tff_adaptive.optimizers.build_sgdm(0.1), say, or leave it out for SGD',
    )
    if self.batching is not None:
      validation.instance(
        'batching',
        self.batching,
        batching_lib.Batching,
        'tff_adaptive.Batching',
        'give tff_adaptive.Batching(20), say, or None for datasets of batches',
      )
    # 62 bits: what `seeds.base` holds.
    validation.whole_number('seed', self.seed, 0, 'give a seed such as 0', high=2**62 - 1)
    validation.field(self, 'weight_decay', validation.at_least_zero, 'give 0 for none')
    if self.clip_norm is not None:
      validation.field(self, 'clip_norm', validation.above_zero, 'give None for no clipping')


class Trained(NamedTuple):
  """Result of a client's round.

  Attributes:
    update: g_i = theta^{t-1} - theta_i; zero if it is not used.
    client_state: What the client keeps; unchanged if the update is not used.
    upload: What the correction uploads; zero if the update is not used.
    num_examples: Examples seen, float32: a client's n_i (its epochs not counted) for whole
      arrays, all examples of its dataset for batches.
    is_used: float32: 1 if it took a step and its update, new state and upload are finite, else 0.
    diverged: float32: 1 if it took a step and one of them is not finite, else 0.
    squared_norm: ||g_i||^2, 0 if not used.
    metrics: Unfinalized training metrics.
  """

  update: Any
  client_state: Any
  upload: Any
  num_examples: tf.Tensor
  is_used: tf.Tensor
  diverged: tf.Tensor
  squared_norm: tf.Tensor
  metrics: Any


def data_type(model: model_adapters.LocalModel, training: ClientTraining) -> tff.types.SequenceType:
  """Type of a client's data: see `ClientTraining.batching`."""
  element = model.input_spec
  if training.batching is not None:
    if not isinstance(element, collections.abc.Mapping) or set(element) != {'x', 'y'}:
      raise ValueError(
        f'local batching wants a model with an input_spec of x and y, found {element}; leave '
        'batching=None and give batched datasets instead'
      )
    element = collections.OrderedDict(element, client=tf.TensorSpec([], tf.int32))
    if training.batching.step_limits:
      element['max_steps'] = tf.TensorSpec([], tf.int32)
  return tff.types.SequenceType(tff.types.tensorflow_to_type(element))


def can_group(model: model_adapters.LocalModel, training: ClientTraining) -> bool:
  """Whether clients can train together, see `train`, with this model and training."""
  if training.batching is None or training.batching.batch_size is None or not model.is_masked:
    return False
  # Clients are stacked, padded to the longest: their examples must be of one shape.
  if not all(s.shape[1:].is_fully_defined() for s in tf.nest.flatten(model.input_spec)):
    return False
  # Another optimizer's step may depend on all weights at once, and so on the other clients'.
  return client_optimizer.is_sgd(training.optimizer)


def train(
  model: model_adapters.LocalModel,
  training: ClientTraining,
  correction: corrections.Correction,
  *,
  weights: tff.learning.models.ModelWeights,
  data: tf.data.Dataset | list[Any],
  client_state: Any,
  broadcast: Any,
  round_number: tf.Tensor,
  rate: tf.Tensor,
) -> Trained:
  """Trains a client for a round, or a group of G; called inside a `tff.tensorflow.computation`.

  Args:
    model: The model.
    training: How to train.
    correction: How the local gradient is corrected.
    weights: theta^{t-1}.
    data: The client's data, of type `data_type`; of a group the list of the clients' elements.
    client_state: The client's state; of a group every tensor has a leading axis G.
    broadcast: What the server sent in addition to the weights.
    round_number: t, int32, counted from 1.
    rate: eta_l of this round, float32.

  Returns:
    The result; of a group every tensor has a leading axis G.
  """
  theta_0, non_trainable = tuple(weights.trainable), tuple(weights.non_trainable)
  source: Any
  size: int | None = None
  start = theta_0
  if training.batching is None:
    source = batch_sources.Batches(model, training.seed, data, round_number)
  elif isinstance(data, list):
    size = len(data)
    source = batch_sources.GroupOfArrays(
      model, training.batching, training.seed, data, round_number
    )
    start = tuple(tf.tile(w[tf.newaxis], [size] + [1] * w.shape.rank) for w in theta_0)
    model = model.for_groups()
  else:
    element = data.get_single_element()
    source = batch_sources.WholeArrays(
      model, training.batching, training.seed, element, round_number
    )
  client = corrections.ClientRound(
    theta_0=theta_0,
    client_state=client_state,
    broadcast=broadcast,
    t=tf.cast(round_number, tf.float32),
    eta_l=rate,
    num_examples=source.num_examples,
    full_gradient=lambda: source.mean_gradient(theta_0, non_trainable),
  )
  optimizer = client_optimizer.ClientOptimizer(training.optimizer, start, rate)
  moves_without_data = (
    training.weight_decay or model.has_penalty or type(correction) is not corrections.Correction
  )

  def step(state: Any, local: model_adapters.LocalStep) -> Any:
    theta, slots, metrics = state
    g, metrics = model.gradients(theta, non_trainable, local, metrics)
    g = batch_sources.dense(g, theta)
    g = results.gradient(correction, client, theta, g)
    if training.clip_norm is not None:
      g = _clip(g, training.clip_norm, size)
    if training.weight_decay:
      g = corrections.combine(lambda g, w: g + training.weight_decay * w, g, theta)
    if local.active is not None and moves_without_data:
      g = corrections.combine(lambda g: corrections.scale(local.active, g), g)
    slots, theta = optimizer.next(slots, theta, g)
    return tuple(theta), slots, metrics

  if training.xla:
    # The step and not the loop: its shapes are the same for clients of all sizes.
    step = tf.function(step, jit_compile=True, autograph=False)
  (theta, _, metrics), steps, seen = source.run(step, (start, optimizer.slots, model.start(size)))
  g_i = corrections.combine(tf.subtract, theta_0, theta)
  squared_norm = corrections.squared_norm(g_i, size)
  client = client._replace(num_examples=seen)
  k_i = tf.cast(steps, tf.float32)
  new_state, upload = results.client_update(correction, client, g_i, k_i, size)
  # One pass finds any NaN or infinity; a norm that overflows has diverged as well.
  is_finite = tf.math.is_finite(squared_norm)
  # Of the update they may tell nothing: SCAFFOLD's gradient over all examples sees other ones.
  for tree in (new_state, upload):
    if tf.nest.flatten(tree):
      is_finite &= tf.math.is_finite(_squared_norm(tree, size))
  # A client without examples took no step and has nothing to say.
  is_used, diverged = is_finite & (steps > 0), ~is_finite & (steps > 0)
  if size is not None:
    new_state = _like_group(new_state, client_state)
  return Trained(
    update=_where(is_used, g_i, _zeros(g_i)),
    client_state=_where(is_used, new_state, client_state),
    upload=_where(is_used, upload, _zeros(upload)),
    num_examples=seen,
    is_used=tf.cast(is_used, tf.float32),
    diverged=tf.cast(diverged, tf.float32),
    squared_norm=tf.where(is_used, squared_norm, 0.0),
    metrics=model.metric_sums(metrics, is_used),
  )


def _squared_norm(tree: Any, size: int | None) -> tf.Tensor:
  """The squared norm of all floating leaves of a client, or of each of a group."""
  leaves = [tf.convert_to_tensor(leaf) for leaf in tf.nest.flatten(tree)]
  leaves = [leaf for leaf in leaves if leaf.dtype.is_floating]
  if size is not None:  # One number for all clients has no axis of theirs.
    leaves = [leaf if leaf.shape.rank else tf.fill([size], leaf) for leaf in leaves]
  return corrections.squared_norm(tuple(leaves), size)


def _zeros(tree: Any) -> Any:
  return tf.nest.map_structure(tf.zeros_like, tree)


def _like_group(tree: Any, like: Any) -> Any:
  """Repeats leaves that are the same for all clients of a group."""
  return tf.nest.map_structure(
    lambda leaf, other: tf.broadcast_to(leaf, tf.shape(other)), tree, like
  )


def _where(condition: tf.Tensor, value: Any, otherwise: Any) -> Any:
  """`value` where the condition holds: of one client, or client by client."""
  if not tf.nest.flatten(value):
    return value
  if condition.shape.rank == 0:
    return tf.cond(condition, lambda: value, lambda: otherwise)  # Copies nothing.

  def choose(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    return tf.where(tf.reshape(condition, [-1] + [1] * (a.shape.rank - 1)), a, b)

  return tf.nest.map_structure(choose, value, otherwise)


def _clip(
  gradients: corrections.Weights, clip_norm: float, size: int | None
) -> corrections.Weights:
  """Scales gradients down to a 2-norm, client by client in a group."""
  dtypes = {g.dtype for g in gradients}
  if size is None and len(dtypes) == 1 and next(iter(dtypes)).size >= 4:
    return tuple(tf.clip_by_global_norm(gradients, clip_norm)[0])
  # TensorFlow's squares 16 bits, which overflow above 255, and wants weights of one dtype.
  norm = tf.sqrt(corrections.squared_norm(gradients, size))
  factor = clip_norm / tf.maximum(norm, clip_norm)
  return corrections.combine(lambda g: corrections.scale(factor, g), gradients)
