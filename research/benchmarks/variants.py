"""The ways to do a round, each as an object with `round(r)`; one child process runs one."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

import tff_adaptive_tasks as tasks
from tff_adaptive import algorithms, costs, engine, population, registry, training
from tff_adaptive._utils import client_references
from tff_adaptive.client import ClientTraining, batching, client_arrays
from tff_adaptive.devices import placement, threads
from tff_adaptive.models import mixed_precision
from tff_adaptive.runs import state_store
from tff_adaptive.training import cohorts, older, rounds

from . import names, workloads

Arrays: TypeAlias = Mapping[str, np.ndarray]  # A client's x and y.


def build(variant: str, workload: workloads.Workload, data_dir: str, device: str = 'auto') -> Any:
  """Builds a variant by name."""
  name, options = names.split_variant(variant)
  kind, _, context = name.partition('_')
  if device == 'cpu':
    placement.hide_gpus()
  if context == 'native':
    engine.set_native_context()
  elif kind == 'run' and 'ray2' in options:
    engine.set_ray_context(workers=2)
  elif context == 'graph' or kind == 'run':
    together = {'single': 1, 'together': workload.cohort}
    asked = next((together[option] for option in options if option in together), None)
    results = 'tensors' if 'tensors' in options else 'numpy'
    engine.set_graph_context(clients_per_step=asked, device=device, results=results)
  elif context == 'subrounds':
    engine.set_subround_context()
  elif context.startswith('ray'):
    engine.set_ray_context(workers=int(context[len('ray') :]))
  elif kind == 'hand':
    threads.one_an_operation(threads.side_by_side())  # As the graph engine does.
  if 'lstm' in options:
    lstm = ('lstm', 'compiled')
    workload = dataclasses.replace(workload, task_options=(*workload.task_options, lstm))
  clients: Clients = (
    _TaskClients(workload.task, workload, data_dir)
    if workload.task
    else _SyntheticClients(workload)
  )
  if kind == 'run':
    size = int(context.removeprefix('buffered') or workload.cohort)
    return _Run(workload, clients, size, bool(context))
  if kind == 'ours':
    return _Ours(workload, clients, options)
  if kind == 'stock':
    return _Stock(workload, clients)
  if not isinstance(clients, _SyntheticClients) or not workload.is_by_hand:
    raise ValueError(f'{variant} is for synthetic workloads, found {workload.name}')
  return _Hand(workload, clients)


class _SyntheticClients:
  """Clients without a task; their arrays, tensors or datasets are made before the first round."""

  def __init__(self, workload: workloads.Workload) -> None:
    self._workload = workload
    self.population = workload.population
    self.model = functools.partial(workloads.build_model, workload)
    self._pool = [workloads.synthetic_client(workload, c) for c in range(workload.pool)]

  def load(self, client: int) -> Arrays:
    return self._pool[client % len(self._pool)]

  def loader(self, convert: Callable[[Arrays], Any]) -> Callable[[int], Any]:
    """`client -> convert(arrays)`, converted once."""
    converted = [convert(data) for data in self._pool]
    return lambda client: converted[client % len(converted)]

  def stock(self) -> tuple[Callable[[], Any], Callable[[int], tf.data.Dataset]]:
    return workloads.stock_model_fn(self._workload), self.loader(self._dataset)

  def _dataset(self, data: Arrays) -> tf.data.Dataset:
    slices: Any = data
    if self._workload.name == 'W5':
      slices = (data['x'], data['y'].astype(np.int64))  # As TFF's task has them.
    dataset = tf.data.Dataset.from_tensor_slices(slices).repeat(self._workload.epochs)
    return dataset.batch(self._workload.batch_size)


class _TaskClients:
  """Clients of a task on real data, loaded anew each round; stock: TFF's own baseline task."""

  def __init__(self, task: str, workload: workloads.Workload, data_dir: str) -> None:
    self._workload = workload
    self._data_dir = data_dir
    self._task = tasks.load(task, data_dir=data_dir, **dict(workload.task_options))
    self._ids = self._task.train.client_ids
    self.population = len(self._ids)
    self.model = functools.partial(self._task.build_model, 1)

  def load(self, client: int) -> Arrays:
    return self._task.train.load(self._ids[client])

  def stock(self) -> tuple[Callable[[], Any], Callable[[int], tf.data.Dataset]]:
    baselines = tff.simulation.baselines
    spec = baselines.ClientSpec(num_epochs=1, batch_size=self._workload.batch_size)
    if self._workload.task == 'shakespeare':
      task = baselines.shakespeare.create_character_prediction_task(
        spec, sequence_length=80, cache_dir=self._data_dir
      )
    else:
      task = baselines.emnist.create_character_recognition_task(
        spec,
        model_id='cnn_dropout',
        only_digits=dict(self._workload.task_options).get('only_digits', False),
        cache_dir=self._data_dir,
      )
    train = task.datasets.train_data.preprocess(task.datasets.train_preprocess_fn)
    return task.model_fn, lambda client: train.create_tf_dataset_for_client(self._ids[client])


Clients: TypeAlias = _SyntheticClients | _TaskClients


class _Stock:
  """`tff.learning.algorithms.build_weighted_fed_avg`."""

  def __init__(self, workload: workloads.Workload, clients: Clients) -> None:
    self._workload, self._population = workload, clients.population
    model_fn, self._dataset = clients.stock()
    self._process = tff.learning.algorithms.build_weighted_fed_avg(
      model_fn, client_optimizer_fn=tff.learning.optimizers.build_sgdm(workload.rate)
    )
    self._state = self._process.initialize()

  def round(self, r: int) -> list[np.ndarray]:
    ids = workloads.cohort(self._workload, self._population, r)
    output = self._process.next(self._state, [self._dataset(c) for c in ids])
    self._state = output.state
    return [np.asarray(w) for w in output.state.global_model_weights.trainable[:1]]


class _Ours:
  """This project's FedAvg."""

  def __init__(
    self, workload: workloads.Workload, clients: Clients, options: Sequence[str]
  ) -> None:
    self._workload, self._clients = workload, clients
    model = clients.model()
    for dtype in {*options} & {*mixed_precision.DTYPES}:
      model = mixed_precision.convert(model, dtype)
    batches = batching.Batching(workload.batch_size, workload.epochs)
    how = ClientTraining(batching=batches, xla='xla' in options)
    rate = workload.rate
    self._process = algorithms.build_fed_avg(model, client_learning_rate=rate, training=how)
    self._state = self._process.initialize()
    self._source = cohorts.ClientSource(clients, None)  # type: ignore[arg-type]  # Ids are numbers.
    workers = client_references.workers()
    self._by_reference = workers is not None and workers.accepts(self._source)

  def round(self, r: int) -> list[np.ndarray]:
    ids = workloads.cohort(self._workload, self._clients.population, r)
    data = [self._clients.load(c) for c in ids]
    cohort: list[Any]
    if self._by_reference:  # As in a run: the workers have the data.
      cohort = [
        client_references.ClientReference(self._source, (c, c, None), len(d['y']))
        for d, c in zip(data, ids)
      ]
    else:
      cohort = [client_arrays(d['x'], d['y'], c) for d, c in zip(data, ids)]
    order = cohorts.working_order([len(d['y']) for d in data])
    output = self._process.next(self._state, [cohort[i] for i in order])
    self._state = output.state
    return [np.asarray(w) for w in output.state.global_model_weights.trainable[:1]]


class _Run:
  """FedAvg as `training.train` has it, of clients of unequal speed; a round is `cohort` updates.

  Synchronous, or with a buffer: then as many clients as a cohort has are always training.
  """

  def __init__(
    self, workload: workloads.Workload, clients: Clients, size: int, is_buffered: bool
  ) -> None:
    model = clients.model()
    pairs = [clients.load(c) for c in range(clients.population)]
    data = tasks.InMemoryClientData(
      {f'{c:06d}': (pair['x'], pair['y']) for c, pair in enumerate(pairs)}
    )
    config = training.TrainingConfig(
      rounds=10_000,
      clients_per_round=size,
      cost_model=costs.CostModel(registry.Counts(), model.num_parameters, workload.batch_size),
      population=population.Population(speed=population.Speed(speed_sigma=1.0)),
      synchrony=training.Buffered(workload.cohort) if is_buffered else None,
    )
    versions = training.older_models(config, data)
    how = ClientTraining(
      batching=batching.Batching(workload.batch_size, workload.epochs), versions=versions
    )
    process = algorithms.build_fed_avg(model, client_learning_rate=workload.rate, training=how)
    loader = cohorts.CohortLoader(data, config, cohorts.simulate(config, data))
    if (workers := client_references.workers()) is not None:
      loader.by_reference = workers.accepts(loader.source)
    store = state_store.ClientStateStore(None, ())
    self._trainer = rounds.Trainer(process, loader, store, config, lambda line: None)
    self._state = process.initialize()
    if versions:
      self._state = older.apart(self._state, versions)
    self._steps, self._number = workload.cohort // size, 0

  def round(self, r: int) -> list[np.ndarray]:
    del r
    for _ in range(self._steps):
      self._number += 1
      self._state = self._trainer.run(self._number, self._state).server_state
    return [np.asarray(w) for w in self._state.global_model_weights.trainable[:1]]


class _Hand:
  """The loop by hand (synthetic workloads only)."""

  def __init__(self, workload: workloads.Workload, clients: _SyntheticClients) -> None:
    self._workload, self._population = workload, clients.population
    self._tensors = clients.loader(lambda d: (tf.constant(d['x']), tf.constant(d['y'])))
    model = clients.model()
    self._weights = [tf.constant(w) for w in model.initial_weights[0]]
    self._round = _loop_by_hand(model, workload)

  def round(self, r: int) -> list[np.ndarray]:
    ids = workloads.cohort(self._workload, self._population, r)
    pairs = [self._tensors(c) for c in ids]
    x, y = tf.stack([p[0] for p in pairs]), tf.stack([p[1] for p in pairs])
    seeds = tf.constant([r * 1000 + c for c in ids], tf.int32)
    self._weights = list(self._round(self._weights, x, y, seeds))
    return [self._weights[0].numpy()]


def _loop_by_hand(model: Any, workload: workloads.Workload) -> Callable[..., list[tf.Tensor]]:
  """A round of federated averaging as a TensorFlow function: what TensorFlow itself can reach.

  No TFF, no metrics, no shuffling, no unequal clients: gradients, SGD and a weighted mean, in one
  graph, with several clients in work at once.

  Returns:
    `(weights, x [K, n, ...], y [K, n, ...], seeds [K]) -> weights`.
  """
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

  return tf.function(run_round, autograph=False)
