"""Evaluates models on many clients, with results for each client, in one pass over the data."""

import concurrent.futures as futures
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from tff_adaptive.devices import threads
from tff_adaptive.models import model as model_lib

Arrays: TypeAlias = Mapping[str, np.ndarray]
_BATCHES_AT_ONCE = 16  # Batches in memory; a client with more examples is held whole.


def build_client_evaluation(
  model: model_lib.Model, batch_size: int = 500
) -> Callable[[Sequence[Any], Iterable[Arrays]], np.ndarray]:
  """Builds the evaluation of models on clients.

  Clients share batches, so 1,000 clients of 10 examples take as long as one client of 10,000.

  Args:
    model: The model.
    batch_size: Number of examples evaluated at once, which may come from several clients. A model
      with `couples_examples` is evaluated on one client at a time.

  Returns:
    `(weight_sets, clients) -> sums`. `weight_sets` has W sets of trainable weights. `clients` is an
    iterable of C `OrderedDict(x, y)`, one for each client, which is read once. `sums` is float64
    [W, C, M, 2]: for each set and each client, the numerator and the denominator of each of the
    model's M metrics, in the order of `metric_names`.
  """
  specs = tuple(tf.TensorSpec(w.shape, w.dtype) for w in model.initial_weights[0])
  owner_spec = tf.TensorSpec([None], tf.int32)

  @tf.function(input_signature=(specs, *model.input_spec.values(), owner_spec), autograph=False)
  def batch_sums(weights: Any, x: tf.Tensor, y: tf.Tensor, owners: tf.Tensor) -> tf.Tensor:
    predictions = model.forward(tuple(weights), x, False, None)
    losses = model.example_loss(predictions, y)
    columns = [losses, tf.ones_like(losses)]
    for metric in model.metric_fns.values():
      numerator, denominator = metric(predictions, y)
      columns += [numerator, tf.ones_like(numerator) if denominator is None else denominator]
    table = tf.stack([tf.cast(column, tf.float32) for column in columns], -1)
    return tf.math.segment_sum(table, owners)  # Owners are sorted: equal bits each time.

  def evaluate(weight_sets: Sequence[Any], clients: Iterable[Arrays]) -> np.ndarray:
    weight_sets = [tuple(tf.convert_to_tensor(w) for w in weights) for weights in weight_sets]
    shape = (len(weight_sets), len(model.metric_names), 2)
    found = [np.zeros((0, *shape))]

    def sums_of(batch: dict[str, np.ndarray]) -> np.ndarray:
      arrays = [tf.cast(batch[name], spec.dtype) for name, spec in model.input_spec.items()]
      owners = batch['owner'] - batch['owner'][0]
      return np.stack(
        [np.asarray(batch_sums(w, *arrays, owners), np.float64) for w in weight_sets], 1
      )

    with futures.ThreadPoolExecutor(threads.side_by_side()) as pool:
      for chunk in _chunks(clients, _BATCHES_AT_ONCE * batch_size):
        total = np.zeros((len(chunk), shape[0], 2 * shape[1]))
        whole = {name: np.concatenate([c[name] for c in chunk]) for name in model.input_spec}
        sizes = [len(c['y']) for c in chunk]
        whole['owner'] = np.repeat(np.arange(len(chunk), dtype=np.int32), sizes)
        ends: Any = range(batch_size, sum(sizes) + batch_size, batch_size)
        if model.couples_examples:
          ends = np.cumsum([size for size in sizes if size])
        batches = [
          {name: array[start:end] for name, array in whole.items()}
          for start, end in itertools.pairwise([0, *ends])
        ]
        # In parallel, as an operation may have one thread; sums are added in order, for equal bits.
        for batch, sums in zip(batches, pool.map(sums_of, batches)):
          first = batch['owner'][0]
          total[first : first + len(sums)] += sums
        found.append(total.reshape(len(chunk), *shape))
    return np.moveaxis(np.concatenate(found), 0, 1)

  return evaluate


def _chunks(clients: Iterable[Arrays], least: int) -> Iterator[list[Arrays]]:
  """Yields lists of clients; each list but the last has at least `least` examples in all."""
  chunk: list[Arrays] = []
  held = 0
  for arrays in clients:
    chunk.append(arrays)
    held += len(arrays['y'])
    if held >= least:
      yield chunk
      chunk, held = [], 0
  if chunk:
    yield chunk
