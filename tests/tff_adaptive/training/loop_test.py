"""The round loop on a process in NumPy: same seed same rows, faults survived, files as promised."""

import json
import os
import resource
import signal
from unittest import mock

import numpy as np
import psutil
import pytest
from tensorboard.backend.event_processing import event_accumulator

from tests.faults import kills_test
from tests.helpers import fakes
from tff_adaptive import costs, registry, runs
from tff_adaptive.runs import state_file
from tff_adaptive.training import cohorts, loop, protocols


def _tensorboard_steps(folder):
  events = event_accumulator.EventAccumulator(str(folder / 'tensorboard'))
  events.Reload()
  assert (events.file_version, 'clients' in events.Tags()['scalars']) == (2, True)
  return [event.step for event in events.Scalars('train/loss')]


def _assert_same_weights(*results):
  for result in results[1:]:
    np.testing.assert_array_equal(
      result.state.global_model_weights[0], results[0].state.global_model_weights[0]
    )


@pytest.fixture(scope='module')
def complete(tmp_path_factory):
  """The folder and the result of a run of 20 rounds with all its files."""
  folder = tmp_path_factory.mktemp('complete')
  result = fakes.train(folder, draws=True)
  assert not [file for file in psutil.Process().open_files() if str(folder) in file.path]
  return folder, result


def test_a_run_has_a_row_for_each_round(complete):
  folder, result = complete
  rows = fakes.rows(folder)
  assert [int(row['round']) for row in rows] == list(range(21))
  assert list(rows[1])[:4] == ['round', 'validation_loss', 'validation_accuracy', 'inference_loss']
  evaluated = [int(row['round']) for row in rows if row['validation_loss']]
  assert evaluated == [0, 3, 6, 9, 12, 15, 18, 20]
  final = result.state.global_model_weights[0]
  assert float(rows[-1]['validation_loss']) == float(np.square(final).sum())  # To the bit.
  assert rows[-1]['clients'] == '5'


def test_a_run_has_a_summary(complete):
  folder, _ = complete
  summary = json.loads((folder / 'summary.json').read_text())
  assert summary['is_complete']
  assert summary['rounds'] == 20
  assert summary['last']['validation_loss'] == float(fakes.rows(folder)[-1]['validation_loss'])
  assert summary['evaluations_averaged'] == 7
  assert summary['peak_memory_mb'] <= resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def test_a_run_leaves_the_files_that_it_promises(complete):
  folder, _ = complete
  assert (folder / 'curves.png').stat().st_size > 1000
  assert sorted(os.listdir(folder)) == kills_test.LEFT
  assert os.listdir(folder / 'checkpoints') == ['state.sqlite']


@pytest.mark.parametrize('process', [fakes.StatefulProcess, fakes.StatelessProcess])
def test_resumed_in_steps_equals_one_go_in_rows_state_and_tensorboard(tmp_path, process):
  for name in ('disk', 'parts'):
    (tmp_path / name).mkdir()
  (tmp_path / 'parts' / 'checkpoints').symlink_to(tmp_path / 'disk')
  for rounds in (6, 7, 20, 20):
    # Evaluated at the same rounds, or the rows would differ there.
    parts = fakes.train(tmp_path / 'parts', rounds, process(), rounds_per_evaluation=1)
  whole = fakes.train(tmp_path / 'whole', 20, process(), rounds_per_evaluation=1)
  assert parts.is_complete
  with pytest.raises(runs.ResumeError, match='has done 20 rounds already, rounds is 7'):
    fakes.train(tmp_path / 'parts', 7, process())
  assert fakes.rows(tmp_path / 'parts') == fakes.rows(tmp_path / 'whole')
  assert os.listdir(tmp_path / 'disk') == ['state.sqlite']
  _assert_same_weights(parts, whole, fakes.train(None, 20, process()))
  assert _tensorboard_steps(tmp_path / 'parts') == list(range(1, 21))


@pytest.fixture
def start(request, tmp_path):
  """Starts a run without end in a process of its own; returns it and its standard error."""

  def begin(folder, delay):
    pipe = str(tmp_path / 'stderr')
    os.mkfifo(pipe)
    process = kills_test.PROCESSES.Process(
      target=fakes.train_until_a_signal, args=(str(folder), delay, pipe)
    )
    process.start()
    request.addfinalizer(process.kill)
    return process, open(pipe, encoding='utf-8')

  return begin


@pytest.mark.parametrize(
  'number, is_read',
  [(signal.SIGINT, False), (signal.SIGTERM, True), (signal.SIGHUP, False), (signal.SIGHUP, True)],
)
@pytest.mark.sample(1)
def test_a_signal_ends_after_the_round_with_a_checkpoint(tmp_path, number, is_read, start):
  """Also where the reader of the output has gone: `2>&1 | tee log` and Ctrl-C, which ends tee."""
  process, lines = start(tmp_path / 'run', 0.05)
  with lines:
    assert any('round 1/1000000' in line for line in lines)
    if not is_read:
      lines.close()
    os.kill(process.pid, number)
    assert not is_read or any('Ending and saving after' in line for line in lines)
  process.join(120)
  assert process.exitcode == 3  # Not complete.
  summary = json.loads((tmp_path / 'run' / 'summary.json').read_text())
  assert not summary['is_complete']
  last = int(fakes.rows(tmp_path / 'run')[-1]['round'])
  assert fakes.saved(tmp_path / 'run')[0] == last == summary['rounds']


@pytest.mark.exhaustive
def test_a_second_signal_ends_at_once_and_harms_nothing(tmp_path, start):
  process, lines = start(tmp_path / 'run', 3600.0)
  with lines:
    assert any('Round 1 begins' in line for line in lines)
    os.kill(process.pid, signal.SIGINT)
    assert any('Ending and saving after' in line for line in lines)
    os.kill(process.pid, signal.SIGINT)
    assert lines.read() == 'Ended.\n'
  process.join(120)  # Though the round takes an hour.
  assert process.exitcode == 128 + signal.SIGINT
  for name in ('run', 'whole'):
    fakes.train(tmp_path / name, 5)
  assert fakes.rows(tmp_path / 'run') == fakes.rows(tmp_path / 'whole')


@pytest.mark.filterwarnings('ignore:Clients diverge')
def test_weights_that_are_not_finite_end_the_run_and_keep_the_last_checkpoint(tmp_path):
  process = fakes.StatefulProcess(poison_round=7)
  for folder, every, words in ((None, 4, '; there is no'), (tmp_path / 'first', 9, 'of round 0')):
    with pytest.raises(runs.NonFiniteWeightsError, match=f'round 7.*{words}'):
      fakes.train(folder, 20, process, rounds_per_checkpoint=every)
  with pytest.raises(runs.NonFiniteWeightsError, match=r'round 7.*checkpoint of round 4'):
    fakes.train(tmp_path, 20, process)
  assert [int(row['round']) for row in fakes.rows(tmp_path)] == list(range(8))
  assert fakes.rows(tmp_path)[7]['validation_loss'] == 'nan'  # Reports count it as diverged.
  assert _tensorboard_steps(tmp_path) == [1, 2, 3, 4, 5, 6]
  fakes.train(tmp_path, 20)  # The fix: resumes from round 4.
  assert _tensorboard_steps(tmp_path) == list(range(1, 21))  # 5 and 6 are not there twice.
  fakes.train(tmp_path / 'whole', 20)
  assert fakes.rows(tmp_path) == fakes.rows(tmp_path / 'whole')


class _Diverging(fakes.StatefulProcess):
  """Two clients' updates are not finite, and from round 4 on all clients'."""

  def next(self, server_state, client_states, cohort):
    state, states, metrics = super().next(server_state, client_states, cohort)
    metrics['client_work']['train']['loss'] = np.float32(np.inf)
    metrics['round'] = metrics['clients'] = np.int32(99)  # Names that the loop has itself.
    if server_state.round_number >= 3:
      lost = len(cohort)
    else:
      lost = 2
    metrics['client_work']['updates'] = {'non_finite_clients': np.float32(lost)}
    return state, states, metrics


def test_clients_that_diverge_are_reported_once_and_counted(tmp_path, monkeypatch):
  checked = mock.Mock()
  monkeypatch.setattr(cohorts.Cohort, 'check_finite', checked)
  with pytest.warns(UserWarning, match=r'in round 1: 2 of 5 .*training loss inf') as caught:
    result = fakes.train(tmp_path, 5, _Diverging())
  assert len(caught) == 1
  rows = fakes.rows(tmp_path)[1:]
  assert [row['train_loss'] for row in rows] == ['inf'] * 3 + [''] * 2
  assert [(row['round'], row['clients']) for row in rows] == [(f'{t}', '5') for t in range(1, 6)]
  assert result.summary['non_finite_clients'] == 3 * 2 + 2 * 5
  assert result.summary['rounds_without_update'] == 2
  assert result.summary['ends_without_update']
  with pytest.warns(UserWarning, match='2 of 5'):
    assert not fakes.train(None, 3, _Diverging()).summary['ends_without_update']
  fakes.train(None, 1)
  assert checked.call_count == 5 + 3  # Where an update was lost.


@pytest.mark.parametrize('where', ['round', 'evaluation'])
def test_an_error_keeps_the_rounds_before_it(tmp_path, where, capsys):
  class Failing(fakes.StatefulProcess):
    def next(self, server_state, client_states, cohort):
      if server_state.round_number == 6:
        raise KeyboardInterrupt
      return super().next(server_state, client_states, cohort)

  def evaluate(weights):
    if np.any(weights[0]):
      raise KeyboardInterrupt
    return fakes.evaluate(weights)

  if where == 'round':
    failing = {'process': Failing()}
  else:
    failing = {'evaluate': evaluate}
  with pytest.raises(KeyboardInterrupt):
    fakes.train(tmp_path / 'failed', 9, rounds_per_evaluation=7, **failing)
  assert fakes.saved(tmp_path / 'failed')[0] == 6
  _assert_same_weights(
    *(fakes.train(tmp_path / n, 9, rounds_per_evaluation=7) for n in ('failed', 'whole'))
  )
  assert fakes.rows(tmp_path / 'failed') == fakes.rows(tmp_path / 'whole')
  stop = protocols.Stop()
  stop.exit_code = 130  # A signal that ended TFF's worker too is no error.
  if where == 'round':
    options = {'stop': stop, 'show_progress': True}
    assert fakes.train(tmp_path / 'stopped', 9, Failing(), **options).round_number == 6
    assert stop.on_abort == [stop.announce.__self__.close]
    assert '\nround 1/9  loss' in capsys.readouterr().err


def test_a_full_disk_at_any_moment_loses_no_checkpoint_and_mixes_none(tmp_path, monkeypatch):
  fakes.train(tmp_path / 'whole', 16)
  for pages in range(9, 18, 2):  # The whole run takes 18.
    folder = tmp_path / str(pages)
    with monkeypatch.context() as patch:
      patch.setattr(state_file, '_PRAGMAS', ('page_size=512', f'max_page_count={pages}'))
      with pytest.raises(runs.StateError, match='the disk is full'):
        fakes.train(folder, 16)
    fakes.train(folder, 16)
    assert fakes.rows(folder) == fakes.rows(tmp_path / 'whole')


def test_a_run_ends_with_the_evaluation_that_reaches_its_target(tmp_path):
  whole = tmp_path / 'whole'
  folder = tmp_path / 'part'
  tested = []
  fakes.train(whole, 20)
  target = float(fakes.rows(whole)[9]['validation_loss'])
  early = {'target': target, 'stop_at_target': True}

  def evaluate(weights):
    return {**fakes.evaluate(weights), 'accuracy': fakes.evaluate(weights)['loss']}

  def test_fn(weights):
    tested.append(weights)
    return {'accuracy': len(tested) % 2}

  def train(rounds, **options):
    return fakes.train(folder, rounds, evaluate=evaluate, test_fn=test_fn, **options)

  for rounds in (7, 20, 30):  # The same command again finds it done.
    result = train(rounds, **early)
    assert result.is_complete
    assert result.round_number == min(rounds, 9)
    assert result.summary.get('stopped_at_target', False) == (rounds > 7)
    assert runs.load_run(str(folder)).summary()['is_complete']
    assert result.summary['test'] == {'test_accuracy': 1.0, 'test_inference_accuracy': 0.0}
  assert len(tested) == 6  # Of two models, at each end only.
  assert train(20, target=target).round_number == 20
  assert fakes.rows(folder)[-1]['validation_loss'] == fakes.rows(whole)[-1]['validation_loss']


def test_what_a_round_costs_is_counted_from_the_cohorts_own_sizes(tmp_path):
  model = costs.CostModel(registry.Counts(down=2), num_parameters=3, batch_size=4, epochs=2)
  result = fakes.train(tmp_path, 4, cost_model=model)
  # A client's size is 2 + i % 5, and it takes two epochs of one or two batches of four.
  drawn = [cohorts.sample(3, t, 20, 5) for t in range(1, 5)]
  epoch_steps = np.where(2 + np.arange(20) % 5 <= 4, 1, 2)
  steps = [2 * int(epoch_steps[cohort].sum()) for cohort in drawn]
  rows = fakes.rows(tmp_path)[1:]
  assert [int(row['local_steps']) for row in rows] == steps
  totals = {'megabytes_down': 4 * 120e-6, 'megabytes_up': 4 * 60e-6}
  totals |= {'local_steps': sum(steps), 'gradients': sum(steps)}
  assert result.summary['totals'] == pytest.approx(totals)
  # Of the fake: three weights for inference and a round's number; h and a round's number.
  assert result.summary['state_megabytes'] == pytest.approx({'server': 16e-6, 'client': 16e-6})


def test_examples_of_very_many_clients_are_not_counted_one_by_one(tmp_path, monkeypatch):
  counted = []
  for most in (20, 19):  # There are 20.
    monkeypatch.setattr(loop, '_MOST_COUNTED', most)
    fakes.train(tmp_path / str(most), 1)
    counted.append(runs.load_run(str(tmp_path / str(most))).config['data'])
  assert len(counted[0].pop('client_ids')) == 64
  assert counted == [
    {'clients': 20, 'examples': sum(2 + i % 5 for i in range(20))},
    {'clients': 20},
  ]


def test_a_run_is_resumed_with_the_same_clients_in_the_same_order(tmp_path, monkeypatch):
  fakes.train(tmp_path, 1)
  ids = fakes.Clients.client_ids
  for changed, words in ((ids[::-1], 'client_ids'), (ids[1:], 'clients')):
    monkeypatch.setattr(fakes.Clients, 'client_ids', changed)
    with pytest.raises(runs.ResumeError, match=f'was on other data: {words} was '):
      fakes.train(tmp_path, 2)
