"""--config repeats a run to the last bit, from its own files, or says what has changed."""

import json
import os
import sys

import numpy as np
import pytest

import tff_adaptive
from scripts import sweep, train
from scripts.cli import flags, repeat, resolve
from tests.helpers import fakes

_TASK = """
import numpy as np
import tff_adaptive_tasks as tasks
from repeated_task_helper import SLOPE

def load(data_dir, seed, clients: int = 4):
  rng = np.random.default_rng(seed)
  x = rng.normal(size=(clients * 6, 2)).astype(np.float32)
  y = np.where(x[:, 0] * SLOPE > 0.1, 'up', 'down')
  return tasks.from_arrays(x, y, np.repeat(np.arange(clients), 6), seed=seed)
"""


def _write(folder, slope='2.0'):
  (folder / 'task.py').write_text(_TASK)
  (folder / 'repeated_task_helper.py').write_text(f'SLOPE = {slope}\n')


@pytest.fixture
def folder(tmp_path, monkeypatch):
  """A folder with the files of a task, in a process that has not imported its helper."""
  monkeypatch.chdir(tmp_path)
  _write(tmp_path)
  yield tmp_path
  sys.modules.pop('repeated_task_helper', None)


def _train(*given):
  with fakes.no_figures():
    return train.main(['train.py', *given])


def _train_first():
  code = _train(
    *('--task=task.py:load', '--task_option=clients=5', '--algorithm=ada_best', '--rounds=2'),
    *('--server_optimizer=yogi', '--client_learning_rate=0.3', '--local_steps=2', '--seed=7'),
    *('--clients_per_round=2', '--output_dir=first', '--quiet'),
  )
  assert code == 0
  sys.modules.pop('repeated_task_helper', None)


def _assert_same_run():
  assert fakes.rows('first_repeated') == fakes.rows('first')
  weights = [tff_adaptive.load_run(name).weights for name in ('first', 'first_repeated')]
  for array, expected in zip(*weights):
    np.testing.assert_array_equal(array, expected)


def test_a_run_is_repeated_from_its_own_files_to_the_last_bit(folder, capfd):
  _train_first()
  with open('first/config.json') as file:
    entry = json.load(file)['files']['task']
  assert entry['copy'] == 'files/task/task.py'
  for name in ('task.py', 'repeated_task_helper.py'):
    copied = folder / 'first' / 'files' / 'task' / name
    assert copied.read_bytes() == (folder / name).read_bytes()
    os.remove(folder / name)
  assert _train('--config=first/config.json') == 0
  assert "task.py' is gone: the copy in" in capfd.readouterr().err
  _assert_same_run()
  with open('first_repeated/config.json') as file:
    assert json.load(file)['settings']['local_steps'] == 2
  # And once more, with a file that has changed.
  sys.modules.pop('repeated_task_helper', None)
  _write(folder, slope='-1.0')
  assert _train('--config=first', '--output_dir=first_repeated', '--quiet') == 0
  assert 'or a module that it imports, has changed since the run' in capfd.readouterr().err


@pytest.mark.exhaustive
def test_what_cannot_be_repeated_is_refused_in_one_line(folder, capfd):
  _train_first()
  path = folder / 'first' / 'config.json'
  config = json.loads(path.read_text())

  def refusal(*given, **changed):
    path.write_text(json.dumps({**config, **changed}))
    sys.modules.pop('repeated_task_helper', None)
    capfd.readouterr()
    assert _train('--config=first/config.json', *given) == 2
    [line] = capfd.readouterr().err.splitlines()[-1:]
    return line

  of_other_version = {**config['versions'], 'tensorflow': '2.14.0'}
  assert 'tensorflow was 2.14.0 and is now' in refusal(versions=of_other_version)
  assert '--seed does not go with --config' in refusal('--seed=8')
  other_data = {**config['data'], 'examples': 99}
  assert 'examples was 99 and is now' in refusal(data=other_data)
  other_settings = {**config['settings'], 'magic': 3}
  assert 'the run has the setting magic=3, which this version does not' in refusal(
    settings=other_settings
  )
  os.remove(folder / 'task.py')
  os.remove(folder / 'first' / 'files' / 'task' / 'task.py')
  assert "task.py' is gone, and" in refusal()
  assert not os.path.exists('first_repeated')
  assert _train('--config=nowhere/config.json') == 2
  assert 'there is no such file; name the config.json' in capfd.readouterr().err
  assert _train(f'--config={__file__}') == 2
  assert 'there is no such file; name the config.json' in capfd.readouterr().err


@pytest.mark.parametrize(
  'command',
  [
    '',
    '--task=emnist_cr --algorithm=fed_avgm --participation=0.01',
    '--algorithm=scaffold+sam --algorithm_option=sam.rho=0.1 --clip_norm=1',
    '--algorithm=centralized --client_optimizer=adam --client_learning_rate=0.1',
    '--algorithm=fed_avg --server_optimizer=lamb --aggregator=median',
    '--availability=diurnal --speed_sigma=0.5 --round_deadline=3',
    '--synchrony=buffered --concurrency=9 --buffer_size=3',
    '--subrounds=4 --virtual_seconds_per_evaluation=3 --availability=always --xla --seed=3',
    '--cohort=power_of_choice --target=0.9 --stop_at_target --early_stop=loss --patience=3',
  ],
)
def test_settings_are_those_recorded_from_those_that_were_given(command):
  """What is recorded is all settings, defaults included, many of which may not be given."""
  settings = resolve.resolve(flags.parse(['train.py', *command.split()]))
  recorded = {
    name: value for name, value in settings.flat().items() if name not in repeat.OF_ONE_START
  }
  recorded = json.loads(json.dumps(recorded))
  given = repeat.given_for(recorded, settings.given)
  assert given.keys() == settings.given.keys()
  flat = resolve.resolve(given).flat()
  assert {name: flat[name] for name in recorded} == recorded


def test_a_default_that_has_changed_since_is_given():
  recorded = {**resolve.resolve(rounds=3).flat(), 'batch_size': 7, 'output_dir': 'x'}
  del recorded['output_dir']
  assert repeat.given_for(recorded, ['rounds']) == {'rounds': 3, 'batch_size': 7}


def test_a_sweep_repeats_no_run(tmp_path, capfd):
  command = ['sweep.py', f'--output_dir={tmp_path / "runs"}', '--grid=seed=0,1', '--']
  assert sweep.main([*command, '--config=x']) == 2
  assert '--config is for train.py alone: it repeats one run' in capfd.readouterr().err
