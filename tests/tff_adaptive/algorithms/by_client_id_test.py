"""Stateful processes in TFF's own loop: the rounds of a loop by hand, and TFF's checkpoints."""

import numpy as np
import pytest
import tensorflow_federated as tff

from tests.helpers import engines, small_problem
from tff_adaptive import algorithms
from tff_adaptive.algorithms import by_client_id

DATA = small_problem.clients()
COHORTS = small_problem.cohorts(5)


def ada_best():
  return small_problem.process('ada_best', build_model=small_problem.linear_model)


def cohort(number):
  return {f'client {i}': small_problem.element(DATA[i], i) for i in COHORTS[number - 1]}


@pytest.mark.exhaustive
def test_run_training_process_and_its_resumption(graph, tmp_path):
  stateful = ada_best()
  process = algorithms.ByClientId(stateful)
  evaluated = []

  def train(rounds):
    return tff.simulation.run_training_process(
      process,
      cohort,
      rounds,
      evaluation_fn=lambda state, data: {'norm': process.get_model_weights(state).trainable[0]},
      evaluation_selection_fn=evaluated.append,
      program_state_manager=tff.program.FileProgramStateManager(tmp_path),
      metrics_managers=[tff.program.CSVFileReleaseManager(tmp_path / 'metrics.csv')],
    )

  engines.run(graph, train, 2)
  state = engines.run(graph, train, 5)  # Three rounds from what was saved.
  assert evaluated == [0, 1, 2, 3, 4, 5]
  by_hand = engines.run(graph, lambda: small_problem.Run(stateful, DATA).rounds(COHORTS))
  engines.assert_same(state.server_state, by_hand.state, rtol=0, atol=0)
  model = process.get_model_weights(state).trainable
  engines.assert_same(model, by_hand.state.inference_weights.trainable, rtol=0, atol=0)
  assert len(state.client_states) == len(by_hand.client_states)
  for i, expected in by_hand.client_states.items():
    client_state = state.client_states.get(f'client {i}', stateful.initial_client_state)
    engines.assert_same(client_state, expected, rtol=0, atol=0)
  assert len((tmp_path / 'metrics.csv').read_text().splitlines()) == 1 + 6


def test_states_as_bytes_are_the_same_states_and_older_ones_stay_what_they_were():
  empty = by_client_id.ClientStates()
  assert len(by_client_id.ClientStates.from_bytes(empty.to_bytes())) == 0
  initial = {'h': (np.zeros([2, 3], np.float32), np.zeros([0])), 't': np.int32(-1)}
  states = {
    name: {'h': (np.full([2, 3], k, np.float32), np.zeros([0])), 't': np.int32(k)}
    for k, name in enumerate(('a', 'ü', ''))
  }
  read = by_client_id.ClientStates.from_bytes(empty.updated(states).to_bytes())
  for name, state in states.items():
    engines.assert_same(read.get(name, initial), state, rtol=0, atol=0)
  assert read.get('unseen', initial) is initial
  newer = read.updated({'a': states['ü'], 'unseen': initial})
  assert (len(empty), len(read), len(newer)) == (0, 3, 4)
  assert [each.get('a', initial)['t'] for each in (read, newer)] == [0, 1]


def test_wrong_arguments_say_what_to_give():
  with pytest.raises(TypeError, match='it runs in run_training_process as it is'):
    algorithms.ByClientId(small_problem.process('fed_avg'))
  process = algorithms.ByClientId(ada_best())
  data = small_problem.element(DATA[0], 0)
  for bad in ([data], *({client_id: data} for client_id in (3, np.int64(3), b'c', ('c', 3)))):
    with pytest.raises(TypeError, match=r'^the cohort must be {client id: data} with strings'):
      process.next(None, bad)
