"""Sources of the batches for a client's local steps.

There are three sources: a client given as a dataset of batches (`Batches`), a client given as
arrays of all its examples (`WholeArrays`), and a group of G such clients (`GroupOfArrays`). In a
group every tensor of a client has a leading axis G. No source gives a batch without examples.

They share an interface. `num_examples` is float32 [] or [G]; `count_examples()` returns it, or
counts if it is unknown. `run(step, state)`, with `step(state, LocalStep) -> state`, returns the
last state and the numbers of steps and examples. `mean_gradient` is the mean over all examples.
"""

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from tff_adaptive._utils import seeds
from tff_adaptive.client import batching as batching_lib, model_adapters
from tff_adaptive.corrections import base as corrections

_MESSAGES = -1  # In place of a number, for the seed of a client's messages.

Step: TypeAlias = Callable[[Any, model_adapters.LocalStep], Any]  # (state, local step) -> state.
# (total, batch, factor) -> total.
_Add: TypeAlias = Callable[[corrections.Weights, Any, tf.Tensor], corrections.Weights]


# Of a client's seed in a round other numbers give the order of its examples; see `batching`.
_OF_PARTS = 5


class _Arrays:
  """The base class of `WholeArrays` and `GroupOfArrays`, with the loop of local steps."""

  num_examples: tf.Tensor
  steps: tf.Tensor

  def run(self, step: Step, state: Any) -> tuple[Any, tf.Tensor, tf.Tensor]:
    """Calls `step` for each local step; returns the state, the numbers of steps and of examples."""
    # A group goes on until the client with the most steps is done; see `LocalStep.active`.
    last = tf.reduce_max(self.steps)
    (state, _) = tf.while_loop(
      lambda _, i: i < last,
      lambda state, i: (step(state, self._local_step(i)), i + 1),
      (state, tf.constant(0)),
      parallel_iterations=1,
    )
    return state, self.steps, self.num_examples

  def count_examples(self) -> tf.Tensor:
    """Returns the number of examples, [G] for a group."""
    return self.num_examples

  def message_seed(self, update: corrections.Weights) -> tf.Tensor:
    """Returns the int32 [2] seed of compression, from seed, round and client; [G, 2] for a group.

    `update` is the client's, from which a source that does not know the client derives the seed.
    """
    raise NotImplementedError

  def _local_step(self, i: tf.Tensor) -> model_adapters.LocalStep:
    raise NotImplementedError


class WholeArrays(_Arrays):
  """A client given as arrays of all its examples, from which each step gathers its batch.

  Args:
    batching: How the examples are divided into batches.
    seed: With the numbers of round and client it determines the examples' order and dropout.
    element: The arrays 'x' and 'y', [n, ...] each, or structures of such arrays; the client's
      number 'client'; and 'max_steps', the largest number of local steps, if
      `batching.step_limits` is true.
    round_number: int32, counted from 1.
  """

  def __init__(
    self,
    model: model_adapters.LocalModel,
    batching: batching_lib.Batching,
    seed: int,
    element: Mapping[str, tf.Tensor],
    round_number: tf.Tensor,
  ) -> None:
    self._model = model
    self.x = element['x']
    self.y = element['y']
    n = batching_lib.num_rows(self.y)
    text = 'a client has not as many labels as inputs'
    checks = [
      tf.debugging.assert_equal(n, tf.shape(leaf)[0], text)
      for leaf in tf.nest.flatten([self.x, self.y])
      if leaf is not tf.nest.flatten(self.y)[0]
    ]
    # TFF's graphs do not order operations by themselves. In eager mode a check is None.
    with tf.control_dependencies([check for check in checks if check is not None]):
      n = tf.identity(n)
      # Else the gather of a missing row may fail first.
      self.x = tf.nest.map_structure(tf.identity, self.x)
    self.num_examples = tf.cast(n, tf.float32)
    self.index = element['client']
    round_seed = seeds.fold(seeds.base(seed), round_number)
    client_seed = seeds.fold(seeds.base(seed), round_number, element['client'])
    self.step_seed = seeds.scramble(client_seed)
    self._seeds = tf.unstack(self.step_seed)
    self.part_seed = seeds.scramble(seeds.fold(client_seed, _OF_PARTS))
    if batching.continue_batches:  # No round has the number 0.
      passes_seed = seeds.fold(seeds.base(seed), 0, element['client'])
      self.plan = batching_lib.continued(batching, self.x, passes_seed, round_number)
    else:
      self.plan = batching_lib.plan(batching, self.x, client_seed, round_seed)
    if batching.step_limits:
      self.plan = self.plan.first(element['max_steps'])
    self.steps = tf.shape(self.plan.indices)[0]
    self.planned_steps = tf.cast(self.steps, tf.float32)
    # Computed before the loop, since each operation of a small step shows in the time of a round.
    self._weighting: tuple[tf.Tensor, tf.Tensor] | None = None
    if model.is_masked and batching.batch_size is not None:
      self._weighting = self.plan.shares_and_sizes()

  def _local_step(self, i: tf.Tensor) -> model_adapters.LocalStep:
    # Whatever the loop captures or does takes time in every step: hence gathers, not slices.
    indices = tf.gather(self.plan.indices, i)
    weighting = None
    if self._weighting is not None:
      shares, sizes = self._weighting
      weighting = tf.gather(shares, i), tf.gather(sizes, i)
    elif self.plan.is_padded:
      indices = indices[: tf.gather(self.plan.sizes, i)]
    batch = collections.OrderedDict(x=_rows(self.x, indices), y=_rows(self.y, indices))
    # A seed for each step, at low cost: for generators, neighbouring seeds are unrelated.
    return model_adapters.LocalStep(
      batch, weighting, tf.stack([self._seeds[0], self._seeds[1] + i])
    )

  def message_seed(self, update: corrections.Weights) -> tf.Tensor:
    return seeds.fold(self.step_seed, _MESSAGES)

  def mean_gradient(
    self, theta: corrections.Weights, non_trainable: corrections.Weights
  ) -> corrections.Weights:
    """Returns the mean gradient at `theta`, in batches of 512 unless the model couples examples."""
    return self._mean(corrections.zeros(theta), _adder(self._model, theta, non_trainable))

  def mean_loss(self, theta: corrections.Weights, non_trainable: corrections.Weights) -> tf.Tensor:
    """Returns the mean loss at `theta` over all examples, float32."""
    return self._mean((tf.zeros([]),), _loss_adder(self._model, theta, non_trainable))[0]

  def label_counts(self, num_classes: int) -> tf.Tensor:
    """Returns how many examples have each label 0, 1, ..., float32 [num_classes]."""
    labels = tf.cast(tf.reshape(self.y, [-1]), tf.int32)
    return tf.reduce_sum(tf.one_hot(labels, num_classes), 0)

  def class_features(
    self, theta: corrections.Weights, num_classes: int
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the sums of the features by label, [num_classes, size], and the label counts."""

    def add(total: corrections.Weights, batch: Any, factor: tf.Tensor) -> corrections.Weights:
      features = self._model.features(theta, batch)
      labels = tf.one_hot(tf.cast(batch['y'], tf.int32), num_classes)
      sums = tf.linalg.matmul(labels, features, transpose_a=True)
      # `_mean` gives a batch the factor size / n of its mean.
      return (total[0] + factor * sums / tf.cast(tf.shape(labels)[0], tf.float32),)

    size, _ = corrections.head_shape(theta)
    means = self._mean((tf.zeros([num_classes, size]),), add)[0]
    return means * self.num_examples, self.label_counts(num_classes)

  def _mean(self, zero: corrections.Weights, add: _Add) -> corrections.Weights:
    """Returns the mean over all examples of what `add` adds for a batch."""
    n = batching_lib.num_rows(self.y)
    # Slices bound the memory of the gradient; a loss that couples examples has to see all at once.
    size: Any = 512
    if self._model.couples_examples:
      size = n

    def body(total: corrections.Weights, start: tf.Tensor) -> tuple[corrections.Weights, tf.Tensor]:
      stop = tf.minimum(start + size, n)
      examples = collections.OrderedDict(x=self.x, y=self.y)
      batch = tf.nest.map_structure(lambda leaf: leaf[start:stop], examples)
      return add(total, batch, tf.cast(stop - start, tf.float32) / self.num_examples), stop

    total, _ = tf.while_loop(lambda _, start: start < n, body, (zero, tf.constant(0)))
    return total


class GroupOfArrays(_Arrays):
  """G clients, each given as arrays of all its examples, that take their local steps together."""

  def __init__(
    self,
    model: model_adapters.LocalModel,
    batching: batching_lib.Batching,
    seed: int,
    elements: Sequence[Mapping[str, tf.Tensor]],
    round_number: tf.Tensor,
  ) -> None:
    clients = [WholeArrays(model, batching, seed, e, round_number) for e in elements]
    self._clients = clients
    self.num_examples = tf.stack([c.num_examples for c in clients])
    self.steps = tf.stack([c.steps for c in clients])
    self._x = _pad_and_stack([c.x for c in clients])
    self._y = _pad_and_stack([c.y for c in clients])
    # The steps come first, [K, G, ...]. After a client's last step all its shares are 0.
    self._indices = _pad_and_stack([c.plan.indices for c in clients], axis=1)
    weightings = [c.plan.shares_and_sizes() for c in clients]
    self._shares, self._sizes = (_pad_and_stack(part, axis=1) for part in zip(*weightings))
    self._seeds = tf.stack([c.step_seed for c in clients])
    self.part_seed = tf.stack([c.part_seed for c in clients])
    self.planned_steps = tf.stack([c.planned_steps for c in clients])
    self.index = tf.stack([c.index for c in clients])

  def _local_step(self, i: tf.Tensor) -> model_adapters.LocalStep:
    indices = tf.gather(self._indices, i)
    batch = collections.OrderedDict(
      x=tf.gather(self._x, indices, batch_dims=1), y=tf.gather(self._y, indices, batch_dims=1)
    )
    # As for a client alone, so that training in groups draws the same dropout.
    seed = self._seeds + tf.stack([0, i])
    active = tf.cast(i < self.steps, tf.float32)
    weighting = tf.gather(self._shares, i), tf.gather(self._sizes, i)
    return model_adapters.LocalStep(batch, weighting, seed, active)

  def message_seed(self, update: corrections.Weights) -> tf.Tensor:
    return tf.stack([c.message_seed(update) for c in self._clients])

  def mean_gradient(
    self,
    theta: corrections.Weights,
    non_trainable: corrections.Weights,
    has_client_axis: bool = False,
  ) -> corrections.Weights:
    """Returns the mean gradient over all examples, for each client.

    Args:
      theta: The weights; with `has_client_axis` those of each client.
      non_trainable: The model's other weights.
      has_client_axis: Whether `theta` has a leading axis of clients.
    """
    each = zip(self._clients, self._by_client(theta, has_client_axis))
    gradients = [client.mean_gradient(weights, non_trainable) for client, weights in each]
    return tuple(tf.stack(leaves) for leaves in zip(*gradients))

  def mean_loss(
    self,
    theta: corrections.Weights,
    non_trainable: corrections.Weights,
    has_client_axis: bool = False,
  ) -> tf.Tensor:
    """Returns the mean loss over all examples, for each client, float32 [G]."""
    each = zip(self._clients, self._by_client(theta, has_client_axis))
    return tf.stack([client.mean_loss(weights, non_trainable) for client, weights in each])

  def label_counts(self, num_classes: int) -> tf.Tensor:
    """Returns how many examples of each client have each label, float32 [G, num_classes]."""
    return tf.stack([client.label_counts(num_classes) for client in self._clients])

  def class_features(
    self, theta: corrections.Weights, num_classes: int, has_client_axis: bool = False
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the sums of the features by label, and the label counts, of each client."""
    each = zip(self._clients, self._by_client(theta, has_client_axis))
    pairs = [client.class_features(weights, num_classes) for client, weights in each]
    sums, counts = zip(*pairs)
    return tf.stack(sums), tf.stack(counts)

  def _by_client(
    self, theta: corrections.Weights, has_client_axis: bool
  ) -> Sequence[corrections.Weights]:
    """Returns the weights of each client."""
    if not has_client_axis:
      return [theta] * len(self._clients)
    by_leaf = [tf.unstack(leaf, len(self._clients)) for leaf in theta]
    return list(zip(*by_leaf))


class Batches:
  """A client given as a dataset of batches, as usual in TFF; each batch gives one local step.

  A batch without examples, as a filter after `batch` leaves it, is no step.
  """

  def __init__(
    self,
    model: model_adapters.LocalModel,
    seed: int,
    data: tf.data.Dataset,
    round_number: tf.Tensor,
  ) -> None:
    self._model = model
    self._data = data
    self._seed = seeds.scramble(seeds.fold(seeds.base(seed), round_number))
    self.num_examples = tf.constant(float('nan'))  # It is known only after the steps.
    self.planned_steps = tf.constant(float('nan'))
    self.index = tf.constant(-1)
    self.part_seed = seeds.scramble(seeds.fold(seeds.base(seed), round_number, _OF_PARTS))
    self._last: list[tf.Tensor] = []  # The results of the last read of the data.

  def count_examples(self) -> tf.Tensor:
    """Returns the number of examples; this goes through the batches once."""
    return self._reduce(
      tf.zeros([]), lambda n, batch: n + tf.cast(batching_lib.num_rows(batch), tf.float32)
    )

  def run(self, step: Step, state: Any) -> tuple[Any, tf.Tensor, tf.Tensor]:
    """Calls `step` for each batch; returns the last state, numbers of steps and of examples."""

    def reduce_fn(carried: Any, batch: Any) -> tuple[Any, tf.Tensor, tf.Tensor]:
      state, i, seen = carried
      # Such a client has no number, so what is in the batch tells its dropout from that of others.
      seed = tf.stack([self._seed[0] + _fingerprint(batch), self._seed[1] + i])
      local = model_adapters.LocalStep(batch, None, seed)
      size = batching_lib.num_rows(batch)
      state = _unless_empty(batch, lambda: step(state, local), state)
      # An empty batch is no step, so it does not count in i.
      return state, i + tf.minimum(size, 1), seen + size

    state, steps, seen = self._reduce((state, tf.constant(0), tf.constant(0)), reduce_fn)
    return state, steps, tf.cast(seen, tf.float32)

  def message_seed(self, update: corrections.Weights) -> tf.Tensor:
    """Returns a seed from seed, round and the update, which is as good as the client's number."""
    return seeds.fold(self._seed, _MESSAGES, sum(map(_fingerprint, update)))

  def mean_gradient(
    self, theta: corrections.Weights, non_trainable: corrections.Weights
  ) -> corrections.Weights:
    """Returns the mean gradient over all examples at `theta`."""
    return self._mean(corrections.zeros(theta), _adder(self._model, theta, non_trainable))

  def mean_loss(self, theta: corrections.Weights, non_trainable: corrections.Weights) -> tf.Tensor:
    """Returns the mean loss over all examples at `theta`, float32."""
    return self._mean((tf.zeros([]),), _loss_adder(self._model, theta, non_trainable))[0]

  def label_counts(self, num_classes: int) -> tf.Tensor:
    """Refuses: labels are counted before the first batch is read."""
    raise ValueError(
      "the algorithm counts a client's labels, which needs all its examples at once: give"
      ' training=tff_adaptive.ClientTraining(batching=...)'
    )

  def class_features(self, theta: corrections.Weights, num_classes: int) -> Any:
    """Refuses, as `label_counts` does."""
    return self.label_counts(num_classes)

  def _mean(self, zero: corrections.Weights, add: _Add) -> corrections.Weights:
    """Returns the mean over all examples of what `add` adds for a batch."""

    def reduce_fn(carried: Any, batch: Any) -> tuple[corrections.Weights, tf.Tensor]:
      total, seen = carried
      size = tf.cast(batching_lib.num_rows(batch), tf.float32)
      return _unless_empty(batch, lambda: add(total, batch, size), total), seen + size

    total, seen = self._reduce((zero, tf.zeros([])), reduce_fn)
    inverse = tf.math.divide_no_nan(1.0, seen)
    return corrections.combine(lambda s: corrections.scale(inverse, s), total)

  def _reduce(self, first: Any, function: Callable[..., Any]) -> Any:
    graph = tf.compat.v1.get_default_graph()  # Its reads are ordered, because each draws seeds.
    with tf.control_dependencies([t for t in self._last if getattr(t, 'graph', None) is graph]):
      result = self._data.reduce(first, function)
    self._last = tf.nest.flatten(result)[-1:]
    return result


def _unless_empty(batch: Any, function: Callable[[], Any], otherwise: Any) -> Any:
  """Returns the result of `function`, or `otherwise`, of its structure, for an empty batch."""
  shape = tf.nest.flatten(batch)[0].shape
  if shape.rank and shape[0]:
    return function()
  # A condition costs next to nothing in a step; a filter of the dataset, as much as a small step.
  flat = tf.cond(
    batching_lib.num_rows(batch) > 0,
    lambda: tf.nest.flatten(function()),
    lambda: tf.nest.flatten(otherwise),
  )
  return tf.nest.pack_sequence_as(otherwise, flat)


def _loss_adder(
  model: model_adapters.LocalModel, theta: corrections.Weights, non_trainable: corrections.Weights
) -> _Add:
  """Returns `(total, batch, factor) -> total`, which adds the batch's loss times the factor."""
  if not model.takes_loss:  # In `add`, AutoGraph would put its own words before these.
    raise ValueError(
      f'{type(model).__name__.strip("_")} has no loss at given weights, which this algorithm needs:'
      ' give a tff_adaptive.models.Model (models.from_keras makes one of a Keras model)'
    )

  def add(total: corrections.Weights, batch: Any, factor: tf.Tensor) -> corrections.Weights:
    return (total[0] + factor * model.mean_loss(theta, non_trainable, batch),)

  return add


def _adder(
  model: model_adapters.LocalModel, theta: corrections.Weights, non_trainable: corrections.Weights
) -> _Add:
  """Returns `(total, batch, factor) -> total`, which adds the batch's gradient times the factor."""
  model = model.without_metrics()
  metrics = model.start()

  def add(total: corrections.Weights, batch: Any, factor: tf.Tensor) -> corrections.Weights:
    # Each batch is a term of one mean, so the model's state does not move from one to the next.
    g, _, _ = model.gradients(theta, non_trainable, model_adapters.LocalStep(batch), metrics)
    return corrections.combine(lambda s, g: s + corrections.scale(factor, g), total, g)

  return add


def _fingerprint(batch: Any) -> tf.Tensor:
  """Returns an exact int32 hash of a batch, to derive seeds for clients that have no number."""
  leaf = tf.nest.flatten(batch)[0]
  if leaf.dtype == tf.string:
    return tf.reduce_sum(tf.cast(tf.strings.to_hash_bucket_fast(leaf, 2**30), tf.int32))
  if leaf.dtype == tf.bool:
    leaf = tf.cast(leaf, tf.uint8)
  # Weighted by position, so that the same values in another order give another hash.
  bits = tf.reshape(tf.cast(tf.bitcast(leaf, tf.uint8), tf.int32), [-1])
  # Odd factors, because these lose no bits when int32 overflows.
  return tf.reduce_sum(bits * (1 + 2 * tf.range(tf.size(bits))))


def _rows(tree: Any, indices: tf.Tensor) -> Any:
  """Gathers rows of a tensor [n, ...], or of each tensor of a structure."""
  return tf.nest.map_structure(lambda leaf: tf.gather(leaf, indices), tree)


def _pad_and_stack(tensors: Sequence[tf.Tensor], axis: int = 0) -> tf.Tensor:
  """Stacks tensors of different leading dimension, padded with zeros to the longest."""
  longest = tf.reduce_max(tf.stack([tf.shape(t)[0] for t in tensors]))
  padded = [
    tf.pad(t, [[0, longest - tf.shape(t)[0]]] + [[0, 0]] * (t.shape.rank - 1)) for t in tensors
  ]
  return tf.stack(padded, axis)
