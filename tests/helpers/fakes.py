"""A federated process in NumPy, quick enough to run a thousand rounds in a test."""

import collections
import contextlib
import csv
import dataclasses
import os
import signal
import sys
import time
from typing import NamedTuple
from unittest import mock

import numpy as np

from scripts.cli import signals
from tff_adaptive import training
from tff_adaptive._utils import atomic_files
from tff_adaptive.reports import figures
from tff_adaptive.runs import state_store


class ServerState(NamedTuple):
  global_model_weights: tuple
  inference_weights: tuple
  round_number: np.ndarray


class StatefulProcess:
  """Gradient descent towards each client's mean, with a memory of past gradients."""

  def __init__(self, delay=0.0, poison_round=None):
    self._delay = delay
    self._poison_round = poison_round
    self.initial_client_state = collections.OrderedDict(
      h=np.zeros(3, np.float32), last_round=np.int32(-1)
    )

  def initialize(self):
    zeros = (np.zeros(3, np.float32),)
    return ServerState(zeros, zeros, np.int32(0))

  def next(self, server_state, client_states, cohort):
    time.sleep(self._delay)
    (weights,) = server_state.global_model_weights
    t = int(server_state.round_number)
    new_states = []
    updates = []
    for state, (data,) in zip(client_states, cohort):
      gradient = weights - data['x'].mean(0) - np.float32(0.1) * state['h']
      updates.append(-np.float32(0.3) * gradient)
      new_states.append(collections.OrderedDict(h=state['h'] + gradient, last_round=np.int32(t)))
    mean = np.mean(updates, axis=0, dtype=np.float32)
    if t + 1 == self._poison_round:
      mean = mean * np.float32(np.nan)
    weights = (weights + mean,)
    metrics = collections.OrderedDict(
      client_work=collections.OrderedDict(
        train=collections.OrderedDict(loss=np.float32(np.square(mean).sum()))
      ),
      finalizer=(),
    )
    inference = (weights[0] * np.float32(0.5),)
    return ServerState(weights, inference, np.int32(t + 1)), new_states, metrics


class StatelessOutput(NamedTuple):
  state: ServerState
  metrics: dict


class StatelessProcess:
  """The same without memory, in the form of a LearningProcess."""

  def __init__(self, **options):
    self._process = StatefulProcess(**options)

  def initialize(self):
    return self._process.initialize()

  def next(self, state, cohort):
    before = [self._process.initial_client_state] * len(cohort)
    state, _, metrics = self._process.next(state, before, cohort)
    return StatelessOutput(state, metrics)


class MeasuringProcess(StatelessProcess):
  """Measures the norms of updates, as `aggregation.ClientNormsFactory` does."""

  def next(self, state, cohort):
    output = super().next(state, cohort)
    norms = [
      np.linalg.norm(data['x'].mean(0) - state.global_model_weights[0]) for (data,) in cohort
    ]
    measured = {'client_norms': np.array(norms, np.float32), 'aggregate': ()}
    return output._replace(metrics={**output.metrics, 'aggregator': measured})


class Clients:
  """Twenty clients with two to six examples each."""

  client_ids = tuple(f'c{i:02d}' for i in range(20))

  def num_examples(self, client_id):
    return 2 + int(client_id[1:]) % 5

  def load(self, client_id):
    i = int(client_id[1:])
    rng = np.random.default_rng(i)
    n = self.num_examples(client_id)
    x = rng.normal(i, 1, (n, 3)).astype(np.float32)
    return collections.OrderedDict(x=x, y=np.zeros(n, np.int32))


def evaluate(weights):
  return {'loss': float(np.square(weights[0]).sum()), 'accuracy': 0.5}


_FIELDS = {field.name for field in dataclasses.fields(training.TrainingConfig)}


def no_figures():
  """A context in which runs draw nothing: that takes longer than a small run."""
  empty = mock.Mock(side_effect=lambda path, rows, title='': atomic_files.write_text(path, ''))
  return mock.patch.object(figures, 'draw_run', empty)


def train(folder, rounds=20, process=None, clients=None, evaluate=evaluate, draws=False, **options):
  """`training.train`; its options, and those of its config, may be given."""
  config = dict(clients_per_round=5, seed=3, rounds_per_evaluation=3, rounds_per_checkpoint=4)
  config.update((name, options.pop(name)) for name in _FIELDS & set(options))
  with contextlib.ExitStack() as stack:
    if not draws:
      stack.enter_context(no_figures())
    return training.train(
      process or StatefulProcess(),
      clients or Clients(),
      evaluate,
      training.TrainingConfig(rounds=rounds, **config),
      output_dir=folder and str(folder),
      **{'show_progress': False, **options},
    )


def rows(folder):
  """Returns metrics.csv as text, without its wall-clock columns."""
  with open(os.path.join(folder, 'metrics.csv'), newline='', encoding='utf-8') as file:
    table = list(csv.DictReader(file))
  for row in table:
    for column in list(row):
      if column.startswith('seconds_'):
        del row[column]
  return table


def saved(folder):
  """Returns the last checkpoint's round, and each client's state."""
  process = StatefulProcess()
  path = os.path.join(folder, 'checkpoints', 'state.sqlite')
  with state_store.ClientStateStore(path, process.initial_client_state) as store:
    checkpoint = store.restore(process.initialize())
    return checkpoint.round_number, dict(zip(Clients.client_ids, store.get(Clients.client_ids)))


class _Begun(training.Callback):
  """Says when the first round begins: from then on a signal meets a round."""

  def begin(self, run):
    self._say = run.say

  def round_begin(self, number):
    if number == 1:
      self._say('Round 1 begins.')


def train_until_a_signal(folder, delay, pipe):
  """Trains without end in a process of its own, whose standard error goes to a named pipe."""
  signal.signal(signal.SIGHUP, signal.SIG_DFL)  # Under nohup it is ignored, and stays so.
  os.dup2(os.open(pipe, os.O_WRONLY), 2)
  with signals.StopGuard() as stop:
    stop.on_abort.append(lambda: os.write(2, b'Ended.\n'))
    process = StatefulProcess(delay=delay)
    audience = [_Begun()]
    result = train(folder, 10**6, process, callbacks=audience, stop=stop, show_progress=True)
  sys.exit(0 if result.is_complete else 3)
