"""The loop over the clients gives the same bits however many are in work."""

from tests.helpers import computations, engines, processes
from tff_adaptive import engine

FLOAT = computations.FLOAT


def test_results_do_not_depend_on_parallel_clients_to_the_bit():
  process, outputs = processes.own('scaffold', num_clients=9), []
  cohort = processes.whole(*((i, 3 + 5 * i % 7) for i in range(8)))
  for parallel_clients in (1, 4):
    context = engine.GraphContext(parallel_clients)
    state = engines.run(context, process.initialize)
    client_states = [process.initial_client_state] * len(cohort)
    for _ in range(2):
      state, client_states, metrics = engines.run(
        context, process.next, state, client_states, cohort
      )
    outputs.append((state, list(client_states), metrics))
  engines.assert_same(*outputs, rtol=0, atol=0)
