"""How a client's examples become the batches of its local steps."""

import dataclasses
import math
from collections.abc import Callable

import tensorflow as tf

from tff_adaptive._utils import seeds, validation


@dataclasses.dataclass(frozen=True)
class Batching:
  """Local batching of whole-array clients: all randomness from a seed, none from tf.data.

  Attributes:
    batch_size: B, the examples in one step. None takes all of the client's examples in one step.
      A large B would not do: a step costs as much as B examples even if the client has fewer.
    epochs: E, passes over the client's examples in a round.
    shuffle: Whether each epoch goes through the examples in a new order.
    shuffle_buffer: Size of the buffer from which the next example (or unit) is drawn, as in
      `tf.data.Dataset.shuffle`. None draws from all examples that are left.
    fill_last: Whether the last batch of an epoch is filled up with examples that are drawn again
      from the client's own, as in AdaBest's experiments. Otherwise the batch is smaller.
    unit_starts: A function x [n, ...] -> bool [n] that marks where a unit of examples begins.
      Shuffling keeps a unit (the pieces of one text, say) in order. None: each example is a unit.
    step_limits: Whether a client's element has a third entry, `max_steps` (int32). The client stops
      after this number of its K local steps; the batches of these steps do not change. This is for
      clients that do not always finish; see `tff_adaptive.population`.
    local_steps: K, the local steps of every client that has examples, instead of E epochs. The
      client makes as many passes over its examples as K steps need.
    random_local_steps: Whether K is drawn in each round, the same for all clients: one plus the
      failures before the first success of probability 1 / local_steps, as in ProxSkip.
    with_replacement: Whether each example of a batch is drawn from all of the client's examples.
    continue_batches: Whether a round continues the pass where the last round stopped. Round t takes
      the steps from (t - 1) K on, where K is `local_steps`. It does not matter whether the client
      took part in the rounds before.
  """

  batch_size: int | None
  epochs: int = 1
  shuffle: bool = True
  fill_last: bool = False
  unit_starts: Callable[[tf.Tensor], tf.Tensor] | None = None
  step_limits: bool = False
  shuffle_buffer: int | None = None
  local_steps: int | None = None
  random_local_steps: bool = False
  with_replacement: bool = False
  continue_batches: bool = False

  def __post_init__(self) -> None:
    validation.whole_number(
      'epochs', self.epochs, 1, 'give the passes over the data in a round', high=2**31 - 1
    )
    for name, hint, most in (
      ('batch_size', 'give None for all examples at once', 2**20),
      ('local_steps', 'give None for passes over the data', 2**20),
      ('shuffle_buffer', 'give None to draw among all', 2**31 - 1),
    ):
      if getattr(self, name) is not None:
        validation.whole_number(name, getattr(self, name), 1, hint, high=most)
    for name in ('random_local_steps', 'with_replacement'):
      needed = 'local_steps' if name == 'random_local_steps' else 'batch_size'
      if getattr(self, name) and getattr(self, needed) is None:
        raise ValueError(f'{name} needs {needed}: give it a number.')
    has_passes = self.local_steps is not None and self.batch_size is not None
    if self.continue_batches and (
      not has_passes or self.random_local_steps or self.with_replacement
    ):
      raise ValueError(
        'continue_batches needs passes to go on with: give batch_size and local_steps, and leave'
        ' random_local_steps and with_replacement out.'
      )

  def drawn_steps(self, round_seed: tf.Tensor | None) -> tf.Tensor:
    """K of a round, int32, where `local_steps` gives it; at most 20 times its mean."""
    mean = self.local_steps or 1
    if not self.random_local_steps or mean == 1:
      return tf.constant(mean)
    # No client has this number: the seed of client i is `fold(round_seed, i)`.
    u = tf.random.stateless_uniform([], seeds.fold(round_seed, -1), minval=1e-7)
    steps = 1 + tf.math.floor(tf.math.log(u) / math.log(1 - 1 / mean))
    return tf.minimum(tf.cast(steps, tf.int32), 20 * mean)


@dataclasses.dataclass(frozen=True)
class Plan:
  """The examples of each local step of one client.

  Attributes:
    indices: int32 [K, B]: examples of each step; padding repeats an example.
    sizes: int32 [K]: examples of each step that count, the first ones of its row.
    is_padded: Whether `sizes` may be less than B.
  """

  indices: tf.Tensor
  sizes: tf.Tensor
  is_padded: bool

  def shares_and_sizes(self) -> tuple[tf.Tensor, tf.Tensor]:
    """float32 [K, B], each example's share in its step's mean, and [K], the steps' sizes."""
    sizes = tf.cast(self.sizes, tf.float32)
    counts = tf.sequence_mask(self.sizes, tf.shape(self.indices)[1], dtype=tf.float32)
    return counts / sizes[:, tf.newaxis], sizes

  def first(self, max_steps: tf.Tensor) -> 'Plan':
    """The first steps, at most `max_steps` (int32, >= 0), and no step for a negative number."""
    steps = tf.maximum(max_steps, 0)  # A slice ends at the last step where there are fewer.
    return dataclasses.replace(self, indices=self.indices[:steps], sizes=self.sizes[:steps])


def plan(
  batching: Batching, x: tf.Tensor, seed: tf.Tensor, round_seed: tf.Tensor | None = None
) -> Plan:
  """Draws a client's batches for one round.

  Args:
    batching: How to batch.
    x: The client's inputs [n, ...].
    seed: int32 [2], of the client and the round.
    round_seed: int32 [2], the same for all clients, for `random_local_steps`.

  Returns:
    The plan; K = E ceil(n / B), or `local_steps` if n > 0.
  """
  epochs, n = batching.epochs, tf.shape(x)[0]
  if batching.local_steps is not None:
    most = tf.where(n > 0, batching.drawn_steps(round_seed), 0)
    each = 1 if batching.batch_size is None else tf.maximum(-(-n // batching.batch_size), 1)
    return _passes(batching, x, seed, -(-most // each)).first(most)
  return _passes(batching, x, seed, epochs)


def continued(batching: Batching, x: tf.Tensor, seed: tf.Tensor, round_number: tf.Tensor) -> Plan:
  """Draws a client's batches for a round that goes on with its passes.

  Args:
    batching: How to batch; with `continue_batches`.
    x: The client's inputs [n, ...].
    seed: int32 [2], of the client; the same in each round.
    round_number: t, int32, from 1.

  Returns:
    The plan; K = `local_steps` if n > 0.
  """
  assert batching.local_steps is not None
  assert batching.batch_size is not None
  n, most = tf.shape(x)[0], batching.local_steps
  each = tf.cast(tf.maximum(-(-n // batching.batch_size), 1), tf.int64)
  start = (tf.cast(round_number, tf.int64) - 1) * most
  passes = tf.range(start // each, -(-(start + most) // each))

  def one(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    found = _passes(batching, x, seeds.fold(seed, number), 1)
    return found.indices, found.sizes

  specs = (tf.TensorSpec([None, batching.batch_size], tf.int32), tf.TensorSpec([None], tf.int32))
  indices, sizes = tf.map_fn(one, passes, fn_output_signature=specs)
  skipped = start % each
  whole = Plan(
    tf.reshape(indices, [-1, batching.batch_size])[skipped:],
    tf.reshape(sizes, [-1])[skipped:],
    not batching.fill_last,
  )
  return whole.first(tf.where(n > 0, most, 0))


def _passes(batching: Batching, x: tf.Tensor, seed: tf.Tensor, epochs: int | tf.Tensor) -> Plan:
  """The batches of some passes over a client's examples."""
  n = tf.shape(x)[0]
  if batching.shuffle and batching.batch_size is not None:
    units = None
    if batching.unit_starts is not None:
      units = tf.cumsum(tf.cast(batching.unit_starts(x), tf.int32)) - 1
      units = tf.maximum(units, 0)  # The first example begins one anyhow.
    keys = _keys(batching, n, units, epochs, seeds.fold(seed, 1))
    order = tf.argsort(keys, axis=-1, stable=True)
  else:
    order = tf.tile(tf.range(n)[tf.newaxis], [epochs, 1])
  if batching.batch_size is None:
    steps = tf.where(n > 0, epochs, 0)
    return Plan(order[:steps], tf.fill([steps], n), False)
  if batching.with_replacement:
    order = tf.random.stateless_uniform(
      [epochs, n], seeds.fold(seed, 4), maxval=tf.maximum(n, 1), dtype=tf.int32
    )
  size = batching.batch_size
  steps = -(-n // size)
  missing = steps * size - n
  last = size - missing
  if batching.fill_last:
    filling = tf.random.stateless_uniform(
      [epochs, missing], seeds.fold(seed, 2), maxval=tf.maximum(n, 1), dtype=tf.int32
    )
    last = size
  else:
    filling = tf.zeros([epochs, missing], tf.int32)
  indices = tf.reshape(tf.concat([order, filling], 1), [epochs * steps, size])
  is_last = tf.equal((tf.range(epochs * steps) + 1) % tf.maximum(steps, 1), 0)
  return Plan(indices, tf.where(is_last, last, size), not batching.fill_last)


def _keys(
  batching: Batching,
  n: tf.Tensor,
  units: tf.Tensor | None,
  epochs: int | tf.Tensor,
  seed: tf.Tensor,
) -> tf.Tensor:
  """[E, n]: numbers by which the examples are sorted in each epoch, equal within a unit."""
  if batching.shuffle_buffer is None:
    keys = tf.random.stateless_uniform([epochs, n], seed)
  else:
    count = n if units is None else tf.reduce_sum(units[-1:] + 1)
    order = buffered_orders(count, batching.shuffle_buffer, epochs, seed)
    keys = tf.argsort(order, axis=-1)  # The inverse permutation.
  return keys if units is None else tf.gather(keys, units, axis=1)


def buffered_orders(
  num_elements: tf.Tensor, buffer_size: int, count: int | tf.Tensor, seed: tf.Tensor
) -> tf.Tensor:
  """Draws orders of `tf.data`'s `shuffle`, from a seed and in any graph.

  Each next element is one of the first `buffer_size` that are left, uniformly.

  Args:
    num_elements: int32 [], n.
    buffer_size: At least 1; 1 leaves the order as it is, n or more make all orders equally likely.
    count: How many orders.
    seed: int32 [2].

  Returns:
    int32 [count, n]: in each row element numbers in the order drawn.
  """
  rows = tf.range(count)
  places = tf.minimum(buffer_size, num_elements)
  uniform = tf.random.stateless_uniform([num_elements, count], seed)

  def draw(t: tf.Tensor, buffer: tf.Tensor, drawn: tf.TensorArray) -> tuple:
    filled = tf.minimum(places, num_elements - t)
    # A float32 below 1 times `filled` may round up to it.
    place = tf.minimum(tf.cast(uniform[t] * tf.cast(filled, tf.float32), tf.int32), filled - 1)
    at = tf.stack([rows, place], 1)
    drawn = drawn.write(t, tf.gather_nd(buffer, at))
    # The next element takes the place; after the last one, the last in the buffer does.
    following = tf.where(t + places < num_elements, t + places, buffer[:, filled - 1])
    return t + 1, tf.tensor_scatter_nd_update(buffer, at, following), drawn

  _, _, drawn = tf.while_loop(
    lambda t, *_: t < num_elements,
    draw,
    (
      tf.constant(0),
      tf.tile(tf.range(places)[tf.newaxis], [count, 1]),
      tf.TensorArray(
        tf.int32, num_elements, element_shape=[count if isinstance(count, int) else None]
      ),
    ),
  )
  return tf.transpose(drawn.stack())
