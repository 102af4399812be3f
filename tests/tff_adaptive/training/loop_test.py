"""The round loop on a process in NumPy: same seed same rows, faults survived, files as promised."""

import csv
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from tensorboard.backend.event_processing import event_accumulator

from tests.helpers import fakes, small_problem
from tff_adaptive import algorithms, costs, registry, runs, training
from tff_adaptive.runs import state_database, state_store
from tff_adaptive.training import cohorts


def _rows(folder):
  """Returns metrics.csv as text, without its wall-clock columns."""
  with open(os.path.join(folder, 'metrics.csv'), newline='', encoding='utf-8') as file:
    return [
      {k: v for k, v in row.items() if not k.startswith('seconds_')} for row in csv.DictReader(file)
    ]


def _train(folder, rounds=20, process=None, callbacks=(), **options):
  usual = dict(clients_per_round=5, seed=3, rounds_per_evaluation=3, rounds_per_checkpoint=4)
  config = training.TrainingConfig(**{'rounds': rounds, **usual, **options})
  return training.train(
    process or fakes.StatefulProcess(),
    fakes.Clients(),
    fakes.evaluate,
    config,
    output_dir=None if folder is None else str(folder),
    callbacks=callbacks,
    show_progress=False,
  )


def _saved_round(folder):
  process = fakes.StatefulProcess()
  path = str(folder / 'checkpoints' / 'state.sqlite')
  with state_store.ClientStateStore(path, process.initial_client_state) as store:
    return store.restore(process.initialize()).round_number


def _tensorboard_steps(folder):
  events = event_accumulator.EventAccumulator(str(folder / 'tensorboard'))
  events.Reload()
  return [event.step for event in events.Scalars('train/loss')]


@pytest.fixture
def start(request):
  """Starts runs in processes of their own, which end with the test."""

  def begin(folder, rounds, delay):
    program = [sys.executable, '-m', 'tests.helpers.fakes', str(folder), str(rounds), str(delay)]
    process = subprocess.Popen(program, stderr=subprocess.PIPE, text=True)
    request.addfinalizer(process.kill)
    return process

  return begin


def test_the_course_is_that_of_a_plain_loop_which_keeps_states_in_a_dict():
  process, clients = fakes.StatefulProcess(), fakes.Clients()
  state, states = process.initialize(), {}
  for t in range(1, 21):
    drawn = [clients.client_ids[i] for i in cohorts.sample(3, t, 20, 5)]
    order = cohorts.working_order([len(clients.load(c)['y']) for c in drawn])
    drawn = [drawn[i] for i in order]
    before = [states.get(c, process.initial_client_state) for c in drawn]
    state, after, _ = process.next(state, before, [[clients.load(c)] for c in drawn])
    states.update(zip(drawn, after))
  result = _train(None)
  np.testing.assert_array_equal(result.state.global_model_weights[0], state.global_model_weights[0])


def test_a_run_leaves_what_it_promises(tmp_path):
  result = _train(tmp_path)
  rows = _rows(tmp_path)
  assert [int(row['round']) for row in rows] == list(range(21))
  assert list(rows[1])[:4] == ['round', 'validation_loss', 'validation_accuracy', 'inference_loss']
  evaluated = [int(row['round']) for row in rows if row['validation_loss']]
  assert evaluated == [0, 3, 6, 9, 12, 15, 18, 20]
  final = result.state.global_model_weights[0]
  assert float(rows[-1]['validation_loss']) == float(np.square(final).sum())  # To the bit.
  assert rows[-1]['clients'] == '5'
  with open(tmp_path / 'summary.json') as file:
    summary = json.load(file)
  assert summary['is_complete']
  assert summary['rounds'] == 20
  assert summary['last']['validation_loss'] == float(rows[-1]['validation_loss'])
  expected = np.mean([float(row['validation_loss']) for row in rows[1:] if row['validation_loss']])
  assert summary['mean_last_100_rounds']['validation_loss'] == pytest.approx(expected)
  assert summary['evaluations_averaged'] == 7
  assert (tmp_path / 'curves.png').stat().st_size > 1000
  assert sorted(os.listdir(tmp_path)) == [
    'checkpoints',
    'config.json',
    'curves.png',
    'metrics.csv',
    'summary.json',
    'tensorboard',
  ]
  assert os.listdir(tmp_path / 'checkpoints') == ['state.sqlite']


@pytest.mark.parametrize('process', [fakes.StatefulProcess, fakes.StatelessProcess])
def test_resumed_in_steps_equals_one_go_in_rows_state_and_tensorboard(tmp_path, process):
  whole = _train(tmp_path / 'whole', 20, process())
  for rounds in (6, 7, 20):
    # Evaluated at the same rounds, or the rows would differ there.
    parts = _train(tmp_path / 'parts', rounds, process(), rounds_per_evaluation=1)
  every = _train(tmp_path / 'every', 20, process(), rounds_per_evaluation=1)
  assert _rows(tmp_path / 'parts') == _rows(tmp_path / 'every')
  for result in (parts, every):
    np.testing.assert_array_equal(
      result.state.global_model_weights[0], whole.state.global_model_weights[0]
    )
  again = _train(tmp_path / 'parts', 20, process(), rounds_per_evaluation=1)
  assert again.is_complete
  assert _rows(tmp_path / 'parts') == _rows(tmp_path / 'every')
  assert _tensorboard_steps(tmp_path / 'parts') == list(range(1, 21))


def test_memory_and_disk_stores_and_no_folder_give_the_same_rounds(tmp_path):
  memory = _train(tmp_path / 'memory')
  disk = _train(tmp_path / 'disk', client_state_store='disk', client_state_cache_bytes=0)
  _train(tmp_path / 'dir', client_state_dir=str(tmp_path / 'fast'))
  nowhere = _train(None)
  assert _rows(tmp_path / 'memory') == _rows(tmp_path / 'disk') == _rows(tmp_path / 'dir')
  assert (tmp_path / 'fast' / 'state.sqlite').exists()
  for result in (disk, nowhere):
    np.testing.assert_array_equal(
      result.state.global_model_weights[0], memory.state.global_model_weights[0]
    )


def test_killed_at_random_instants_and_resumed_equals_uninterrupted(tmp_path, start):
  folder, rows = tmp_path / 'killed', 0
  file = folder / 'metrics.csv'
  for seconds in np.random.default_rng(0).uniform(0.0, 0.5, 5):
    process = start(folder, 10**6, 0.01)  # It does not end by itself, however late this test is.
    while process.poll() is None and not (file.exists() and len(_rows(folder)) > rows):
      time.sleep(0.01)
    with pytest.raises(subprocess.TimeoutExpired):
      process.wait(seconds)
    process.kill()
    process.communicate()
    rows = len(_rows(folder))
  for name in ('killed', 'whole'):
    assert fakes.main(str(tmp_path / name), rows + 20) == 0
  assert _rows(folder) == _rows(tmp_path / 'whole')


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_after_the_round_with_a_checkpoint(tmp_path, number, start):
  process = start(tmp_path, 10**6, 0.05)
  lines = iter(process.stderr.readline, '')
  assert any('round 1/1000000' in line for line in lines)
  process.send_signal(number)
  _, rest = process.communicate(timeout=120)
  assert 'Ending after this round' in rest
  assert process.returncode == 3  # Not complete.
  last = int(_rows(tmp_path)[-1]['round'])
  with open(tmp_path / 'summary.json') as file:
    summary = json.load(file)
  assert not summary['is_complete']
  process = fakes.StatefulProcess()
  path = str(tmp_path / 'checkpoints' / 'state.sqlite')
  with state_store.ClientStateStore(path, process.initial_client_state) as store:
    assert store.restore(process.initialize()).round_number == last == summary['rounds']


def test_a_second_signal_ends_at_once_and_harms_nothing(tmp_path, start):
  process = start(tmp_path, 1000, 3600.0)
  lines = iter(process.stderr.readline, '')
  assert any('Round 1 begins' in line for line in lines)
  process.send_signal(signal.SIGINT)
  assert any('Ending after this round' in line for line in lines)
  process.send_signal(signal.SIGINT)
  process.communicate(timeout=120)  # Though the round takes an hour.
  assert process.returncode == 128 + signal.SIGINT
  _train(tmp_path / 'whole', 5)
  _train(tmp_path, 5)
  assert _rows(tmp_path) == _rows(tmp_path / 'whole')


@pytest.mark.filterwarnings('ignore:Some clients diverge')
def test_weights_that_are_not_finite_end_the_run_and_keep_the_last_checkpoint(tmp_path):
  with pytest.raises(runs.NonFiniteWeightsError, match=r'round 7.*checkpoint of round 4'):
    _train(tmp_path, 20, fakes.StatefulProcess(poison_round=7))
  assert [int(row['round']) for row in _rows(tmp_path)] == list(range(7))
  assert _tensorboard_steps(tmp_path) == [1, 2, 3, 4, 5, 6]
  _train(tmp_path, 20)  # The fix: resumes from round 4.
  assert _tensorboard_steps(tmp_path) == list(range(1, 21))  # 5 and 6 are not there twice.
  _train(tmp_path / 'whole', 20)
  assert _rows(tmp_path) == _rows(tmp_path / 'whole')


def test_a_round_in_which_all_clients_diverge_reports_no_loss_and_is_counted(tmp_path):
  class Diverging(fakes.StatefulProcess):
    def next(self, server_state, client_states, cohort):
      state, states, metrics = super().next(server_state, client_states, cohort)
      lost = len(cohort) if server_state.round_number >= 3 else 2
      metrics['client_work']['updates'] = {'non_finite_clients': np.float32(lost)}
      return state, states, metrics

  with pytest.warns(UserWarning, match=r'2 of 5 updates'):
    result = _train(tmp_path, 5, Diverging())
  assert result.summary['rounds_without_update'] == 2
  assert result.summary['ends_without_update']
  assert [bool(row['train_loss']) for row in _rows(tmp_path)[1:]] == [True] * 3 + [False] * 2
  with pytest.warns(UserWarning, match='2 of 5'):
    assert not _train(None, 3, Diverging()).summary['ends_without_update']


def test_a_reader_that_has_gone_does_not_end_the_run(tmp_path, start):
  """`train.py 2>&1 | tee log` and Ctrl-C, which ends tee too."""
  process = start(tmp_path, 10**6, 0.05)
  lines = iter(process.stderr.readline, '')
  assert any('round 1/1000000' in line for line in lines)
  process.stderr.close()
  process.send_signal(signal.SIGINT)
  assert process.wait(timeout=120) == 3  # Ended after the round, saved.
  last = int(_rows(tmp_path)[-1]['round'])
  with open(tmp_path / 'summary.json') as file:
    assert json.load(file)['rounds'] == last


@pytest.mark.parametrize('kind', [RuntimeError, KeyboardInterrupt])
def test_an_error_in_a_round_keeps_the_rounds_before_it(tmp_path, kind):
  class Failing(fakes.StatefulProcess):
    def next(self, server_state, client_states, cohort):
      if server_state.round_number == 6:
        raise kind('no luck')
      return super().next(server_state, client_states, cohort)

  with pytest.raises(kind, match='no luck'):
    _train(tmp_path, 20, Failing())
  assert _saved_round(tmp_path) == 6


def test_ctrl_c_in_a_callback_keeps_the_round(tmp_path):
  class Interrupted(training.Callback):
    def round_end(self, row):
      if row['round'] == 3:
        raise KeyboardInterrupt

  with pytest.raises(KeyboardInterrupt):
    _train(tmp_path, 20, callbacks=[Interrupted()])
  assert _saved_round(tmp_path) == 3


def test_an_error_in_an_evaluation_keeps_the_rounds_before_it(tmp_path):
  def evaluate(weights):
    if np.any(weights[0]) and is_failing:
      raise RuntimeError('no luck')
    return fakes.evaluate(weights)

  def train(folder):
    config = training.TrainingConfig(
      rounds=9, clients_per_round=5, seed=3, metric='loss', rounds_per_evaluation=7
    )
    return training.train(
      fakes.StatefulProcess(),
      fakes.Clients(),
      evaluate,
      config,
      output_dir=str(folder),
      show_progress=False,
    )

  is_failing = True
  with pytest.raises(RuntimeError, match='no luck'):
    train(tmp_path / 'failed')
  assert _saved_round(tmp_path / 'failed') == 6
  is_failing = False
  resumed, whole = train(tmp_path / 'failed'), train(tmp_path / 'whole')
  np.testing.assert_array_equal(
    resumed.state.global_model_weights[0], whole.state.global_model_weights[0]
  )
  assert _rows(tmp_path / 'failed') == _rows(tmp_path / 'whole')


def test_a_state_that_cannot_be_stored_is_reported_at_the_start(tmp_path):
  class Named(fakes.StatelessProcess):
    def initialize(self):
      return {'state': super().initialize(), 'name': 'mine'}

  with pytest.raises(state_store.StateError, match="holds 'mine' of dtype <U4; only numbers"):
    _train(tmp_path, 20, Named())


class _Bulky(fakes.StatefulProcess):
  """Its clients keep 20 kB each, more than a page of the state file."""

  def __init__(self):
    super().__init__()
    self.initial_client_state['bulk'] = np.zeros(5000, np.float32)

  def next(self, server_state, client_states, cohort):
    server_state, states, metrics = super().next(server_state, client_states, cohort)
    for state, before in zip(states, client_states):
      state['bulk'] = before['bulk'] + 1
    return server_state, states, metrics


def _train_bulky(folder, pages=None):
  """A run that stores more than its cache holds, on a disk that is full after some pages."""
  config = training.TrainingConfig(
    rounds=30,
    clients_per_round=4,
    rounds_per_checkpoint=5,
    client_state_store='disk',
    client_state_cache_bytes=120_000,
  )
  with pytest.MonkeyPatch.context() as patch:
    if pages is not None:
      connect = state_database.StateDatabase._connect

      def connected(self, mode):
        file = connect(self, mode)
        file.execute('PRAGMA page_size=16384')
        file.execute(f'PRAGMA max_page_count={pages}')
        return file

      patch.setattr(state_database.StateDatabase, '_connect', connected)
    training.train(
      _Bulky(), fakes.Clients(), fakes.evaluate, config, output_dir=str(folder), show_progress=False
    )


def test_a_full_disk_at_any_moment_loses_no_checkpoint_and_mixes_none(tmp_path):
  _train_bulky(tmp_path / 'whole')
  for pages in range(8, 34, 2):
    folder = tmp_path / str(pages)
    with pytest.raises(state_store.StateError, match='the disk is full'):
      _train_bulky(folder, pages)
    _train_bulky(folder)
    assert _rows(folder) == _rows(tmp_path / 'whole')


def test_a_checkpoint_of_another_run_and_lost_rows_are_refused(tmp_path):
  _train(tmp_path, 5)
  with pytest.raises(runs.ResumeError, match="the run_id was '' and is now 'other'"):
    training.train(
      fakes.StatefulProcess(),
      fakes.Clients(),
      fakes.evaluate,
      training.TrainingConfig(rounds=5, clients_per_round=5),
      output_dir=str(tmp_path),
      run_id='other',
    )
  lines = (tmp_path / 'metrics.csv').read_text().splitlines(keepends=True)
  (tmp_path / 'metrics.csv').write_text(''.join(lines[:4]))
  with pytest.raises(ValueError, match='lacks round 3; the checkpoint has rounds 0 to 5'):
    _train(tmp_path, 6)
  os.unlink(tmp_path / 'metrics.csv')
  with pytest.raises(ValueError, match='lacks round 0; '):
    _train(tmp_path, 6)


def test_a_run_that_is_past_its_rounds_is_refused(tmp_path):
  _train(tmp_path, 8)
  with pytest.raises(runs.ResumeError, match='has done 8 rounds already, rounds is 7'):
    _train(tmp_path, 7)
  assert len(_rows(tmp_path)) == 9


def test_a_training_loss_that_is_not_finite_is_reported_once_and_training_goes_on(tmp_path):
  class Diverging(fakes.StatefulProcess):
    def next(self, server_state, client_states, cohort):
      state, states, metrics = super().next(server_state, client_states, cohort)
      metrics['client_work']['train']['loss'] = np.float32(np.inf)
      metrics['client_work']['updates'] = {'non_finite_clients': np.float32(2)}
      return state, states, metrics

  with pytest.warns(UserWarning, match=r'in round 1, 2 of 5 .*training loss inf') as caught:
    result = _train(tmp_path, 5, Diverging())
  assert len(caught) == 1
  assert _rows(tmp_path)[-1]['train_loss'] == 'inf'
  assert result.summary['non_finite_clients'] == 10


def test_test_data_are_evaluated_at_the_end_only(tmp_path):
  calls = []

  def test_fn(weights):
    calls.append(weights)
    return {'accuracy': 0.25}

  config = training.TrainingConfig(rounds=4, clients_per_round=5, rounds_per_evaluation=1)
  arguments = (fakes.StatefulProcess(), fakes.Clients(), fakes.evaluate, config)
  result = training.train(*arguments, test_fn=test_fn, show_progress=False)
  assert len(calls) == 2
  assert result.summary['test'] == {'test_accuracy': 0.25, 'test_inference_accuracy': 0.25}


def test_what_a_round_costs_is_counted_from_the_cohorts_own_sizes(tmp_path):
  model = costs.CostModel(registry.Counts(down=2), num_parameters=3, batch_size=4, epochs=2)
  result = _train(tmp_path, 4, cost_model=model)
  steps = []
  for row in _rows(tmp_path)[1:]:
    # A client's size is 2 + i % 5, and it takes two epochs of one or two batches of four.
    drawn = cohorts.sample(3, int(row['round']), 20, 5)
    steps.append(sum(2 * (1 if 2 + i % 5 <= 4 else 2) for i in drawn))
    assert float(row['megabytes_down']) == 5 * 2 * 3 * 4 / 1e6
    assert float(row['megabytes_up']) == 5 * 3 * 4 / 1e6
    assert row['local_steps'] == str(steps[-1])
  assert len(set(steps)) > 1
  assert result.summary['totals'] == {
    'megabytes_down': pytest.approx(4 * 120e-6),
    'megabytes_up': pytest.approx(4 * 60e-6),
    'local_steps': sum(steps),
  }
  assert _train(None, 2).summary['totals'] == {}


@pytest.mark.parametrize('name', ['fed_avg', 'ada_best'])
def test_a_process_of_batched_datasets_is_refused_at_the_start(tmp_path, name):
  process = algorithms.build(name, small_problem.model(), client_learning_rate=0.1)
  with pytest.raises(ValueError, match=r'build it with ClientTraining\(batching=tff_adaptive'):
    _train(tmp_path / 'run', process=process)
  assert not (tmp_path / 'run').exists()
