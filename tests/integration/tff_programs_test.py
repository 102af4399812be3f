"""TFF's own training loops with this project's FedYogi; memory over many rounds."""

import pathlib
import subprocess

import numpy as np
import psutil
import pytest
import tensorflow_federated as tff

from tests.helpers import engines, fresh, processes
from tff_adaptive import aggregation, engine as engine_lib


def cohort(round_number, size=3):
  """Clients and their numbers of examples change from round to round."""
  clients = [(round_number + i, 1 + (3 * round_number + i) % 6) for i in range(size)]
  return processes.whole(*clients)


def run_rounds(process, rounds):
  state = process.initialize()
  for t in range(1, rounds + 1):
    state = process.next(state, cohort(t)).state
  return state


def test_run_training_process_and_its_resumption(graph, tmp_path):
  process = processes.own(build_model=lambda: processes.keras_model)

  def train(rounds):
    return tff.simulation.run_training_process(
      process,
      cohort,
      rounds,
      program_state_manager=tff.program.FileProgramStateManager(tmp_path),
      metrics_managers=[tff.program.CSVFileReleaseManager(tmp_path / 'metrics.csv')],
    )

  engines.run(graph, train, 2)
  resumed = engines.run(graph, train, 4)
  engines.assert_same(resumed, engines.run(graph, run_rounds, process, 4), rtol=0, atol=0)
  table = (tmp_path / 'metrics.csv').read_text()
  assert 'client_work/train/loss' in table
  assert len(table.splitlines()) == 1 + 4


@pytest.mark.exhaustive
def test_a_robust_rule_aggregates_in_a_process_of_tff(graph):
  def build(**options):
    sgd = tff.learning.optimizers.build_sgdm(processes.RATE)
    return tff.learning.algorithms.build_weighted_fed_avg(processes.keras_model, sgd, **options)

  def change(process, clients):
    state = engines.run(graph, process.initialize)
    after = engines.run(graph, process.next, state, clients).state
    weights = [np.asarray(leaf) for leaf in after.global_model_weights.trainable]
    return [one - other for one, other in zip(weights, state.global_model_weights.trainable)]

  clients = processes.cohorts()[0]
  of_median = build(model_aggregator=aggregation.RuleFactory(aggregation.median))
  of_mean = build()
  alone = zip(*(change(of_mean, [client]) for client in clients))
  for actual, of_clients in zip(change(of_median, clients), alone):
    np.testing.assert_allclose(actual, np.median(of_clients, 0), rtol=1e-4, atol=1e-6)


def print_growth():
  """Prints by how many bytes each 100 rounds enlarge this process, after 100 others."""
  process = processes.own()
  memory = psutil.Process().memory_info

  def rounds(state, first, last):
    for t in range(first, last):
      state = process.next(state, cohort(t, size=1 + t % 4)).state
    return state

  with engine_lib.graph_context():
    state = rounds(process.initialize(), 0, 100)
    grown = []
    for first in (100, 200, 300):
      before = memory().rss
      state = rounds(state, first, first + 100)
      grown.append(memory().rss - before)
  print(*grown)


@pytest.mark.exhaustive
def test_memory_is_flat_over_many_rounds():
  program = 'from tests.integration import tff_programs_test as t; t.print_growth()'
  # A process of its own: other tests' memory and threads are not in it.
  command = [*fresh.python(), '-c', program]
  root = pathlib.Path(__file__).parents[2]
  done = subprocess.run(command, cwd=root, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  grown = [int(number) for number in done.stdout.split()]
  assert len(grown) == 3
  assert min(grown) < 2**20  # What allocators keep comes once; a leak goes on.
