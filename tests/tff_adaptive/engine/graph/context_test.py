"""Single facts about the graph engine: traces, options, threads."""

import concurrent.futures as futures
import gc
import sys

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import engines, processes
from tff_adaptive import engine
from tff_adaptive.engine.graph import round_function


@pytest.fixture
def traces(monkeypatch):
  """A list that grows by one entry with each trace."""
  counted = []
  trace = round_function.RoundFunction.__call__

  def counting(self, *flat):
    counted.append(self)
    return trace(self, *flat)

  monkeypatch.setattr(round_function.RoundFunction, '__call__', counting)
  return counted


def test_other_cohorts_sizes_of_clients_and_runs_are_traced_once(traces):
  context, process = engine.GraphContext(), processes.own()
  for _ in range(2):
    state = engines.run(context, process.initialize)
    for clients in ([(1, 5), (2, 2)], [(3, 7)], [(1, 1), (2, 9), (4, 4)], []):
      state = engines.run(context, process.next, state, processes.whole(*clients)).state
  assert len(traces) == 2  # Of `initialize` and of `next`.


def test_rounds_leave_nothing_in_memory():
  context, process = engine.GraphContext(), processes.own('ada_best')
  state = engines.run(context, process.initialize)
  cohort = processes.whole(*((i, 2) for i in range(10)))
  client_states = [process.initial_client_state] * 10

  def rounds(number):
    nonlocal state, client_states
    for _ in range(number):
      state, after, _ = engines.run(context, process.next, state, client_states, cohort)
      client_states = [tf.nest.map_structure(np.asarray, one) for one in after]
    gc.collect()
    return sys.getallocatedblocks()

  blocks, grown = rounds(50), []
  # One for each tensor that is made would be 169 a round; caches that fill up take some, and what
  # else this process has goes on meanwhile: a leak is there each time.
  while len(grown) < 3 and min(grown, default=10) >= 10:
    before, blocks = blocks, rounds(100)
    grown.append((blocks - before) / 100)
  assert min(grown) < 10


def test_datasets_and_lists_of_batches_are_traced_once(traces):
  context, process = engine.GraphContext(), processes.fed_avg()
  state = engines.run(context, process.initialize)
  del traces[:]
  for cohort in processes.cohorts():
    state = engines.run(context, process.next, state, cohort).state
  assert len(traces) == 1


def test_the_with_form_restores_the_former_context():
  stack = tff.framework.get_context_stack()
  before = stack.current
  with engine.graph_context(parallel_clients=2):
    assert isinstance(stack.current, engine.GraphContext)
  assert stack.current is before
  with pytest.raises(KeyError), engine.graph_context():
    raise KeyError
  assert stack.current is before


def test_groups_are_not_larger_than_the_cohort(traces):
  """A group is traced client by client; a later, larger cohort gets the groups asked for."""
  process, cohorts = processes.own(), [processes.whole((1, 5), (2, 2)), processes.whole((3, 7))]
  results = {}
  for size in (1, 16):
    context = engine.GraphContext(clients_per_step=size)
    state = engines.run(context, process.initialize)
    del traces[:]
    for cohort in (cohorts[1], *cohorts):
      state = engines.run(context, process.next, state, cohort).state
    assert len(traces) == (1 if size == 1 else 2)
    results[size] = [np.asarray(w) for w in state.global_model_weights.trainable]
  for alone, grouped in zip(*results.values()):
    np.testing.assert_allclose(grouped, alone, rtol=1e-6)


@pytest.mark.parametrize(
  'name, value', [('parallel_clients', 0), ('clients_per_step', 0), ('default_num_clients', -1)]
)
def test_options_out_of_range_are_refused(name, value):
  with pytest.raises(ValueError, match=f'{name} is {value}; it must be at least {value + 1}'):
    engine.GraphContext(**{name: value})


def test_several_threads_share_a_context(graph):
  double = tff.tensorflow.computation(lambda x: 2 * x, np.int32)

  def doubled_sum(computation, numbers):
    return int(engines.run(graph, computation, numbers))

  made = [
    tff.federated_computation(
      lambda x: tff.federated_sum(tff.federated_map(double, x)),
      tff.FederatedType(np.int32, tff.CLIENTS),
    )
    for _ in range(3)
  ]
  cohorts = [list(range(n)) for n in (1, 2, 5, 9)] * 3
  with futures.ThreadPoolExecutor(6) as pool:
    work = [(c, numbers) for c in made for numbers in cohorts]
    found = list(pool.map(lambda pair: doubled_sum(*pair), work))
  assert found == [2 * sum(numbers) for _, numbers in work]
