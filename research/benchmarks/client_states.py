"""Measures what client states cost on Ray, if the trainer keeps them or if workers store them.

usage: python -m research.benchmarks.client_states [ROUNDS]

A line has the seconds of a round, of a checkpoint after it, and the processor seconds of both in all
processes, which other work on the machine changes less.

A round trains 100 clients of the CNN of EMNIST (W1 of the benchmark), each with 100 examples, on
two Ray workers of this machine. A client's state of FedDyn has the size of the model, 4.8 MB. The
three ways take turns, round by round: FedAvg without states, FedDyn with states that pass through
the trainer, and FedDyn with states in shards, which the workers read and write.
"""

import collections
import dataclasses
import os
import statistics
import sys
import tempfile
import time

import psutil

from tff_adaptive import algorithms, corrections, engine
from tff_adaptive._utils import client_references
from tff_adaptive.client import Batching, ClientTraining
from tff_adaptive.runs import sharded_store
from tff_adaptive.training import cohorts

from . import machine, workloads

CLIENTS = 100
WORKLOAD = dataclasses.replace(workloads.WORKLOADS['W1'], cohort=CLIENTS, population=CLIENTS)
IDS = [str(client) for client in range(CLIENTS)]


class Clients:
  """The workload's clients, which the workers load by their ids."""

  def __init__(self):
    self._of_client = dict(zip(IDS, workloads.clients(WORKLOAD)))

  def load(self, client_id):
    return self._of_client[client_id]


def build(name):
  """Builds a process of this project for the workload."""
  batching = Batching(WORKLOAD.batch_size, WORKLOAD.epochs)
  return algorithms.build_process(
    name,
    workloads.build_model(WORKLOAD),
    clients=corrections.RegisteredClients(CLIENTS, WORKLOAD.examples),
    client_learning_rate=WORKLOAD.rate,
    training=ClientTraining(batching=batching),
  )


def processor_seconds():
  """Returns the processor seconds that this process and those of its cluster have used."""
  here = psutil.Process()
  total = 0.0
  for process in [here, *here.children(recursive=True)]:
    try:
      used = process.cpu_times()
    except psutil.Error:  # It has just ended.
      continue
    total += used.user + used.system
  return total


class Way:
  """One way to do a round."""

  def __init__(self, process, cohort, store=None):
    self._process, self._cohort, self._store = process, cohort, store
    self._state = process.initialize()
    self._round = 0

  def run(self):
    """Does a round, and returns the seconds for the round and for a checkpoint after it."""
    self._round += 1
    began = time.perf_counter()
    if self._store is None:
      self._state = self._process.next(self._state, self._cohort).state
      return time.perf_counter() - began, 0.0
    before = self._store.get(IDS)
    self._state, after, _ = self._process.next(self._state, before, self._cohort)
    self._store.put(IDS, after, self._round)
    trained = time.perf_counter()
    self._store.commit(self._round, self._state)
    return trained - began, time.perf_counter() - trained


def main(rounds):
  processes = {name: build(name) for name in ('fed_avg', 'fed_dyn')}
  workers = engine.set_ray_context('local', workers=2, subrounds=8)
  source = cohorts.ClientSource(Clients(), None)
  assert workers.accepts(source)
  cohort = [
    client_references.ClientReference(source, (client_id, number, ()), WORKLOAD.examples)
    for number, client_id in enumerate(IDS)
  ]
  with tempfile.TemporaryDirectory(dir='.') as folder:
    ways = {'no states (FedAvg)': Way(processes['fed_avg'], cohort)}
    process = processes['fed_dyn']
    for kind in ('memory', 'shards'):
      os.mkdir(os.path.join(folder, kind))
      path = os.path.join(folder, kind, 'state.sqlite')
      store = sharded_store.open_store(path, process.initial_client_state, kind, workers=workers)
      ways[kind] = Way(process, cohort, store)
      print(f'{kind}: {store.state_bytes:,} bytes a client', flush=True)
    seconds = collections.defaultdict(list)
    for _ in range(1 + rounds):
      for name, way in ways.items():
        before = processor_seconds()
        seconds[name].append((*way.run(), processor_seconds() - before))
        print(name, *(f'{value:.2f}' for value in seconds[name][-1]), flush=True)
  print(machine.describe())
  for name, pairs in seconds.items():
    of_round, of_checkpoint, of_processors = zip(*pairs[1:])
    print(
      f'{name}: round {statistics.median(of_round):.2f} s (min {min(of_round):.2f}),'
      f' checkpoint {statistics.median(of_checkpoint):.2f} s (min {min(of_checkpoint):.2f}),'
      f' processor seconds {statistics.median(of_processors):.2f} (min {min(of_processors):.2f})'
    )
  workers.close()


if __name__ == '__main__':
  main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
