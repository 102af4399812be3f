"""The ways to do a round, each as a function of its number; one child process runs one."""

import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import engine
from tff_adaptive._utils import client_references
from tff_adaptive.client import client_arrays
from tff_adaptive.devices import placement, threads
from tff_adaptive.training import cohorts

from . import names, workloads

Round = Callable[[int], Any]


def build(variant: str, workload: workloads.Workload, device: str = 'auto') -> Round:
  """Builds a variant by name."""
  name, options = names.split_variant(variant)
  kind, _, context = name.partition('_')
  if device == 'cpu':
    placement.hide_gpus()
  if context == 'native':
    engine.set_native_context()
  elif context == 'graph':
    together = {'single': 1, 'together': workload.cohort}
    asked = next((together[option] for option in options if option in together), None)
    results = 'tensors' if 'tensors' in options else 'numpy'
    engine.set_graph_context(clients_per_step=asked, device=device, results=results)
  elif context == 'subrounds':
    engine.set_subround_context()
  elif context.startswith('ray'):
    engine.set_ray_context(workers=int(context.removeprefix('ray')))
  else:
    threads.one_an_operation(threads.side_by_side())  # As the graph engine does.
  return {'stock': _stock, 'ours': _ours, 'hand': _by_hand}[kind](workload, options)


@dataclasses.dataclass(frozen=True)
class _Clients:
  """The clients of a workload, as workers load them; they are made before the first round."""

  pool: Sequence[Any]

  def load(self, client: int) -> Any:
    return self.pool[client % len(self.pool)]


def _of_process(process: Any, cohort: Callable[[int], list[Any]]) -> Round:
  """The rounds of a TFF process, given what the clients have in each."""
  state = process.initialize()

  def do_round(r: int) -> Any:
    nonlocal state
    state = process.next(state, cohort(r)).state
    return np.asarray(state.global_model_weights.trainable[0])  # It may be on a GPU.

  return do_round


def _stock(workload: workloads.Workload, options: Collection[str]) -> Round:
  """`tff.learning.algorithms.build_weighted_fed_avg`."""
  del options
  process = tff.learning.algorithms.build_weighted_fed_avg(
    workloads.stock_model_fn(workload),
    client_optimizer_fn=tff.learning.optimizers.build_sgdm(workload.rate),
  )

  def dataset(data: Any) -> tf.data.Dataset:
    slices = data
    if workload.name == 'W5':
      slices = (data['x'], data['y'].astype(np.int64))  # As TFF's task has them.
    slices = tf.data.Dataset.from_tensor_slices(slices)
    return slices.repeat(workload.epochs).batch(workload.batch_size)

  clients = _Clients([dataset(data) for data in workloads.clients(workload)])
  return _of_process(process, lambda r: [*map(clients.load, workloads.cohort(workload, r))])


def _ours(workload: workloads.Workload, options: Collection[str]) -> Round:
  """This project's FedAvg."""
  clients = _Clients(workloads.clients(workload))
  source = cohorts.ClientSource(clients, None)  # type: ignore[arg-type]  # Ids are numbers.
  workers = client_references.workers()
  by_reference = workers is not None and workers.accepts(source)

  def client(c: int) -> Any:
    data = clients.load(c)
    if by_reference:  # As in a run: the workers have the data.
      return client_references.ClientReference(source, (c, c, ()), len(data['y']))
    return client_arrays(data['x'], data['y'], c)

  process = workloads.build_process(workload, options)
  return _of_process(process, lambda r: [*map(client, workloads.cohort(workload, r))])


def _by_hand(workload: workloads.Workload, options: Collection[str]) -> Round:
  """A round of federated averaging as a TensorFlow function: what TensorFlow itself can reach.

  No TFF, no metrics, no shuffling, no unequal clients: gradients, SGD and a weighted mean, in one
  graph, with several clients in work at once.
  """
  del options
  model = workloads.build_model(workload)
  size = workload.batch_size
  batches = workload.examples // size
  # As fast as it gets for each workload: sums carried from client to client, up to ten of which
  # are in work at once, or all updates held and two clients at once.
  carries_sums = workload.name in ('W2', 'W4')

  def step(weights: list, x: tf.Tensor, y: tf.Tensor, seed: tf.Tensor) -> list[tf.Tensor]:
    with tf.GradientTape() as tape:
      tape.watch(weights)
      loss = tf.reduce_mean(model.example_loss(model.forward(tuple(weights), x, True, seed), y))
    gradients = tape.gradient(loss, weights)
    return [w - workload.rate * tf.convert_to_tensor(g) for w, g in zip(weights, gradients)]

  def train(start: Sequence, x: tf.Tensor, y: tf.Tensor, seed: tf.Tensor) -> list[tf.Tensor]:
    x = tf.reshape(x, [batches, size, *x.shape[1:]])
    y = tf.reshape(y, [batches, size, *y.shape[1:]])
    steps = batches * workload.epochs
    _, weights = tf.while_loop(
      lambda i, _: i < steps,
      lambda i, weights: (
        i + 1,
        step(weights, tf.gather(x, i % batches), tf.gather(y, i % batches), tf.stack([seed, i])),
      ),
      (tf.constant(0), list(start)),
      parallel_iterations=1,
    )
    return [(new - old) * float(workload.examples) for new, old in zip(weights, start)]

  def run_round(weights: Sequence, x: tf.Tensor, y: tf.Tensor, seeds: tf.Tensor) -> list[tf.Tensor]:
    total = float(workload.examples * workload.cohort)
    if carries_sums:
      _, sums = tf.while_loop(
        lambda j, _: j < workload.cohort,
        lambda j, sums: (
          j + 1,
          [s + d for s, d in zip(sums, train(weights, x[j], y[j], seeds[j]))],
        ),
        (tf.constant(0), [tf.zeros_like(w) for w in weights]),
        parallel_iterations=10,
      )
    else:
      deltas = tf.map_fn(
        lambda client: tuple(train(weights, *client)),
        (x, y, seeds),
        parallel_iterations=2,
        fn_output_signature=tuple(tf.TensorSpec(w.shape, w.dtype) for w in weights),
      )
      sums = [tf.reduce_sum(d, 0) for d in deltas]
    return [w + s / total for w, s in zip(weights, sums)]

  run = tf.function(run_round, autograph=False)
  pairs = [(tf.constant(d['x']), tf.constant(d['y'])) for d in workloads.clients(workload)]
  weights = [tf.constant(w) for w in model.initial_weights[0]]

  def do_round(r: int) -> Any:
    nonlocal weights
    ids = workloads.cohort(workload, r)
    x, y = map(tf.stack, zip(*[pairs[c % len(pairs)] for c in ids]))
    weights = list(run(weights, x, y, tf.constant([r * 1000 + c for c in ids], tf.int32)))
    return weights[0].numpy()

  return do_round
