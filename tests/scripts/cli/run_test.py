"""Runs from the command line, in this process: a population, and what failures become."""

import json
import math
import re
import sys
import types

import pytest

from scripts import train
from scripts.cli import build, records, resolve, run
from tests.helpers import fakes
from tff_adaptive import engine, runs, training
from tff_adaptive.population import rounds
from tff_adaptive_tasks import errors

FLAGS = (
  '--task=digits',
  '--algorithm=scaffold',
  '--rounds_per_evaluation=1',
  '--availability=independent',
  '--availability_option=probability=0.2',
  '--dropout_rate=0.2',
  '--speed_sigma=0.7',
  '--seconds_per_step=5',
  '--round_deadline=15',
  '--stragglers=partial',
)


def _train(folder, *arguments):
  with fakes.no_figures():
    return train.main(['train.py', *arguments, f'--output_dir={folder}'])


@pytest.mark.exhaustive
def test_a_run_goes_on_as_it_would_have_and_says_what_became_of_the_clients(tmp_path, capfd):
  assert _train(tmp_path / 'whole', *FLAGS, '--rounds=3', '--target=0.01') == 0
  out, err = capfd.readouterr()
  with open(tmp_path / 'whole' / 'summary.json', encoding='utf-8') as file:
    summary = json.load(file)
  counts = summary['population']
  assert counts['partial'] > 0 < counts['dropped']
  assert counts['selected'] == counts['finished'] + counts['partial'] + counts['dropped']
  assert f'selected {counts["selected"]}, finished {counts["finished"]}' in out
  assert 'fewer than the 10 of a round' in err
  assert summary['to_target']['validation_accuracy']['round'] == 0
  for number in (2, 3):
    assert _train(tmp_path / 'parts', *FLAGS, f'--rounds={number}') == 0
  assert fakes.rows(tmp_path / 'parts') == fakes.rows(tmp_path / 'whole')
  assert set(rounds.COLUMNS) < set(fakes.rows(tmp_path / 'whole')[0])
  assert _train(tmp_path / 'parts', *FLAGS, '--rounds=7', '--dropout_rate=0.3') == 2
  assert '--dropout_rate was 0.2 and is now 0.3' in capfd.readouterr().err


def test_a_line_says_what_the_first_seconds_are_spent_on(tmp_path, capfd, monkeypatch):
  def load():
    raise ValueError('Loaded.')

  monkeypatch.delitem(sys.modules, 'tensorflow_federated')
  monkeypatch.setattr(run.tensorflow_start, 'load', load)
  assert _train(tmp_path, '--rounds=3') == 2
  assert capfd.readouterr().err == 'Loading TensorFlow ...\ntrain.py: Loaded.\n'


@pytest.mark.parametrize(
  'arguments, message',
  [
    (('--task_option=alpha=1e-100',), 'alpha is 1e-100; it must be from 0.0001'),
    (('--task=emnist_cr', '--data_dir=FILE/none'), 'no such folder'),
    (('--data_dir=/tmp',), 'has no files'),
    (('--initial_weights=FILE',), 'must be the folder of a run or of a keras or npz export'),
    (('--round_deadline=0.01',), 'the fastest client needs 0.64'),
    (('--availability=FILE',), "of any of the 60 clients: its first client is 'x'"),
    (('--client_profiles=FILE',), "has the columns ['client', 'from', 'until']; give client"),
  ],
)
def test_what_does_not_fit_the_clients_is_refused_and_nothing_written(
  tmp_path, capfd, arguments, message
):
  path = tmp_path / 'clients.csv'
  path.write_text('client,from,until\nx,0,1\n')
  arguments = [a.replace('FILE', str(path)) for a in arguments]
  run = tmp_path / 'new' / 'run'
  assert _train(run, '--task=digits', '--algorithm=fed_avg', *arguments) == 2
  assert message in capfd.readouterr().err.splitlines()[-1]
  assert not run.parent.exists()


@pytest.mark.parametrize(
  'has_begun, error, code',
  [
    (None, engine.WorkerError('no cluster'), 2),
    (False, runs.StateError('client 7 is damaged'), 2),
    (True, runs.StateError('client 7 is damaged'), 1),  # No bad input: the run has begun.
    (True, engine.WorkersLost('Round 7: no worker is left'), 1),
    (True, runs.NonFiniteWeightsError('no finite weights'), 1),
  ],
)
def test_what_fails_while_a_run_goes_on_is_no_bad_input(
  monkeypatch, tmp_path, capfd, has_begun, error, code
):
  def fail(*unused, callbacks=(), **given):
    assert not callbacks or given['stop']
    if has_begun:
      for callback in callbacks:
        callback.begin(training.RunInfo(str(tmp_path), 1, 9, print))
    raise error

  seen = []
  for name in ('remember_workers', 'reap_workers'):
    monkeypatch.setattr(engine, name, lambda n=name: seen.append(n))
  if has_begun is None:
    monkeypatch.setattr(build, 'prepare', fail)
    expected = ['remember_workers']
  else:
    monkeypatch.setattr(training, 'train', fail)
    expected = ['remember_workers', 'reap_workers']
  assert _train(tmp_path, '--task=least_squares') == code
  assert str(error) in capfd.readouterr().err
  assert seen == expected


@pytest.mark.parametrize(
  'more, code, words',
  [
    ({}, 0, '3 rounds, 2 s of training; client_weighting: examples\n'),
    ({'test': {'test_loss': math.nan}}, 1, 'train.py: test_loss is nan after the last round'),
    ({'ends_without_update': True}, 1, 'train.py: all clients diverged in 2 rounds'),
    ({'ends_without_update': True, 'is_begun': True}, 0, 'The same command resumes the run.\n'),
    ({'population': {'first_time': 1200}}, 0, 'clients that were drawn: first time 1,200.\n'),
    ({'non_finite_clients': 2}, 0, '2 client updates, not finite, were left out.\n'),
    ({'rounds': 120}, 0, ' mean of the last 100 rounds (1 evaluation)\n'),
  ],
)
def test_the_end_of_a_run_is_shown_and_judged(monkeypatch, tmp_path, capsys, more, code, words):
  summary = dict(rounds=3, evaluations_averaged=1, seconds_training=2.0, non_finite_clients=0)
  summary |= dict(ends_without_update=False, rounds_without_update=2)
  summary['last'] = {'train_loss': math.inf, 'validation_loss': 0.5, 'h_norm': 1.0}
  summary |= {'mean_last_100_rounds': {'validation_loss': 0.75}, **more}
  result = types.SimpleNamespace(is_complete='is_begun' not in more, summary=summary)
  lines = []

  def prepare(unused, line):
    lines.append(line)
    return build.Prepared({'callbacks': []}, None, None)

  monkeypatch.setattr(build, 'prepare', prepare)
  monkeypatch.setattr(training, 'train', lambda **unused: result)
  for name in ('metrics.csv', 'config.json'):
    (tmp_path / name).touch()
  for name in ('model', 'checkpoints', 'files'):
    (tmp_path / name).mkdir()
  monkeypatch.setattr(records, 'check_folder', lambda folder, record: None)
  assert _train(tmp_path, '--task=least_squares') == code
  out, err = capsys.readouterr()
  files = f'\nIn {tmp_path}: metrics.csv, config.json, checkpoints/, model/, files/\n'
  assert (words in out + err, files in out) == (True, True)
  assert re.search(r'\ntrain_loss +inf *\nvalidation_loss +0\.5000 +0\.7500 *\n', out)
  assert out.count('\n') == 5 + (words.endswith('.\n') or 'test' in more)
  run.run(resolve.resolve(task='least_squares', output_dir=str(tmp_path)))
  assert lines == [['train.py', '--task=least_squares', f'--output_dir={tmp_path}']] * 2


def test_with_json_each_round_is_a_line_on_standard_output(tmp_path, capsys):
  flags = ('--task=least_squares', '--algorithm=fed_avg', '--rounds=2', '--json')
  assert _train(tmp_path / 'run', *flags) == 0
  out, err = capsys.readouterr()
  rows = [json.loads(line) for line in out.splitlines()]
  assert [row['round'] for row in rows] == [0, 1, 2]
  assert rows[2]['validation_loss'] == float(fakes.rows(tmp_path / 'run')[2]['validation_loss'])
  assert '2 rounds, ' in err  # The table.
  assert _train(tmp_path / 'run', *flags, '--quiet', '--rounds=3') == 0  # It goes on.
  out, err = capsys.readouterr()
  assert (json.loads(out)['round'], err) == (3, '')


def test_with_quiet_the_end_is_one_line_and_nothing_else_is_said(tmp_path, capfd, monkeypatch):
  loaded = sys.modules['tensorflow_federated']

  def load():
    sys.modules['tensorflow_federated'] = loaded

  monkeypatch.delitem(sys.modules, 'tensorflow_federated')  # As if it was to be loaded.
  monkeypatch.setattr(run.tensorflow_start, 'load', load)
  # Too few clients are there at times, of which a warning would tell.
  assert _train(tmp_path / 'run', *FLAGS, '--rounds=2', '--quiet') == 0
  out, err = capfd.readouterr()
  last = fakes.rows(tmp_path / 'run')[-1]
  values = {name: float(last[name]) for name in ('validation_loss', 'validation_accuracy')}
  assert out.startswith('2 rounds, validation_')
  for name, value in values.items():
    assert f', {name} {value:.4f}' in out
  assert out.endswith(f'; in {tmp_path}/run\n')
  assert (out.count('\n'), err) == (1, '')
  assert _train(tmp_path / 'run', *FLAGS, '--rounds=2', '--quiet', '--seed=1') == 2
  assert '--seed was 0 and is now 1' in capfd.readouterr().err


def test_two_parts_of_a_users_own_are_named_by_the_flag_of_the_chain(tmp_path):
  (tmp_path / 'a.py').write_text(_PARTS)
  algorithm = f'{tmp_path}/a.py:One+{tmp_path}/a.py:Two'
  settings = resolve.resolve(algorithm=algorithm)
  assert list(settings.what.sources()) == ['algorithm', 'algorithm_2']
  explanation = run._explained(settings, KeyError('no'))
  assert explanation == f"--algorithm={algorithm} cannot be used: KeyError: 'no'"


_PARTS = """
import dataclasses
from tff_adaptive import corrections

@dataclasses.dataclass(frozen=True)
class One(corrections.Correction):
  name = 'one'

@dataclasses.dataclass(frozen=True)
class Two(corrections.Correction):
  name = 'two'
"""


def test_an_error_that_says_enough_is_not_explained():
  source = types.SimpleNamespace(path='a.py')
  settings = types.SimpleNamespace(
    sources=lambda: {'task': source}, given_as=lambda key: f'--{key}=a'
  )
  for error in (ValueError('no'), errors.DataError('in user code')):
    assert run._explained(settings, error) is None
  for error in (ValueError('in user code'), KeyError('no')):
    assert run._explained(settings, error).startswith('--task=a cannot be used: ')


def _of_fakes(folder, until=None):
  stop = training.Stop()
  watch = run._Watch(until, training.Stop())
  watch.request = stop.request
  return fakes.train(folder, 9, callbacks=[watch], stop=stop, rounds_per_evaluation=2)


def test_rungs_leave_no_trace_in_a_run(tmp_path):
  """A run that ends for now at a round before its last is one that was interrupted there."""
  whole = _of_fakes(tmp_path / 'whole')
  for until, reached in ((3, 3), (2, 3), (4, 4), (None, 9)):
    result = _of_fakes(tmp_path / 'parts', until)
    assert (result.round_number, result.is_complete) == (reached, reached == 9)
  assert fakes.rows(tmp_path / 'parts') == fakes.rows(tmp_path / 'whole')
  (ours,) = result.state.global_model_weights
  (expected,) = whole.state.global_model_weights
  assert ours.tobytes() == expected.tobytes()
