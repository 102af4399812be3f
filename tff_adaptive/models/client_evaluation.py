"""Evaluates models on many clients, with results for each client, in one pass over the data."""

import concurrent.futures as futures
import functools
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
) -> Callable[[Sequence[Any], Iterable[Arrays]], dict[str, np.ndarray]]:
  """Builds the evaluation of models on clients.

  Clients share batches, so 1,000 clients of 10 examples take as long as one client of 10,000.

  Args:
    model: The model.
    batch_size: Number of examples evaluated at once, which may come from several clients. A model
      with `couples_examples` is evaluated on one client at a time.

  Returns:
    `(weight_sets, clients) -> sums`. `weight_sets` has W sets of trainable weights. `clients` is an
    iterable of C `OrderedDict(x, y)`, one for each client, which is read once. `sums` has, by the
    name of a metric, float64 [W, C, 2], the numerator and the denominator of each set and client,
    or [W, C, K] for a `SumMetric`. `Model.metric_value` makes the metric of them, or of their sums
    over clients.
  """
  specs = tuple(tf.TensorSpec(w.shape, w.dtype) for w in model.initial_weights[0])
  owner_spec = tf.TensorSpec([None], tf.int32)

  @tf.function(input_signature=(specs, *model.input_spec.values(), owner_spec), autograph=False)
  def batch_sums(weights: Any, x: tf.Tensor, y: tf.Tensor, owners: tf.Tensor) -> tf.Tensor:
    predictions = model.forward(tuple(weights), x, False, None)
    losses = model.example_loss(predictions, y)
    pairs = [(losses, None)]
    pairs += [metric(predictions, y) for metric in model.metric_fns.values()]
    columns = []
    for numerator, denominator in pairs:
      if denominator is None:
        denominator = tf.ones_like(numerator)
      columns += [numerator, denominator]
    tables = [tf.stack([tf.cast(column, tf.float32) for column in columns], -1)]
    for metric in model.sum_metrics.values():
      contributions = tf.cast(metric.contribution(predictions, y), tf.float32)
      tables.append(tf.ensure_shape(contributions, [None, metric.size]))
    # Owners are sorted: equal bits each time.
    return tf.math.segment_sum(tf.concat(tables, -1), owners)

  # The columns of a table of sums, metric by metric.
  sizes_of_metrics = [2] * len(model.trained_metric_names)
  sizes_of_metrics += [metric.size for metric in model.sum_metrics.values()]

  # Concrete, because that of a program's fifth evaluation would warn of retracing.
  traced = functools.cache(batch_sums.get_concrete_function)

  def evaluate(weight_sets: Sequence[Any], clients: Iterable[Arrays]) -> dict[str, np.ndarray]:
    of_batch = traced()  # Not in the threads below, each of which would trace.
    tensor_sets = [tuple(map(tf.convert_to_tensor, weights)) for weights in weight_sets]
    shape = (len(tensor_sets), sum(sizes_of_metrics))
    of_chunks = [np.zeros((0, *shape))]

    def sums_of(batch: dict[str, np.ndarray]) -> np.ndarray:
      arrays = [tf.cast(batch[name], spec.dtype) for name, spec in model.input_spec.items()]
      # `segment_sum` counts from 0, and has a row for each owner up to the last.
      owners = tf.convert_to_tensor(batch['owner'] - batch['owner'][0])
      sums = [np.asarray(of_batch(w, *arrays, owners), np.float64) for w in tensor_sets]
      return np.stack(sums, 1)

    with futures.ThreadPoolExecutor(threads.side_by_side()) as pool:
      for chunk in _chunks(clients, _BATCHES_AT_ONCE * batch_size):
        total = np.zeros((len(chunk), *shape))
        batches = _batches(chunk, list(model.input_spec), batch_size, model.couples_examples)
        # In parallel, as an operation may have one thread; sums are added in order, for equal bits.
        for batch, sums in zip(batches, pool.map(sums_of, batches)):
          first = batch['owner'][0]
          total[first : first + len(sums)] += sums
        of_chunks.append(total)
    table = np.moveaxis(np.concatenate(of_chunks), 0, 1)
    parts = np.split(table, np.cumsum(sizes_of_metrics)[:-1], axis=-1)
    return dict(zip(model.metric_names, parts))

  return evaluate


def _batches(
  chunk: Sequence[Arrays], names: Sequence[str], batch_size: int, couples_examples: bool
) -> list[dict[str, np.ndarray]]:
  """Returns the clients' examples in batches, with `owner`, the client's place in the chunk."""
  whole = {}
  for name in names:
    whole[name] = np.concatenate([client[name] for client in chunk])
  sizes = [len(client['y']) for client in chunk]
  whole['owner'] = np.repeat(np.arange(len(chunk), dtype=np.int32), sizes)
  ends: Any = range(batch_size, sum(sizes) + batch_size, batch_size)
  if couples_examples:  # A batch is a client; clients without examples have none.
    ends = np.cumsum([size for size in sizes if size])
  batches = []
  for start, end in itertools.pairwise([0, *ends]):
    batches.append({name: array[start:end] for name, array in whole.items()})
  return batches


def _chunks(clients: Iterable[Arrays], least: int) -> Iterator[list[Arrays]]:
  """Yields lists of clients; each list but the last has at least `least` examples in all."""
  chunk: list[Arrays] = []
  held = 0
  for arrays in clients:
    chunk.append(arrays)
    held += len(arrays['y'])
    if held >= least:
      yield chunk
      chunk = []
      held = 0
  if chunk:
    yield chunk
