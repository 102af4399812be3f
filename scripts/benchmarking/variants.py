"""The ways to do a round, each as an object with `round(r)`; one child process runs one."""

import collections
import functools
import os
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from scripts.benchmarking import hand_loop, local_workers, mergeable, works
from tff_adaptive import algorithms, batching, cohorts, execution, mixed_precision, threads


def build(variant: str, work: works.Work, data_dir: str, device: str = 'auto') -> Any:
  """Builds a variant by name.

  Args:
    variant: As `works.split_variant` takes it.
    work: The work.
    data_dir: Folder with real data, or ''.
    device: 'auto', 'cpu' or 'gpu'.

  Raises:
    ValueError: If there is no such variant.
  """
  name, options = works.split_variant(variant)
  kind, _, context = name.partition('_')
  if device == 'cpu':
    execution.hide_gpus()
  if context == 'native':
    execution.set_native_context()
  elif context == 'graph':
    together = {'single': 1, 'together': work.cohort}
    asked = next((together[option] for option in options if option in together), None)
    execution.set_graph_context(clients_per_step=asked, device=device)
  elif context.startswith('workers'):
    workers = local_workers.LocalWorkers(int(context[len('workers') :]))
    execution.set_remote_context(workers.addresses)
  elif context.startswith('mergeable'):
    workers = local_workers.LocalWorkers(int(context[len('mergeable') :]))
    tff.framework.set_default_context(mergeable.context(workers.addresses))
  elif kind == 'hand':
    threads.one_an_operation(threads.side_by_side())  # As the graph engine does.
  clients = _SyntheticClients(work) if work.task is None else _TaskClients(work, data_dir)
  if kind == 'vmap':
    os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
    if device == 'cpu':
      os.environ['JAX_PLATFORMS'] = 'cpu'
    from scripts.benchmarking import vmap_loop  # JAX, where it is installed.

    return vmap_loop.Rounds(work, clients.load, clients.population)
  if kind == 'ours':
    return _Ours(work, clients, options)
  return {'stock': _Stock, 'hand': _Hand}[kind](work, clients)


class _SyntheticClients:
  """Clients of W1 to W5; their arrays, tensors or datasets are made before the first round."""

  def __init__(self, work):
    self._work = work
    self.population = work.population
    self.model = functools.partial(works.build_model, work)
    pool = min(work.population, works.POOL)
    self._pool = [works.synthetic_client(work, client) for client in range(pool)]

  def load(self, client):
    return self._pool[client % len(self._pool)]

  def loader(self, convert):
    """`client -> convert(arrays)`, converted once."""
    converted = [convert(data) for data in self._pool]
    return lambda client: converted[client % len(converted)]

  def stock(self):
    return works.stock_model_fn(self._work), self.loader(self._dataset)

  def _dataset(self, data):
    if self._work.name == 'W5':
      data = (data['x'], data['y'].astype(np.int64))  # As TFF's task has them.
    data = tf.data.Dataset.from_tensor_slices(data).repeat(self._work.epochs)
    return data.batch(self._work.batch_size)


class _TaskClients:
  """Clients of a task on real data, loaded anew each round; stock: TFF's own baseline task."""

  def __init__(self, work, data_dir):
    import tasks

    self._work = work
    self._data_dir = data_dir
    self._task = tasks.load(work.task, data_dir=data_dir, **dict(work.task_options))
    self._ids = self._task.train.client_ids
    self.population = len(self._ids)
    self.model = functools.partial(self._task.build_model, 1)

  def load(self, client):
    return self._task.train.load(self._ids[client])

  def stock(self):
    baselines = tff.simulation.baselines
    spec = baselines.ClientSpec(num_epochs=1, batch_size=self._work.batch_size)
    if self._work.task == 'shakespeare':
      task = baselines.shakespeare.create_character_prediction_task(
        spec, sequence_length=80, cache_dir=self._data_dir
      )
    else:
      task = baselines.emnist.create_character_recognition_task(
        spec,
        model_id='cnn_dropout',
        only_digits=dict(self._work.task_options).get('only_digits', False),
        cache_dir=self._data_dir,
      )
    train = task.datasets.train_data.preprocess(task.datasets.train_preprocess_fn)
    return task.model_fn, lambda client: train.create_tf_dataset_for_client(self._ids[client])


class _Stock:
  """`tff.learning.algorithms.build_weighted_fed_avg`."""

  def __init__(self, work, clients):
    self._work, self._population = work, clients.population
    model_fn, self._dataset = clients.stock()
    self._process = tff.learning.algorithms.build_weighted_fed_avg(
      model_fn, client_optimizer_fn=tff.learning.optimizers.build_sgdm(work.rate)
    )
    self._state = self._process.initialize()

  def round(self, r):
    ids = works.cohort(self._work, self._population, r)
    output = self._process.next(self._state, [self._dataset(c) for c in ids])
    self._state = output.state
    return [np.asarray(w) for w in output.state.global_model_weights.trainable[:1]]


class _Ours:
  """This project's FedAvg."""

  def __init__(self, work, clients, options):
    self._work, self._clients = work, clients
    model = clients.model()
    for dtype in {*options} & {*mixed_precision.DTYPES}:
      model = mixed_precision.convert(model, dtype)
    self._process = algorithms.build_fed_avg(
      model,
      xla='xla' in options,
      client_learning_rate=work.rate,
      batching=batching.Batching(work.batch_size, work.epochs),
    )
    self._state = self._process.initialize()

  def round(self, r):
    ids = works.cohort(self._work, self._clients.population, r)
    cohort = [[collections.OrderedDict(self._clients.load(c), client=np.int32(c))] for c in ids]
    order = cohorts.working_order([len(data['y']) for (data,) in cohort])
    output = self._process.next(self._state, [cohort[i] for i in order])
    self._state = output.state
    return [np.asarray(w) for w in output.state.global_model_weights.trainable[:1]]


class _Hand:
  """The loop by hand (synthetic works only)."""

  def __init__(self, work, clients):
    self._work, self._population = work, clients.population
    self._tensors = clients.loader(lambda d: (tf.constant(d['x']), tf.constant(d['y'])))
    model = clients.model()
    self._weights = [tf.constant(w) for w in model.initial_weights[0]]
    self._round = hand_loop.build(model, work)

  def round(self, r):
    ids = works.cohort(self._work, self._population, r)
    pairs = [self._tensors(c) for c in ids]
    x, y = tf.stack([p[0] for p in pairs]), tf.stack([p[1] for p in pairs])
    seeds = tf.constant([r * 1000 + c for c in ids], tf.int32)
    self._weights = list(self._round(self._weights, x, y, seeds))
    return [self._weights[0].numpy()]
