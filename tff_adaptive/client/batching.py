"""Clients given as arrays of all their examples, and the batches of their local steps."""

import collections
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tff_adaptive._utils import seeds, validation

_INT32_MAX = 2**31 - 1


def client_arrays(
  x: Any, y: Any, client: int, max_steps: int | None = None, **more: Any
) -> list[collections.OrderedDict]:
  """Returns a client's data for a process built with `batching`: one element with all examples.

  Args:
    x: Inputs [n, ...] of the model's dtype, n >= 0; for a model with several inputs a structure of
      them, such as a dict.
    y: Labels [n, ...], or a structure of them.
    client: The client's index among all clients, int32. Its shuffling and dropout depend on it.
    max_steps: The most local steps that the client takes, int32, >= 0, for a process built with
      `Batching(..., step_limits=True)`. None for other processes.
    **more: Scalars for further entries, such as those of asynchronous training.

  Returns:
    `[OrderedDict(x=x, y=y, client=client)]`, with `max_steps` and other entries if they are given.

  Raises:
    ValueError: If x and y have different lengths, or a number is out of its range.
    TypeError: If a number is not an integer.
  """
  hint = "give the client's place among all clients, from 0"
  validation.whole_number('client', client, -(2**31), hint, high=_INT32_MAX)
  _check_lengths(x, y, client)
  element = collections.OrderedDict(x=x, y=y, client=np.int32(client))
  if max_steps is not None:
    hint = f'give client {client} 0 or more local steps'
    validation.whole_number('max_steps', max_steps, 0, hint, high=_INT32_MAX)
    element['max_steps'] = np.int32(max_steps)
  element.update(more)
  return [element]


def _check_lengths(x: Any, y: Any, client: int) -> None:
  """Raises ValueError unless all arrays of a client have the same number of examples."""
  inputs = _lengths(x)
  labels = _lengths(y)
  if len({*inputs, *labels}) <= 1:
    return
  if len(inputs) == len(labels) == 1:
    raise ValueError(
      f'client {client} has {inputs[0]} inputs but {labels[0]} labels: give one label for each '
      'input.'
    )
  raise ValueError(
    f'client {client} has inputs of {", ".join(map(str, inputs))} and labels of '
    f'{", ".join(map(str, labels))} rows: give one row of each for each example.'
  )


def _lengths(part: Any) -> list[int]:
  """Returns the lengths of the arrays in a dict or tuple of them; a list is one array."""
  if isinstance(part, collections.abc.Mapping):
    return [length for value in part.values() for length in _lengths(value)]
  if isinstance(part, tuple):
    return [length for value in part for length in _lengths(value)]
  return [len(part)]


@dataclasses.dataclass(frozen=True)
class Batching:
  """The batches of clients that are given as arrays of all their examples; see `client_arrays`.

  Attributes:
    batch_size: B, the number of examples in a step. None takes all examples of a client. A large B
      is no substitute for None: a step costs as much as B examples even if a client has fewer.
    epochs: E, the number of passes over the client's examples in a round.
    shuffle: Whether each epoch goes through the examples in a new order, which the seed draws.
    fill_last: Whether the last batch of an epoch is filled up with examples that are drawn again
      from the client's own, as in AdaBest's experiments. If False, the batch is smaller.
    unit_starts: A function x -> bool [n] that marks where a unit of examples begins. x are the
      client's inputs [n, ...], or the structure of them for a model with several inputs.
      Shuffling keeps a unit (the pieces of one text, say) in order. None: each example is a unit.
    step_limits: Whether a client's data have a further entry, `max_steps` (int32). The client stops
      after this number of its K local steps; the batches of these steps do not change. This is for
      clients that do not always finish; see `tff_adaptive.population`.
    local_steps: K, the number of local steps of every client that has examples, instead of E
      epochs. The client makes as many passes over its examples as K steps need.
    random_local_steps: Whether K, the same for all clients, is drawn in each round, as in ProxSkip.
      Its distribution is the geometric one with the mean `local_steps`.
    with_replacement: Whether each example is drawn anew from all of the client's examples.
    continue_batches: Whether a round continues the pass where the last round stopped. Round t takes
      the steps (t - 1) K + 1 to t K of the client's passes, where K is `local_steps`, even if the
      client did not take part in the rounds before.
  """

  batch_size: int | None
  epochs: int = 1
  shuffle: bool = True
  fill_last: bool = False
  unit_starts: Callable[[tf.Tensor], tf.Tensor] | None = None
  step_limits: bool = False
  local_steps: int | None = None
  random_local_steps: bool = False
  with_replacement: bool = False
  continue_batches: bool = False

  def __post_init__(self) -> None:
    validation.whole_number(
      'epochs', self.epochs, 1, 'give the passes over the data in a round', high=_INT32_MAX
    )
    for name, what in (('batch_size', 'all examples at once'), ('local_steps', 'passes')):
      if getattr(self, name) is not None:
        hint = f'give None for {what}'
        validation.whole_number(name, getattr(self, name), 1, hint, high=2**20)
    needs = (('random_local_steps', 'local_steps'), ('with_replacement', 'batch_size'))
    for name, needed in needs:
      if getattr(self, name) and getattr(self, needed) is None:
        raise ValueError(f'{name} needs {needed}: give it a number.')
    if self.random_local_steps and self.step_limits:
      raise ValueError(
        'random_local_steps does not go with step_limits (stragglers=partial), because simulated'
        ' clients take the mean number of steps: leave one of them out.'
      )
    has_passes = self.local_steps is not None and self.batch_size is not None
    if self.continue_batches and (
      not has_passes or self.random_local_steps or self.with_replacement
    ):
      raise ValueError(
        'continue_batches needs passes to go on with: give batch_size and local_steps, and leave'
        ' random_local_steps and with_replacement out.'
      )

  def drawn_steps(self, round_seed: tf.Tensor | None) -> tf.Tensor:
    """Returns K for a round with `local_steps`, int32; a random K is at most 20 times its mean."""
    mean = self.local_steps or 1
    if not self.random_local_steps or mean == 1:
      return tf.constant(mean)
    # The inverse of the geometric distribution function, at a uniform u above 0, whose logarithm is
    # finite. No client has the number -1: the seed of client i is `fold(round_seed, i)`.
    u = tf.random.stateless_uniform([], seeds.fold(round_seed, -1), minval=1e-7)
    steps = 1 + tf.math.floor(tf.math.log(u) / math.log(1 - 1 / mean))
    return tf.minimum(tf.cast(steps, tf.int32), 20 * mean)


@dataclasses.dataclass(frozen=True)
class Plan:
  """The examples of each local step of one client in a round: B in each of K steps.

  Attributes:
    indices: int32 [K, B], the examples of each step. Padding repeats an example.
    sizes: int32 [K]. Only the first sizes[k] examples of step k count.
    is_padded: Whether `sizes` may be less than B.
  """

  indices: tf.Tensor
  sizes: tf.Tensor
  is_padded: bool

  def shares_and_sizes(self) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns each example's share in the mean of its step, float32 [K, B], and the sizes [K]."""
    sizes = tf.cast(self.sizes, tf.float32)
    counts = tf.sequence_mask(self.sizes, tf.shape(self.indices)[1], dtype=tf.float32)
    return counts / sizes[:, tf.newaxis], sizes

  def first(self, max_steps: tf.Tensor) -> 'Plan':
    """Returns the plan of the first `max_steps` steps (int32); a negative number means 0."""
    steps = tf.maximum(max_steps, 0)  # The slice may go beyond the last step.
    return dataclasses.replace(self, indices=self.indices[:steps], sizes=self.sizes[:steps])


def plan(batching: Batching, x: Any, seed: tf.Tensor, round_seed: tf.Tensor | None = None) -> Plan:
  """Draws a client's batches for one round.

  Args:
    batching: How the examples are divided into batches of B = `batch_size`.
    x: The client's inputs [n, ...], or a structure of them.
    seed: int32 [2], depends on the client and the round.
    round_seed: int32 [2], the same for all clients. Only `random_local_steps` uses and needs it.

  Returns:
    A plan of epochs * ceil(n / B) steps, or of `drawn_steps` with `local_steps`; empty if n is 0.
  """
  epochs = batching.epochs
  n = num_rows(x)
  if batching.local_steps is not None:
    most = tf.where(n > 0, batching.drawn_steps(round_seed), 0)
    each: Any = 1  # Steps of a pass.
    if batching.batch_size is not None:
      # Rounded up; 1 for a client without examples, because the number of steps is divided by it.
      each = tf.maximum(-(-n // batching.batch_size), 1)
    return _passes(batching, x, seed, -(-most // each)).first(most)
  return _passes(batching, x, seed, epochs)


def num_rows(x: Any) -> tf.Tensor:
  """Returns n, int32, of a tensor [n, ...] or a structure of such tensors."""
  return tf.shape(tf.nest.flatten(x)[0])[0]


def continued(batching: Batching, x: Any, seed: tf.Tensor, round_number: tf.Tensor) -> Plan:
  """Draws a client's batches for a round that continues the passes of earlier rounds.

  Args:
    batching, x: See `plan`; `continue_batches` is true.
    seed: int32 [2], depends on the client and is the same in each round.
    round_number: t, int32, from 1.

  Returns:
    The plan. It has `local_steps` steps if n > 0, else 0.
  """
  assert batching.local_steps is not None
  assert batching.batch_size is not None
  n = num_rows(x)
  most = batching.local_steps
  # 64 bits, because t K may exceed the largest int32.
  each = tf.cast(tf.maximum(-(-n // batching.batch_size), 1), tf.int64)
  start = (tf.cast(round_number, tf.int64) - 1) * most
  passes = tf.range(start // each, -(-(start + most) // each))

  def one(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    one_pass = _passes(batching, x, seeds.fold(seed, number), 1)
    return one_pass.indices, one_pass.sizes

  specs = (tf.TensorSpec([None, batching.batch_size], tf.int32), tf.TensorSpec([None], tf.int32))
  indices, sizes = tf.map_fn(one, passes, fn_output_signature=specs)
  # The first pass may have begun in an earlier round, which took its first steps.
  skipped = start % each
  whole = Plan(
    tf.reshape(indices, [-1, batching.batch_size])[skipped:],
    tf.reshape(sizes, [-1])[skipped:],
    not batching.fill_last,
  )
  return whole.first(tf.where(n > 0, most, 0))


def _passes(batching: Batching, x: Any, seed: tf.Tensor, epochs: int | tf.Tensor) -> Plan:
  """Draws the batches of `epochs` passes over a client's examples."""
  n = num_rows(x)
  if batching.shuffle and batching.batch_size is not None:
    keys = tf.random.stateless_uniform([epochs, n], seeds.fold(seed, 1))
    if batching.unit_starts is not None:
      units = tf.cumsum(tf.cast(batching.unit_starts(x), tf.int32)) - 1
      # The examples of a unit have equal keys. The first example always begins a unit.
      keys = tf.gather(keys, tf.maximum(units, 0), axis=1)
    order = tf.argsort(keys, stable=True)
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
    # The numbers that are folded into the seed differ for order, filling and replacement.
    filling = tf.random.stateless_uniform(
      [epochs, missing], seeds.fold(seed, 2), maxval=tf.maximum(n, 1), dtype=tf.int32
    )
    last = size
  else:
    filling = tf.zeros([epochs, missing], tf.int32)
  indices = tf.reshape(tf.concat([order, filling], 1), [epochs * steps, size])
  # Not `==`, which compares Python objects in the plain graphs in which TFF traces.
  is_last = tf.equal((tf.range(epochs * steps) + 1) % tf.maximum(steps, 1), 0)
  return Plan(indices, tf.where(is_last, last, size), not batching.fill_last)
