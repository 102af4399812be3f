"""The local training of a client: the one loop that every algorithm shares."""

import collections
import dataclasses
from typing import Any, NamedTuple, Optional

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import batching as batching_lib
from tff_adaptive import checks, local_models
from tff_adaptive.corrections import base as corrections


@dataclasses.dataclass(frozen=True)
class LocalTraining:
  """How a client trains in a round.

  Attributes:
    optimizer: The client optimizer; its learning rate is set anew each round.
    batching: How whole-array clients are batched; None: each element of a client's dataset is
      one batch and one step, TFF's convention.
    weight_decay: Coefficient of the weights added to the (clipped) gradient.
    clip_norm: If given, the corrected gradient is scaled down to this 2-norm.
    seed: Seed of shuffling and dropout.
  """

  optimizer: tff.learning.optimizers.Optimizer
  batching: Optional[batching_lib.Batching] = None
  weight_decay: float = 0.0
  clip_norm: Optional[float] = None
  seed: int = 0

  def __post_init__(self):
    checks.at_least_zero('weight_decay', self.weight_decay, 'give 0 for none')
    if self.clip_norm is not None:
      checks.above_zero('clip_norm', self.clip_norm, 'give None for no clipping')


class Trained(NamedTuple):
  """Result of a client's round.

  Attributes:
    update: g_i = theta^{t-1} - theta_i; zero if it is not finite.
    kept: What the client keeps; unchanged if the update is not finite.
    upload: What the correction uploads; zero if the update is not finite.
    num_examples: Examples seen, float32: a client's n_i (its epochs not counted) for whole
      arrays, all examples of its dataset for batches.
    is_finite: float32, 1 or 0.
    squared_norm: ||g_i||^2, 0 if not finite.
    metrics: Unfinalized training metrics.
  """

  update: Any
  kept: Any
  upload: Any
  num_examples: tf.Tensor
  is_finite: tf.Tensor
  squared_norm: tf.Tensor
  metrics: Any


def data_type(model: local_models.LocalModel, training: LocalTraining) -> tff.types.SequenceType:
  """Type of a client's data: see `LocalTraining.batching`."""
  element = model.input_spec
  if training.batching is not None:
    if not isinstance(element, collections.abc.Mapping) or set(element) != {'x', 'y'}:
      raise ValueError(
        f'local batching wants a model with an input_spec of x and y, found {element}; leave '
        'batching=None and give batched datasets instead'
      )
    element = collections.OrderedDict(element, client=tf.TensorSpec([], tf.int32))
  return tff.types.SequenceType(tff.types.tensorflow_to_type(element))


def train_client(
  model: local_models.LocalModel,
  training: LocalTraining,
  correction: corrections.Correction,
  *,
  weights: tff.learning.models.ModelWeights,
  data: tf.data.Dataset,
  kept: Any,
  sent: Any,
  round_number: tf.Tensor,
  rate: tf.Tensor,
) -> Trained:
  """Trains one client for a round; to be called inside a `tff.tensorflow.computation`.

  Args:
    model: The model.
    training: How to train.
    correction: How the local gradient is corrected.
    weights: theta^{t-1}.
    data: The client's data, of type `data_type`.
    kept: The client's state.
    sent: What the server sent besides the weights.
    round_number: t, int32, counted from 1.
    rate: eta_l of this round, float32.

  Returns:
    The result.
  """
  theta_0 = tuple(weights.trainable)
  source = (_Batches if training.batching is None else _WholeArrays)(
    model, training, data, round_number
  )
  client = corrections.ClientRound(
    theta_0=theta_0,
    kept=kept,
    sent=sent,
    t=tf.cast(round_number, tf.float32),
    eta_l=rate,
    num_examples=source.num_examples,
    full_gradient=lambda: source.mean_gradient(theta_0, tuple(weights.non_trainable)),
  )

  def step(state, batch, weighting, seed):
    theta, slots, metrics = state
    g, metrics = model.gradients(
      theta, tuple(weights.non_trainable), batch, weighting, seed, metrics
    )
    g = _dense(g, theta)
    g = correction.gradient(client, theta, g)
    if training.clip_norm is not None:
      g = tuple(tf.clip_by_global_norm(g, training.clip_norm)[0])
    if training.weight_decay:
      g = corrections.combine(lambda g, w: g + training.weight_decay * w, g, theta)
    slots, theta = optimizer.next(slots, theta, g)
    return tuple(theta), slots, metrics

  optimizer = _LeanOptimizer(training.optimizer, theta_0, rate)
  (theta, _, metrics), steps, seen = source.run(step, (theta_0, optimizer.slots, model.start()))

  g_i = corrections.combine(tf.subtract, theta_0, theta)
  squared_norm = corrections.squared_norm(g_i)
  # One pass finds any NaN or infinity; a norm that overflows has diverged as well. A client that
  # took no step has nothing to say either.
  is_finite = tf.math.is_finite(squared_norm) & (steps > 0)
  client = client._replace(num_examples=seen)
  new_kept, upload = correction.client_update(client, g_i, tf.cast(steps, tf.float32))

  def if_finite(value, otherwise):
    if not tf.nest.flatten(value):
      return value
    return tf.cond(is_finite, lambda: value, lambda: otherwise)

  zeros = lambda tree: tf.nest.map_structure(tf.zeros_like, tree)  # noqa: E731
  return Trained(
    update=if_finite(g_i, zeros(g_i)),
    kept=if_finite(new_kept, kept),
    upload=if_finite(upload, zeros(upload)),
    num_examples=seen,
    is_finite=tf.cast(is_finite, tf.float32),
    squared_norm=tf.where(is_finite, squared_norm, 0.0),
    metrics=model.metric_sums(metrics, is_finite),
  )


def _dense(gradients, weights):
  return tuple(
    tf.zeros_like(w) if g is None else tf.convert_to_tensor(g) for g, w in zip(gradients, weights)
  )


class _LeanOptimizer:
  """A TFF optimizer whose constant state (learning rate, momentum ...) stays out of the loop."""

  def __init__(self, optimizer, weights, rate):
    self._optimizer = optimizer
    state = optimizer.initialize(tuple(tf.TensorSpec(w.shape, w.dtype) for w in weights))
    key = tff.learning.optimizers.LEARNING_RATE_KEY
    hparams = optimizer.get_hparams(state)
    if key in hparams:
      state = optimizer.set_hparams(state, collections.OrderedDict(hparams, **{key: rate}))
    self._state = tf.nest.map_structure(tf.convert_to_tensor, state)
    flat = tf.nest.flatten(self._state)
    zeros = tuple(tf.zeros_like(w) for w in weights)
    after = tf.nest.flatten(optimizer.next(self._state, weights, zeros)[0])
    self._changes = [new is not old for new, old in zip(after, flat)]
    self.slots = tuple(leaf for leaf, changes in zip(flat, self._changes) if changes)

  def next(self, slots, weights, gradients):
    """As `tff.learning.optimizers.Optimizer.next`, with the changing leaves alone."""
    slots = iter(slots)
    flat = tf.nest.flatten(self._state)
    flat = [next(slots) if changes else leaf for leaf, changes in zip(flat, self._changes)]
    state, weights = self._optimizer.next(
      tf.nest.pack_sequence_as(self._state, flat), weights, gradients
    )
    flat = tf.nest.flatten(state)
    return tuple(leaf for leaf, changes in zip(flat, self._changes) if changes), weights


def _base_seed(training):
  return tf.constant([training.seed & 0x7FFFFFFF, training.seed >> 31 & 0x7FFFFFFF], tf.int32)


class _WholeArrays:
  """A client given as one element: batches are drawn inside the graph."""

  def __init__(self, model, training, data, round_number):
    self._model = model
    element = data.get_single_element()
    self._x, self._y = element['x'], element['y']
    n = tf.shape(self._y)[0]
    self.num_examples = tf.cast(n, tf.float32)
    seed = batching_lib.fold(_base_seed(training), round_number, element['client'])
    self._seed = tf.unstack(seed)
    self._plan = batching_lib.plan(training.batching, n, seed)
    self._steps = tf.shape(self._plan.indices)[0]
    self._weighting = None
    if model.is_masked and training.batching.batch_size is not None:
      self._weighting = self._plan.shares_and_size()

  def run(self, step, state):
    """All local steps; returns the state, K_i and n_i."""
    (state, _) = tf.while_loop(
      lambda _, i: i < self._steps,
      lambda state, i: (step(state, *self._batch(i)), i + 1),
      (state, tf.constant(0)),
      parallel_iterations=1,
    )
    return state, self._steps, self.num_examples

  def _batch(self, i):
    # Everything that the loop captures or does costs in every step: gathers, not slices.
    indices, weighting = tf.gather(self._plan.indices, i), None
    if self._weighting is not None:
      row = tf.gather(self._weighting, i)
      weighting = row[:-1], row[-1]
    elif self._plan.is_padded:
      indices = indices[: tf.gather(self._plan.sizes, i)]
    batch = collections.OrderedDict(x=tf.gather(self._x, indices), y=tf.gather(self._y, indices))
    # Distinct for each step, and cheap: the generator scrambles neighbouring seeds.
    return batch, weighting, tf.stack([self._seed[0], self._seed[1] + i])

  def mean_gradient(self, theta, non_trainable):
    """Mean gradient over all examples at `theta`, by slices of some 512 examples."""
    n, size = tf.shape(self._y)[0], 512

    def body(total, start):
      stop = tf.minimum(start + size, n)
      batch = collections.OrderedDict(x=self._x[start:stop], y=self._y[start:stop])
      g, _ = self._model.gradients(theta, non_trainable, batch, None, None, self._model.start())
      share = tf.cast(stop - start, tf.float32) / self.num_examples
      total = corrections.combine(
        lambda s, g: s + corrections.scale(share, g), total, _dense(g, theta)
      )
      return total, stop

    total, _ = tf.while_loop(
      lambda _, start: start < n, body, (corrections.zeros(theta), tf.constant(0))
    )
    return total


class _Batches:
  """A client given as a dataset of batches, TFF's convention: one step an element."""

  def __init__(self, model, training, data, round_number):
    self._model = model
    self._data = data
    self._seed = batching_lib.fold(_base_seed(training), round_number)
    self.num_examples = tf.zeros([])  # Known only at the end.

  def run(self, step, state):
    """All local steps; returns the state, K_i and the number of examples."""
    theta, optimizer_state, metrics = state

    def reduce_fn(carried, batch):
      state, i, seen = carried
      seed = tf.stack([self._seed[0], self._seed[1] + i])
      size = tf.shape(tf.nest.flatten(batch)[0])[0]
      return step(state, batch, None, seed), i + 1, seen + size

    state, steps, seen = self._data.reduce(
      ((theta, optimizer_state, metrics), tf.constant(0), tf.constant(0)), reduce_fn
    )
    return state, steps, tf.cast(seen, tf.float32)

  def mean_gradient(self, theta, non_trainable):
    """Mean gradient over all examples at `theta`."""

    def reduce_fn(carried, batch):
      total, seen = carried
      size = tf.cast(tf.shape(tf.nest.flatten(batch)[0])[0], tf.float32)
      g, _ = self._model.gradients(theta, non_trainable, batch, None, None, self._model.start())
      add = lambda s, g: s + corrections.scale(size, g)  # noqa: E731
      return corrections.combine(add, total, _dense(g, theta)), seen + size

    total, seen = self._data.reduce((corrections.zeros(theta), tf.zeros([])), reduce_fn)
    inverse = tf.math.divide_no_nan(1.0, seen)
    return corrections.combine(lambda s: corrections.scale(inverse, s), total)
