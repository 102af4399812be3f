"""The loop over the clients gives the same bits however many are in work."""

import pytest

from tests.helpers import computations, engines, processes
from tff_adaptive import engine
from tff_adaptive.engine import batched_clients
from tff_adaptive.engine.graph import client_loop, nodes

FLOAT = computations.FLOAT


@pytest.mark.parametrize('name', ['fed_yogi', 'scaffold'])
def test_results_do_not_depend_on_parallel_clients_to_the_bit(name):
  options = dict(num_clients=9) if name == 'scaffold' else {}
  process, outputs = processes.own(name, **options), []
  cohort = processes.whole(*((i, 3 + 5 * i % 7) for i in range(8)))
  for parallel_clients in (1, 4):
    context = engine.GraphContext(parallel_clients)
    state, client_states = engines.run(context, process.initialize), None
    for _ in range(2):
      if name == 'scaffold':
        client_states = client_states or [process.initial_client_state] * len(cohort)
        state, client_states, metrics = engines.run(
          context, process.next, state, client_states, cohort
        )
      else:
        state, metrics = engines.run(context, process.next, state, cohort)
    outputs.append((state, client_states and list(client_states), metrics))
  engines.assert_same(*outputs, rtol=0, atol=0)


def test_keras_models_in_parallel_are_the_same_as_one_by_one():
  process, outputs = processes.PROCESSES['weighted_fed_avg'](), []
  cohort = [processes.dataset(i, 3 + i) for i in range(6)]
  for parallel_clients in (1, 4):
    context = engine.GraphContext(parallel_clients)
    state = engines.run(context, process.initialize)
    outputs.append(engines.run(context, process.next, state, cohort))
  engines.assert_same(*outputs, rtol=0, atol=0)


def test_how_many_clients_train_together():
  batched, other = (
    nodes.Grouped(batched_clients.Group(len, is_batched=b), None, computations.FLOAT)
    for b in (True, False)
  )
  unasked = client_loop.Grouping(None, batched=8)
  assert not unasked.matters
  assert [unasked.size(g) for g in ([batched], [batched, other])] == [8, 1]
  assert unasked.matters
  asked = client_loop.Grouping(3, batched=8)
  assert asked.size([other]) == 3
  assert asked.matters  # A smaller cohort would have a smaller group.
