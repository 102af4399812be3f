"""Runs with a population, on a process in NumPy: rows, states, costs, resuming."""

import types
import warnings

import numpy as np
import pytest

from tests.helpers import fakes, small_problem
from tff_adaptive import costs, population, registry
from tff_adaptive.client import Batching
from tff_adaptive.population import rounds
from tff_adaptive.training import callbacks, cohorts, rounds as training_rounds

COSTS = costs.CostModel(registry.Counts(down=2), num_parameters=250_000, batch_size=4, epochs=2)
LOST = 'non_finite_clients'
PRIVATE = callbacks.PrivacyCallback(None, 1e-3, 1)
UNRELIABLE = population.Population(
  population.Independent(0.2),
  population.Speed(1.0, downlink=1.0, uplink=1.0, speed_sigma=0.5),
  round_deadline=6.0,
  dropout_rate=0.3,
)


class Process(fakes.StatefulProcess):
  """One that a cohort without examples leaves as it is, as this project's do."""

  def next(self, server_state, client_states, cohort):
    if sum(len(data['y']) for (data,) in cohort):
      return super().next(server_state, client_states, cohort)
    t = np.int32(server_state.round_number + 1)
    return server_state._replace(round_number=t), client_states, {}


def train(folder, of_clients, number=20, process=None, **options):
  options = {'cost_model': COSTS, 'rounds_per_checkpoint': 50, **options}
  with warnings.catch_warnings():
    warnings.filterwarnings('ignore', message='Only .* clients are available')
    return fakes.train(folder, number, process or Process(), population=of_clients, **options)


def test_ideal_clients_give_todays_numbers_to_the_bit(tmp_path):
  train(tmp_path / 'today', None)
  train(tmp_path / 'ideal', population.Population())
  today = fakes.rows(tmp_path / 'today')
  ideal = fakes.rows(tmp_path / 'ideal')
  assert set(ideal[0]) - set(today[0]) == set(rounds.COLUMNS)
  for one, other in zip(today, ideal):
    assert one == {k: v for k, v in other.items() if k not in rounds.COLUMNS}
  assert {row['virtual_seconds'] for row in ideal[:2]} == {'', repr(0.2 + 1.0 + 0.1 * 4)}
  assert {row['finished'] for row in ideal[1:]} == {'5'}
  train(tmp_path / 'clock', population.Population(), virtual_seconds_per_evaluation=5.0)
  clock = np.cumsum([float(row['virtual_seconds'] or 0) for row in ideal]) // 5
  due = [0, *(t for t in range(1, 20) if clock[t] > clock[t - 1]), 20]
  evaluated = [
    int(row['round']) for row in fakes.rows(tmp_path / 'clock') if row['validation_loss']
  ]
  assert evaluated == due


def test_who_does_not_finish_is_not_in_the_round(tmp_path):
  """Against a plain loop over the plans, which keeps the states of those that finished."""
  for number in (7, 8, 20):  # A resumed run equals one go.
    result = train(tmp_path, UNRELIABLE, number)
  process = Process()
  clients = fakes.Clients()
  sizes = [2 + i % 5 for i in range(20)]
  simulation = population.Simulation(
    UNRELIABLE,
    clients.client_ids,
    [2 * -(-size // 4) for size in sizes],
    seed=3,
    cohort_size=5,
    bytes_down=2_000_000,
    bytes_up=1_000_000,
    draw=cohorts.sample,
  )
  state = process.initialize()
  states = {}
  dropped = 0
  seconds = 0.0
  for t in range(1, 21):
    plan = simulation.plan(t)
    dropped += plan.dropped
    seconds += plan.virtual_seconds
    positions = plan.positions[cohorts.working_order([sizes[i] for i in plan.positions])]
    ids = [clients.client_ids[i] for i in positions]
    before = [states.get(c, process.initial_client_state) for c in ids]
    state, after, _ = process.next(state, before, [[clients.load(c)] for c in ids])
    states.update(zip(ids, after))
    row = fakes.rows(tmp_path)[t]
    assert row['clients'] == str(plan.finished)
    assert row['examples'] == str(sum(sizes[i] for i in positions))
    assert {name: float(row[name]) for name in rounds.COLUMNS} == plan.columns()
    assert float(row['megabytes_down']) == 2 * plan.selected
    assert float(row['megabytes_up']) == plan.finished
    assert int(row['local_steps']) == plan.steps.sum()
    assert bool(row['train_loss']) == bool(plan.finished)
  weights = result.state.global_model_weights[0]
  np.testing.assert_array_equal(weights, state.global_model_weights[0])
  assert int(result.state.round_number) == 20
  for client, saved in fakes.saved(tmp_path)[1].items():
    expected = states.get(client, process.initial_client_state)
    np.testing.assert_array_equal(saved['h'], expected['h'])
  counts = result.summary['population']
  assert counts['dropped'] == dropped > 10
  assert counts['rounds_without_clients'] > 0
  assert counts['rounds_with_few_available'] > 5
  assert counts['virtual_seconds'] == pytest.approx(seconds)


@pytest.mark.parametrize(
  'availability, message',
  [
    (population.Trace({f'c0{i}': [(0, 9)] for i in [*range(5), 'x']}), '15 have no interval'),
    (population.Independent(0.1), 'fewer than the 5 of a round'),
  ],
)
def test_clients_that_are_not_there_are_reported_once(availability, message):
  clients = population.Population(availability)
  with pytest.warns(UserWarning, match=message) as caught:
    fakes.train(None, 9, Process(), cost_model=COSTS, population=clients)
  texts = ' '.join(str(warning.message) for warning in caught)
  assert texts.count(message) == 1
  assert texts.count('are available') == message.startswith('fewer')


@pytest.mark.parametrize(
  'row, lost',
  [
    ({'train_loss': 0.5}, []),
    ({'train_loss': np.inf}, [0]),
    ({LOST: 2.0}, [2]),
    ({'train_loss': np.nan, 'clients': 0}, []),  # Without clients there is no loss.
  ],
)
def test_lost_updates_or_a_loss_that_is_not_finite_are_said_once(row, lost):
  lines = []
  state = Process().initialize()
  config = types.SimpleNamespace(trace_client=None, ledger=False)
  trainer = training_rounds.Trainer(None, None, None, config, lines.append)
  for number in (7, 8):
    trainer._check(state, {'round': number, 'clients': 5, **row})
  counts = [line.partition(' updates were')[0] for line in lines]
  assert counts == [f'Clients diverge in round 7: {number} of 5' for number in lost]
  assert ['(training loss inf)' in line for line in lines] == [not number for number in lost]


@pytest.mark.parametrize(
  'of_clients, options, message',
  [
    (population.Population(), {'cost_model': None}, 'population is given without a cost_model'),
    (population.Population(round_deadline=0.5), {}, 'the fastest client needs 1.4 to receive'),
    (None, {'clients': object()}, 'object has no client_ids and no num_examples and no load:'),
    (None, {'clients_per_round': 21}, 'clients_per_round is 21; it must be from 1 to 20'),
    (population.Population(over_select=1.5), {'clients_per_round': 21}, 'is 21; it must be from'),
    (population.Population(), {'callbacks': [PRIVATE]}, 'which those of a population are not'),
  ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
  tmp_path, of_clients, options, message
):
  with pytest.raises(TypeError if 'object' in message else ValueError, match=message):
    train(tmp_path / 'run', of_clients, **options)
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize(
  'batching, stragglers, message',
  [
    (None, 'drop', r'build it with ClientTraining\(batching=tff_adaptive'),
    (Batching(4, step_limits=True), 'drop', 'built for .*which is None.* step_limits=False'),
    (Batching(4), 'partial', 'built for other rounds .* step_limits=True'),
  ],
)
def test_a_process_that_takes_other_data_is_refused(tmp_path, batching, stragglers, message):
  process = small_problem.process('fed_avg', batching=batching)
  clients = population.Population(round_deadline=99.0, stragglers=stragglers)
  with pytest.raises(ValueError, match=message):
    train(tmp_path / 'run', clients, 1, process, clients_per_round=1)
  assert not (tmp_path / 'run').exists()


class OfNobody(fakes.StatelessProcess):
  """One whose sums over no example are 0, as this project's are."""

  def next(self, state, cohort):
    train = {'loss': np.float32(0.0), 'accuracy': np.float32(0.0)}
    return fakes.StatelessOutput(state, {'client_work': {'train': train}})


@pytest.mark.parametrize('sizes, measured', [((3, 0), True), ((0, 0), False)])
def test_a_round_without_an_example_has_no_training_loss(tmp_path, monkeypatch, sizes, measured):
  monkeypatch.setattr(fakes.Clients, 'client_ids', ('c00', 'c01'))
  monkeypatch.setattr(fakes.Clients, 'num_examples', lambda self, name: sizes[int(name[1:])])
  fakes.train(tmp_path, 1, OfNobody(), clients_per_round=2)
  row = fakes.rows(tmp_path)[1]
  assert bool(row.get('train_loss')) == bool(row.get('train_accuracy')) == measured
  assert row['examples'] == str(sum(sizes))
